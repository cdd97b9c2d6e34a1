"""The roster: every unit file, read fresh, and the adoption of what people wrote down into the state."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from dispatcher import moves
from dispatcher.archive import archived_units, landed
from dispatcher.config import Config
from dispatcher.errors import BadInput
from dispatcher.ledger import Ledger
from dispatcher.listed import unworkable
from dispatcher.orders import verify_of
from dispatcher.state import State
from dispatcher.units import UNITS_PATH, UnitFile, UnitFolder, attempts_of, check_graph, dump
from worktrees.files import write_atomic

__all__ = ["Roster"]


class Roster:
    """The units of one repository. A reading that fails leaves the last good one in force."""

    def __init__(self, root: Path, config: Config) -> None:
        self._root = root
        self._folder = root / UNITS_PATH
        self._files = UnitFolder(self._folder)
        self._config = config
        self._archived: Mapping[str, tuple[str | None, ...]] = {}
        self._seen: Mapping[str, UnitFile] | None = None  # what was checked last
        self.units: dict[str, UnitFile] = {}

    def load(self) -> None:
        """Read all unit files. Raises BadInput naming every fault: unreadable, bad `after`, no verify."""
        self._archived = archived_units(self._root)
        units = self._files.load()
        check_graph(units, self._archived)
        for unit in units.values():
            verify_of(unit, self._config)
        self.units, self._seen = dict(units), units

    def landed(self, base: str, holds: Callable[[str, str], bool]) -> Mapping[str, bool]:
        """Return which archived units count for those that come after them: those in the history of `base`."""
        if not self._archived:
            return {}
        needed = {other for unit in self.units.values() for other in unit.after if other not in self.units}
        return landed(self._archived, needed, lambda commit: holds(base, commit))

    def reload(self) -> BadInput | None:
        """Read all unit files while a run goes on, and return what is wrong with them.

        A unit without a verify stays out; one that cannot be read at all leaves everything as it was.
        """
        wrong: BadInput | None = None
        try:
            found = self._files.load()
            if found is self._seen:
                return None
            check_graph(found, self._archived)
        except BadInput as error:
            return error
        units = dict(found)
        for unit in found.values():
            try:
                verify_of(unit, self._config)
            except BadInput as error:
                wrong = error
                del units[unit.id]
        self.units, self._seen = units, None if wrong else found
        return wrong

    def adopt(self, state: State, ledger: Ledger) -> State:
        """Give typed goals a unit file, and unit files that no bucket lists a place in `open` (design, Files).

        Raises DiskError.
        """
        for unit, goal in state.typed_goals.items():
            if unit not in self.units:
                self._write(UnitFile(id=unit, goal=goal))
        if state.typed_goals:
            state = state.adopted(*state.typed_goals)
        new = [unit for unit in self.units if state.bucket_of(unit) is None and unit not in ledger.cancelled]
        return moves.add(state, new)

    def unworkable(self, state: State, ledger: Ledger) -> Mapping[str, BadInput]:
        """Return what is wrong with each listed unit that is to be done and that nobody could work on."""
        return unworkable(self._root, state, ledger, self.units, self._config)

    def refuse_unworkable(self, state: State, ledger: Ledger) -> None:
        """Raise BadInput that names every listed unit without a file and a goal, or without a verify in force."""
        if found := list(self.unworkable(state, ledger).values()):
            raise BadInput.all_of(found)

    def has_file(self, unit: str) -> bool:
        """Tell whether a unit has a file right now, readable or not."""
        return (self._folder / f"{unit}.md").exists()

    def attempts(self, unit: str) -> int:
        """Return how many attempts a unit has."""
        return attempts_of(unit, self.units, self._config.limits.attempts)

    def _write(self, unit: UnitFile) -> None:
        """Keep a typed goal. Without a verify in force it could never pass, so it waits until somebody adds one."""
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._folder / f"{unit.id}.md"
        if path.exists():  # written since the last reading: it is its owner's
            return
        write_atomic(path, dump(unit).encode())
        self._seen = None
        with suppress(BadInput):  # `unworkable` names the fault
            verify_of(unit, self._config)
            self.units[unit.id] = unit
