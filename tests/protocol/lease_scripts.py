"""The lease's three scripts in plain Python, for the model; `test_conformance.py` holds them against the real ones."""

from typing import NamedTuple


class Record(NamedTuple):
    """What Redis has of a unit. `run` is the start of Redis that it was published under."""

    token: tuple[int, ...]  # with a third number: given up, and nobody's
    is_open: bool
    holder: int | None
    run: int
    beat: int = 0


def publish(token: tuple[int, ...], *, is_open: bool, run: int) -> Record:
    """Rule 4; closed: rule 10."""
    return Record(token, is_open, None, run)


def claim(
    record: Record | None, token: tuple[int, int], holder: int, *, said: int, run: int, off: frozenset[str]
) -> Record | None:
    """Return the claimed record, None for "go home". `said` is the order's run_id, `run` this Redis' (rule 5)."""
    if record is None or record.token != token:
        return None
    if "5 one claim" not in off and (not record.is_open or record.holder is not None):
        return None
    if "5 run_id" not in off and (record.run != said or run != said):
        return None
    return record._replace(is_open=False, holder=holder, beat=1)


def beat(
    record: Record | None, token: tuple[int, int], holder: int, counter: int, *, run: int
) -> tuple[str, Record | None]:
    """Return what the holder hears, and the record afterwards (rule 8)."""
    if record is None:
        return "missing", None
    other = "lost" if record.run == run else "missing"  # a restarted Redis may have gone back in time
    if record.token != token:
        return other, record
    if record.holder is None and not record.is_open:
        return "ok", record._replace(holder=holder, beat=counter + 1)
    if record.holder != holder:
        return other, record
    if record.beat < counter:
        return "missing", record
    return "ok", record._replace(beat=counter + 1)
