"""The roster: every unit file, read fresh, and the adoption of what people wrote down into the state."""

from contextlib import suppress
from pathlib import Path

from dispatcher.config import Config
from dispatcher.errors import BadInput
from dispatcher.ledger import Ledger
from dispatcher.orders import verify_of
from dispatcher.state import State
from dispatcher.units import UNITS_PATH, UnitFile, attempts_of, check_graph, dump, load_all
from worktrees.files import write_atomic

__all__ = ["Roster"]


class Roster:
    """The units of one repository. A reading that fails leaves the last good one in force."""

    def __init__(self, root: Path, config: Config) -> None:
        self._folder = root / UNITS_PATH
        self._config = config
        self.units: dict[str, UnitFile] = {}

    def load(self) -> None:
        """Read all unit files. Raises BadInput naming every fault: unreadable, bad `after`, no verify."""
        units = load_all(self._folder)
        check_graph(units)
        for unit in units.values():
            verify_of(unit, self._config)
        self.units = units

    def reload(self) -> BadInput | None:
        """Read all unit files while a run goes on, and return what is wrong with them.

        A unit without a verify stays out; one that cannot be read at all leaves everything as it was.
        """
        wrong: BadInput | None = None
        try:
            units = load_all(self._folder)
            check_graph(units)
        except BadInput as error:
            return error
        for unit in list(units.values()):
            try:
                verify_of(unit, self._config)
            except BadInput as error:
                wrong = error
                del units[unit.id]
        self.units = units
        return wrong

    def adopt(self, state: State, ledger: Ledger) -> State:
        """Give typed goals a unit file, and unit files that no bucket lists a place in `open` (design, Files).

        Raises DiskError.
        """
        for unit, goal in dict(state.typed_goals).items():
            if unit not in self.units:
                self._write(UnitFile(id=unit, goal=goal))
            state = state.adopted(unit)
        for unit in self.units:
            if state.bucket_of(unit) is None and unit not in ledger.cancelled:
                state = state.add(unit)
        return state

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
        with suppress(BadInput):  # `load` names the fault from now on
            verify_of(unit, self._config)
            self.units[unit.id] = unit
