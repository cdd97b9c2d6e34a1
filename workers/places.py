"""Where one unit's files are on a host: session logs, scratch folder, worktrees, all under the repository's home."""

from dataclasses import dataclass
from pathlib import Path

__all__ = ["Places"]


@dataclass(frozen=True, slots=True)
class Places:
    """Where a unit's files are on this host, under the repository's home."""

    home: Path
    night: str
    unit: str

    @property
    def unit_dir(self) -> Path:
        """Sessions of all attempts, under the unit's one lock."""
        return self.home / "nights" / self.night / "units" / self.unit

    @property
    def lock(self) -> Path:
        """One flock per unit and host (protocol rule 6)."""
        return self.unit_dir / "unit.lock"

    def session(self, attempt: int) -> Path:
        """The session log of one attempt."""
        return self.unit_dir / str(attempt) / "session.jsonl"

    @property
    def scratch(self) -> Path:
        """A folder for the unit's agent, shared by all its attempts."""
        return self.unit_dir / "scratch"

    @property
    def worktrees(self) -> Path:
        """The night's worktrees."""
        return self.home / "worktrees" / self.night

    @property
    def tag(self) -> str:
        """What marks every process of this unit."""
        return f"{self.night}.{self.unit}"
