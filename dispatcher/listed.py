"""Units that the state file lists and that nobody could work on: they are named, never passed over without a word."""

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from dispatcher.config import Config
from dispatcher.errors import BadInput, StateFileError
from dispatcher.ledger import Ledger
from dispatcher.opening import STATE_PATH
from dispatcher.orders import verify_of
from dispatcher.state import Bucket, State, lines_of, read_text
from dispatcher.units import UNITS_PATH, UnitFile, load

__all__ = ["unworkable"]


def unworkable(
    root: Path, state: State, ledger: Ledger, units: Mapping[str, UnitFile], config: Config
) -> Mapping[str, BadInput]:
    """Return what is wrong with each unit that is still to be done: no file and no goal, or no verify in force.

    Nothing is said of a unit that has passed, or that a person cancelled: its file may go.
    """
    found: dict[str, BadInput] = {}
    missing = []
    for unit in state.ids():
        if _is_done_with(unit, state, ledger):
            continue
        try:
            known = units.get(unit) or _written(root, unit, state)
            if known is None:
                missing.append(unit)
            else:
                verify_of(known, config)
        except BadInput as error:
            found[unit] = error
    return found | _missing(root, missing)


def _is_done_with(unit: str, state: State, ledger: Ledger) -> bool:
    facts = ledger.units.get(unit)
    if facts is not None and (facts.is_cancelled or facts.merged is not None):
        return True
    return state.bucket_of(unit) is Bucket.passed


def _written(root: Path, unit: str, state: State) -> UnitFile | None:
    """Return what a person wrote of a unit that has not been read yet: the file wins over a typed goal."""
    path = root / UNITS_PATH / f"{unit}.md"
    if path.exists():
        return load(path)
    goal = state.typed_goals.get(unit)
    return None if goal is None else UnitFile(id=unit, goal=goal)


def _missing(root: Path, units: list[str]) -> dict[str, BadInput]:
    path, lines = root / STATE_PATH, dict[str, int]()
    if units:
        with suppress(StateFileError):  # it was read a moment ago
            lines = lines_of(read_text(path))
    return {unit: StateFileError(_no_file(unit), path=path, line=lines.get(unit)) for unit in units}


def _no_file(unit: str) -> str:
    return (
        f"{unit} is listed, and has no unit file: write {UNITS_PATH / unit}.md, say with "
        f'`overnight add "…" --id {unit}`, or delete the line'
    )
