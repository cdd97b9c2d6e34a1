"""What every command needs first: the repository around the working directory, its home and its config."""

import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from pydantic import ValidationError

from dispatcher import config, moves
from dispatcher.config import Config, EngineConfig
from dispatcher.errors import BadInput, ConfigError
from dispatcher.home import Home
from dispatcher.journal import read_journal
from dispatcher.ledger import Ledger
from dispatcher.listed import unworkable
from dispatcher.opening import going_on, read_state, refuse_lost
from dispatcher.state import State, is_unit_id, parse
from dispatcher.units import UNITS_PATH, UnitFile, load_all
from worktrees.repository import Repository

__all__ = ["Context"]

# As in workers.app, whose import (Celery) would make every command slow.
_BROKER = "OVERNIGHT_BROKER"


@dataclass(frozen=True)
class Context:
    """One repository, looked at from the outside: reading only."""

    repository: Repository
    home: Home
    config: Config

    @classmethod
    def here(cls) -> "Context":
        """Look around the working directory. Raises RepositoryError, BadInput.

        A broker named by OVERNIGHT_BROKER wins over the config's: a password does not belong in a repository.
        """
        repository = Repository.discover(Path.cwd())
        home = Home.for_repository(repository.common_dir, os.environ, repository.root)
        return cls(repository, home, _with_broker(config.load(repository.root), os.environ.get(_BROKER)))

    @property
    def units_dir(self) -> Path:
        """The folder of unit files."""
        return self.repository.root / UNITS_PATH

    @cached_property
    def units(self) -> dict[str, UnitFile]:
        """All unit files. Raises BadInput."""
        return load_all(self.units_dir)

    @cached_property
    def state(self) -> State:
        """The state file with unit files that no bucket lists yet in `open`, as the next run will see it.

        Raises StateFileError: unreadable, or lost while its night goes on.
        """
        found = read_state(self.repository.root)
        refuse_lost(self.repository.root, self.home, found)
        return moves.add(found or State(self.repository.root.name), self.units)

    @cached_property
    def entries(self) -> list[tuple[str, object]]:
        """The night's journal as (time, entry) pairs; empty before the first run."""
        return read_journal(self.home.journal(self.state.night)) if self.state.night else []

    @cached_property
    def ledger(self) -> Ledger:
        """What the journal says."""
        return Ledger().extend(entry for _, entry in self.entries)

    def unworkable(self) -> Mapping[str, BadInput]:
        """Return what is wrong with each listed unit that is to be done and that nobody could work on."""
        return unworkable(self.repository.root, self.state, self.ledger, self.units, self.config)

    def readable(self) -> "tuple[Context, BadInput | None]":
        """Return this; or what it was last, and why, where the state file or a unit file cannot be read."""
        try:
            _ = self.state, self.units
        except BadInput as error:
            return LastWritten(self.repository, self.home, self.config), error
        return self, None

    def known(self, unit: str) -> str:
        """Return a unit's id. Raises BadInput for one that nobody knows, naming what is close."""
        if self.state.bucket_of(unit) is None:
            self._point_to_its_night(unit)
            self.state.note_of(unit)
        return unit

    def _point_to_its_night(self, unit: str) -> None:
        """Raise BadInput for a unit that is gone from the state file and that a night has worked on."""
        nights = [night for night in self.home.all_nights() if is_unit_id(unit) and self.home.sessions(night, unit)]
        if nights:
            night = max(nights, key=lambda one: self.home.night(one).stat().st_mtime_ns)
            message = f"{unit} is not in the state file any more; `overnight log {unit} --night {night}` shows it"
            raise BadInput(message)

    def sessions(self, unit: str, night: str = "") -> dict[int, Path]:
        """Return the session logs of a unit by attempt, in this night or in an earlier one; each may be compressed.

        Raises BadInput when it has none.
        """
        if night and not self.home.is_night(night):
            there = ", ".join(self.home.all_nights()) or "none"
            raise BadInput(f"there is no night {night!r}; there are: {there}", field="--night")
        if night and not is_unit_id(unit):
            raise BadInput(f"{unit!r} cannot be a unit's id")
        chosen = night or self.state.night
        logs = self.home.sessions(chosen, unit) if chosen else {}
        if not logs:
            where = f" in night {night}" if night else " yet: no worker has taken it up"
            raise BadInput(f"{unit} has no session{where}")
        return logs

    def session(self, unit: str, attempt: int | None, night: str = "") -> tuple[int, Path, int]:
        """Return an attempt (the newest where None) with its session log, and the newest. Raises BadInput."""
        logs = self.sessions(unit if night else self.known(unit), night)
        number = attempt or max(logs)
        if number not in logs:
            raise BadInput(f"{unit} has no attempt {number}; there are {', '.join(map(str, logs))}", field="--attempt")
        return number, logs[number], max(logs)


class LastWritten(Context):
    """What the night's journal holds, while the files say what nobody can read."""

    @cached_property
    def units(self) -> dict[str, UnitFile]:
        """The unit files; none while one of them cannot be read."""
        try:
            return load_all(self.units_dir)
        except BadInput:
            return {}

    @cached_property
    def state(self) -> State:
        """The state file, where a unit file is to blame; else the last revision that this checkout's journal holds."""
        with suppress(BadInput):
            return super().state
        night = going_on(self.repository.root, self.home)
        ledger = Ledger().extend(entry for _, entry in read_journal(self.home.journal(night))) if night else Ledger()
        return parse(ledger.texts[ledger.rev]) if ledger.rev else State(self.repository.root.name)


def _with_broker(found: Config, url: str | None) -> Config:
    if not url:
        return found
    try:
        engine = EngineConfig.model_validate({**found.engine.model_dump(), "broker": url})
    except ValidationError as error:  # says what a broker looks like, never the value: it may hold a password
        message = str(error.errors()[0]["msg"]).removeprefix("Value error, ")
        raise ConfigError(message, field=_BROKER) from None
    return found.model_copy(update={"engine": engine})
