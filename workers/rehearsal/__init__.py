"""The rehearsal server: speaks the Messages API, plays a script, refuses what the real API refuses."""

from workers.rehearsal.errors import RehearsalError, ScriptError, ServerStartError
from workers.rehearsal.recording import Record, Tally
from workers.rehearsal.running import how_to_use, running, serve
from workers.rehearsal.script import (
    Cue,
    Fault,
    ModelEntry,
    RateLimit,
    RedactedBlock,
    Script,
    Step,
    TextBlock,
    ThinkingBlock,
    ToolBlock,
    UnitScript,
    UsageOverride,
)
from workers.rehearsal.server import RehearsalServer

__all__ = [
    "Cue",
    "Fault",
    "ModelEntry",
    "RateLimit",
    "Record",
    "RedactedBlock",
    "RehearsalError",
    "RehearsalServer",
    "Script",
    "ScriptError",
    "ServerStartError",
    "Step",
    "Tally",
    "TextBlock",
    "ThinkingBlock",
    "ToolBlock",
    "UnitScript",
    "UsageOverride",
    "how_to_use",
    "running",
    "serve",
]
