"""Journal entries and units, with everything that a test does not care about filled in."""

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from dispatcher import journal as j
from dispatcher.units import UnitFile
from workers.orders import Release, UnitReport

NIGHT = "1130-k3v"
COMMIT = "c" * 40
TREE = "d" * 40


def unit(name: str, **more: Any) -> UnitFile:
    """A unit with a verify."""
    return UnitFile(**{"id": name, "goal": "Do it.", "verify": "true", **more})


def ordered(name: str, attempt: int = 1, epoch: int = 1, **more: Any) -> j.Ordered:
    """A hand-out."""
    return j.Ordered(unit=name, attempt=attempt, epoch=epoch, base="b" * 40, digest="d", **more)


def verdict(name: str, word: str, attempt: int = 1, epoch: int = 1, **more: Any) -> UnitReport:
    """A report; a pass has its commit and tree."""
    passed = {"commit": COMMIT, "tree": TREE} if word == "pass" else {}
    return UnitReport(
        **{
            "night": NIGHT,
            "unit": name,
            "attempt": attempt,
            "epoch": epoch,
            "verdict": word,
            "digest": "d",
            **passed,
            **more,
        }
    )


def release(name: str, reason: str, attempt: int = 1, epoch: int = 1, **more: Any) -> Release:
    """A hand-back."""
    return Release(**{"night": NIGHT, "unit": name, "attempt": attempt, "epoch": epoch, "reason": reason, **more})


def reported(report: UnitReport | Release, reason: str = "") -> j.Reported:
    """A report as the journal has it; with a reason it was refused."""
    return j.Reported(report=report, accepted=not reason, reason=reason)


def failed(name: str, attempts: int, note: str = "red") -> Sequence[Any]:
    """So many attempts that failed."""
    return [
        entry
        for n in range(1, attempts + 1)
        for entry in (ordered(name, n), reported(verdict(name, "fail", n, note=note)))
    ]


def lost(name: str, attempt: int = 1, epoch: int = 1, **more: Any) -> j.Lost:
    """A claimed hand-out whose worker is gone."""
    return j.Lost(**{"unit": name, "attempt": attempt, "epoch": epoch, "claimed": True, **more})


def merged(name: str, attempt: int = 1, commit: str = "e" * 40) -> j.MergeDone:
    """The merged branch holds the unit."""
    return j.MergeDone(unit=name, attempt=attempt, commit=commit)


def asked(kind: str, name: str, number: int = 1, *, obeyed: bool = True, **more: Any) -> j.Asked:
    """A request of the drop-box."""
    return j.Asked(request={"id": f"{number:020d}-00000000", "kind": kind, "unit": name, **more}, obeyed=obeyed)


def started(run: int = 1, *, embedded: bool = True) -> j.RunStarted:
    """The start of a run."""
    return j.RunStarted(run=run, pid=1, host="here", slots=4, embedded=embedded)


def written(rev: int, text: str = "text", *moves: str) -> j.Written:
    """A state file on its way to the disk."""
    return j.Written(rev=rev, text=text, moves=list(moves))


def dollars(text: str) -> Decimal:
    """An amount."""
    return Decimal(text)
