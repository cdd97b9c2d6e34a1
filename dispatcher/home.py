"""Where a repository's nights keep what does not belong in the checkout: paths, and folders that only we can enter.

What workers see of the layout is known by `workers/places.py`, the rest here; nothing else joins these names.
"""

import hashlib
import os
import re
import stat
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from dispatcher.errors import BadInput, EngineError
from dispatcher.state import is_unit_id
from workers import places
from workers.closed import is_stored
from workers.places import Places

__all__ = ["SOCKET_PATH_LIMIT", "Home"]

SOCKET_PATH_LIMIT = 107
"""Bytes of a unix socket's path: `sun_path` has 108, one of them for the NUL (unix(7))."""

_PRIVATE = 0o700


@dataclass(frozen=True)
class Home:
    """The folder of one repository. Nothing exists until `make`; every path is absolute.

    `common_dir` is the git common directory when it is known; `runtime` is where a socket goes whose path under
    `root` would be too long.
    """

    root: Path
    common_dir: Path | None = None
    runtime: Path = field(default_factory=lambda: Path(tempfile.gettempdir()))

    @classmethod
    def for_repository(cls, common_dir: Path, environ: Mapping[str, str], checkout: Path | None = None) -> Self:
        """Find the home of the repository whose git common directory is `common_dir`.

        Under $OVERNIGHT_HOME, else $XDG_STATE_HOME/overnight, else ~/.local/state/overnight. `checkout` is the top
        of the working tree, where it is not simply the folder around `.git`. Raises BadInput for a home that is
        not absolute or lies inside the checkout: linters and test runners would walk it.
        """
        real = common_dir.resolve()
        base = _base(environ).resolve()
        trees = {real, real.parent if real.name == ".git" else real} | ({checkout.resolve()} if checkout else set())
        for tree in sorted(trees):
            if base == tree or tree in base.parents:
                message = f"OVERNIGHT_HOME ({base}) lies inside the repository {tree}; choose a folder outside it"
                raise BadInput(message, field="OVERNIGHT_HOME")
        return cls(base / _folder(real), real, _runtime(environ))

    @property
    def worktrees(self) -> Path:
        """The folder of all worktrees."""
        return places.worktrees(self.root)

    @property
    def nights(self) -> Path:
        """The folder of all nights."""
        return places.nights(self.root)

    @property
    def outbox(self) -> Path:
        """Reports on their way to the dispatcher."""
        return places.outbox(self.root)

    @property
    def dropbox(self) -> Path:
        """What everybody else asks of the dispatcher."""
        return self.root / "dropbox"

    @property
    def run_log(self) -> Path:
        """What the newest run said, for whoever attaches; the one before it is beside it."""
        return self.root / "run.log"

    @property
    def start_lock(self) -> Path:
        """Held while a run in the background is being started: two would take each other's log."""
        return self.root / "start.lock"

    @property
    def run_lock(self) -> Path:
        """Held by a run from its start, also while it only waits for its time."""
        return self.root / "run.lock"

    @property
    def engine(self) -> Path:
        """The private Redis: its data, log and lock."""
        return self.root / "engine"

    @property
    def engine_lock(self) -> Path:
        """Held by whatever is embedded, so that a new dispatcher knows when all of it is dead (rule 2)."""
        return self.engine / "engine.lock"

    @property
    def aof(self) -> Path:
        """The folder of Redis' append-only file."""
        return self.engine / "aof"

    @property
    def writer_lock(self) -> Path:
        """The one writer's lock (spec S6, rule 2).

        In the git common directory where that is known: two homes for one repository must not be two writers.
        """
        return (self.common_dir or self.root) / "overnight-writer.lock"

    @property
    def socket(self) -> Path:
        """The private Redis' socket: in `engine`, or in a short folder whose name follows from `root`."""
        return self._socket_folder / "redis.sock"

    @property
    def _socket_folder(self) -> Path:
        name = f"overnight-{os.geteuid()}-{_short_hash(self.root)}"
        for folder in (self.engine, self.runtime / name):
            if len(os.fsencode(folder / "redis.sock")) <= SOCKET_PATH_LIMIT:
                return folder
        return Path("/tmp") / name  # noqa: S108 - the one short place that every Linux has; `make` checks its owner

    def night(self, night: str) -> Path:
        """Return the folder of a night."""
        return self.nights / _name(night)

    def journal(self, night: str) -> Path:
        """Return the night's journal."""
        return self.night(night) / "journal.jsonl"

    def places(self, night: str, unit: str) -> Places:
        """Return where a unit of a night has its files."""
        return Places(self.root, _name(night), _name(unit))

    def session(self, night: str, unit: str, attempt: int) -> Path:
        """Return the session log of an attempt (from 1)."""
        if attempt < 1:
            raise ValueError(f"attempts count from 1, not {attempt}")
        return self.places(night, unit).session(attempt)

    def is_night(self, night: str) -> bool:
        """Tell whether a night of that id has left a folder here."""
        return is_unit_id(night) and self.night(night).is_dir()

    def all_nights(self) -> list[str]:
        """Return the ids of all nights that have a folder here."""
        return sorted(path.name for path in self.nights.glob("*") if self.is_night(path.name))

    def all_units(self, night: str) -> list[str]:
        """Return the units that have a folder in a night."""
        found = places.units(self.night(night)).glob("*")
        return sorted(path.name for path in found if is_unit_id(path.name) and path.is_dir())

    def sessions(self, night: str, unit: str) -> dict[int, Path]:
        """Return the session logs of a unit that are there, by attempt; a compressed one under its plain name."""
        folders = [
            path for path in self.places(night, unit).unit_dir.glob("*") if path.name.isdecimal() and int(path.name) > 0
        ]
        logs = {int(path.name): self.session(night, unit, int(path.name)) for path in folders}
        return {attempt: logs[attempt] for attempt in sorted(logs) if is_stored(logs[attempt])}

    def make(self) -> None:
        """Create the folders, each for the owner alone (0700). Doing it twice changes nothing.

        Raises EngineError where a folder cannot be made, is somebody else's, or is a symbolic link.
        """
        folders = (self.worktrees, self.nights, self.outbox, self.dropbox, self.engine, self.aof)
        _make_private(_missing_above(self.root))
        _make_private((self.root, *folders, self._socket_folder))


def _base(environ: Mapping[str, str]) -> Path:
    if chosen := environ.get("OVERNIGHT_HOME"):
        if not Path(chosen).is_absolute():
            message = f"must be an absolute path, not {chosen!r}: it would move with the working directory"
            raise BadInput(message, field="OVERNIGHT_HOME")
        return Path(chosen)
    state = Path(environ.get("XDG_STATE_HOME", ""))
    if state.is_absolute():  # the XDG specification says to ignore a relative one
        return state / "overnight"
    return Path(environ.get("HOME") or Path.home()) / ".local" / "state" / "overnight"


def _runtime(environ: Mapping[str, str]) -> Path:
    chosen = Path(environ.get("XDG_RUNTIME_DIR", ""))
    return chosen if chosen.is_absolute() and chosen.is_dir() else Path(tempfile.gettempdir())


def _folder(common_dir: Path) -> str:
    """Name the repository's folder: readable, and different for two repositories of the same name."""
    name = common_dir.parent.name if common_dir.name == ".git" else common_dir.name.removesuffix(".git")
    readable = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:40].strip("-") or "repository"
    return f"{readable}-{_short_hash(common_dir)}"


def _short_hash(path: Path) -> str:
    return hashlib.sha256(os.fsencode(path)).hexdigest()[:8]


def _name(part: str) -> str:
    if not is_unit_id(part):
        raise ValueError(f"{part!r} cannot be a night's or a unit's id")
    return part


def _missing_above(root: Path) -> list[Path]:
    """Return the parents of `root` that do not exist, outermost first; those that do are not ours to change."""
    return [folder for folder in reversed(root.parents) if not folder.exists()]


def _make_private(folders: Iterable[Path]) -> None:
    for folder in folders:
        try:
            folder.mkdir(mode=_PRIVATE, exist_ok=True)
            _check_private(folder)
        except OSError as error:
            message = f"the folder {folder} cannot be made: {error.strerror}; set OVERNIGHT_HOME to one that can"
            raise EngineError(message, component="home") from error


def _check_private(folder: Path) -> None:
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
        message = f"{folder} is not a folder of yours (a link, or another owner's); remove it, or set OVERNIGHT_HOME"
        raise EngineError(message, component="home")
    if stat.S_IMODE(found.st_mode) != _PRIVATE:
        folder.chmod(_PRIVATE)
