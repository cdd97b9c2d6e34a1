"""Where a repository's home keeps its nights: the layout is known here alone. `dispatcher/home.py` is built on it."""

from dataclasses import dataclass
from pathlib import Path

__all__ = ["Places", "nights", "outbox", "session", "units", "worktrees"]


def worktrees(home: Path) -> Path:
    """The folder of all nights' worktrees."""
    return home / "worktrees"


def nights(home: Path) -> Path:
    """The folder of all nights."""
    return home / "nights"


def outbox(home: Path) -> Path:
    """Reports on their way to the dispatcher."""
    return home / "outbox"


def units(night: Path) -> Path:
    """The folder of all units in a night's folder."""
    return night / "units"


def session(unit: Path, attempt: int) -> Path:
    """The session log of one attempt (from 1) in a unit's folder."""
    return unit / str(attempt) / "session.jsonl"


@dataclass(frozen=True, slots=True)
class Places:
    """Where a unit's files are on this host, under the repository's home."""

    home: Path
    night: str
    unit: str

    @property
    def unit_dir(self) -> Path:
        """Sessions of all attempts, under the unit's one lock."""
        return units(nights(self.home) / self.night) / self.unit

    @property
    def lock(self) -> Path:
        """One flock per unit and host (protocol rule 6)."""
        return self.unit_dir / "unit.lock"

    def session(self, attempt: int) -> Path:
        """The session log of one attempt."""
        return session(self.unit_dir, attempt)

    @property
    def scratch(self) -> Path:
        """A folder for the unit's agent, shared by all its attempts."""
        return self.unit_dir / "scratch"

    @property
    def worktrees(self) -> Path:
        """The night's worktrees."""
        return worktrees(self.home) / self.night

    @property
    def tag(self) -> str:
        """What marks every process of this unit."""
        return f"{self.night}.{self.unit}"
