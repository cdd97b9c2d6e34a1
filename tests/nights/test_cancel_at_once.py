"""A person's cancel over the real command: the model's connection is closed within a second of its "done"."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from night_stand import Project, plays, says, until

MakeNight = Callable[..., Project]


def test_a_cancelled_think_is_closed_within_a_second(night: MakeNight) -> None:
    """Though nothing was being sent, and whenever the next beat is due."""
    thinks: dict[str, Any] = {**says("Done."), "think_time": 60}
    project = night(plays({"create-foo": [thinks]}))
    project.unit("create-foo")
    run = project.start("run")
    until(lambda: project.calls("create-foo"), "it thinks")
    time.sleep(1.5)

    assert project.overnight("cancel", "create-foo").out.strip() == "done"
    done_at = time.time()
    (asked,) = [one for one in project.server.requests if one.path == "/v1/messages"]
    until(lambda: asked.disconnected, "the connection is closed")

    assert (asked.disconnected or 0) - done_at < 1
    run.wait()
    assert project.state().note_of("create-foo") == "cancelled by a person"
