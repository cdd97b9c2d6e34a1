"""A turn that ends in a way this version does not know reaches a person, and leaves a session that can go on."""

from pathlib import Path
from typing import Any

import pytest
from attempt_stand import AttemptStand

from workers.model.client import ModelClient
from workers.orders import AgentOrder
from workers.session import events as ev
from workers.turn.loop import Ended, TurnLoop


async def test_a_strange_ending(
    make_repository: Any, rehearse: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The attempt neither verifies nor fails the unit for it: it is blocked, and the note names the ending."""
    repository = make_repository({"README.md": "# A\n"})
    server = rehearse({"units": {"a": {"steps": [{"blocks": [{"text": "Done."}]}]}}})
    client = ModelClient(AgentOrder(model="m", base_url=server.url))
    at = AttemptStand(repository, tmp_path / "home", server, client, repository.git("rev-parse", "HEAD"), {})

    async def run_turn(self: TurnLoop, *messages: ev.UserMessage) -> Ended:
        self._session.append(ev.TurnStart(turn=1), *messages, ev.TurnEnd(turn=1, reason="eaten-by-a-whale"))
        return Ended("eaten-by-a-whale", facts={"depth": 900})

    monkeypatch.setattr(TurnLoop, "run_turn", run_turn)
    report = await at.run()
    await client.close()
    assert report.verdict == "block"
    assert "eaten-by-a-whale" in report.note
    assert at.of(ev.VerifyResult) == []
    assert at.of(ev.TurnEnd)[0].reason == "eaten-by-a-whale"
