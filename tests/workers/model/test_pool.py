"""What a process has of the model: one client an endpoint and key, and what the endpoint says of its models."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from workers.errors import ModelError
from workers.model import catalog
from workers.model.catalog import Parameters, card, card_of, is_learned, parameters
from workers.model.limiter import Limiter
from workers.model.pool import Pool
from workers.orders import AgentOrder
from workers.session.surface import Request

ASKED = Request(
    [{"type": "text", "text": "unit: a"}], [], [{"role": "user", "content": [{"type": "text", "text": "go"}]}]
)
STEPS = {"units": {"a": {"steps": [{"blocks": [{"text": "Hello."}]}]}}}
LOW = {"type": "adaptive"}, {"effort": "low"}


@pytest.fixture
async def pool(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Pool]:
    """A pool of a process that has asked nobody yet."""
    monkeypatch.setattr(catalog, "_learned", {})
    made = Pool(Limiter())
    yield made
    for client, _ in made._opened.values():
        await client.close()


@pytest.mark.parametrize(
    ("model", "effort", "thinking", "config"),
    [
        ("claude-haiku-4-5", "off", None, None),
        ("claude-haiku-4-5", "low", {"type": "enabled", "budget_tokens": 1_024}, None),
        ("claude-haiku-4-5", "medium", {"type": "enabled", "budget_tokens": 4_096}, None),
        ("claude-haiku-4-5", "high", {"type": "enabled", "budget_tokens": 16_384}, None),
        ("claude-sonnet-5-5", "off", {"type": "disabled"}, None),
        ("claude-sonnet-5-5", "medium", {"type": "adaptive"}, {"effort": "medium"}),
        ("rehearsal-plain", "off", None, None),
        ("rehearsal-plain", "high", None, None),
        ("rehearsal-always", "off", *LOW),
        ("rehearsal-always", "high", {"type": "adaptive"}, {"effort": "high"}),
        ("between", "off", {"type": "between_tools"}, None),
        ("short", "high", {"type": "enabled", "budget_tokens": 2_000}, None),
    ],
)
async def test_efforts_reach_the_wire(
    pool: Pool, rehearse: Any, *, model: str, effort: Any, thinking: Any, config: Any
) -> None:
    """Each kind of model is asked in the form that its endpoint says it takes, and the endpoint takes it (spec A19)."""
    own = {
        "between": {"thinking": ["adaptive", "between_tools"]},
        "short": {"like": "claude-haiku-4-5", "max_tokens": 4000},
    }
    server = rehearse({**STEPS, "models": own})
    agent = AgentOrder(model=model, base_url=server.url, effort=effort)
    await pool.learn(agent)
    assert (await pool.call(agent, model, ASKED, parameters(agent))).stop_reason == "end_turn"
    sent = server.requests[0].body
    assert (sent.get("thinking"), sent.get("output_config")) == (thinking, config)
    assert sent["max_tokens"] == card_of(agent).output


async def test_an_endpoint_is_asked_once(pool: Pool, rehearse: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process learns of the agent's model and of its background one, and then knows."""
    server = rehearse({**STEPS, "models": {"own": {"max_input_tokens": 5000}, "cheap": {"max_tokens": 900}}})
    agent = AgentOrder(model="own", background="cheap", base_url=server.url)
    await pool.learn(agent)
    assert (card_of(agent).window, card_of(agent, "cheap").output) == (5000, 900)
    client, _ = await pool._open(agent)

    async def describe(_: str) -> None:
        pytest.fail("asked again")

    monkeypatch.setattr(client, "describe", describe)
    await pool.learn(agent)


@pytest.mark.parametrize("wrong", ["key", "model", "nobody"])
async def test_what_cannot_be_asked_is_as_the_table_has_it(
    pool: Pool, rehearse: Any, monkeypatch: pytest.MonkeyPatch, wrong: str
) -> None:
    """Trouble is left to the call, which says what it is; the next unit asks again."""
    server = rehearse(STEPS)
    if wrong == "key":
        monkeypatch.delenv("ANTHROPIC_API_KEY")
    name = "claude-nobody" if wrong == "model" else "claude-haiku-4-5"
    url = "http://127.0.0.1:1" if wrong == "nobody" else server.url
    agent = AgentOrder(model=name, base_url=url)
    await pool.learn(agent)
    assert not is_learned(agent, name)
    assert card_of(agent) == card(name)


async def test_units_that_start_together_share_a_client(pool: Pool, rehearse: Any, tmp_path: Any) -> None:
    """The key's command runs once for all of them, and another endpoint has a client and a door of its own."""
    server = rehearse(STEPS)
    count = tmp_path / "count"
    agent = AgentOrder(
        model="claude-haiku-4-5", base_url=server.url, key_command=f"echo x >> {count}; sleep 0.1; echo rehearsal"
    )
    await asyncio.gather(*(pool.call(agent, agent.model, ASKED, Parameters(100)) for _ in range(8)))
    assert count.read_text() == "x\n"
    _, patience = await pool._open(agent)
    _, other = await pool._open(agent.model_copy(update={"base_url": "http://127.0.0.1:1"}))
    patience.door.pause(10)
    assert other.paused_for == 0


async def test_headers_slow_everybody_down(pool: Pool, rehearse: Any) -> None:
    """An answer that says that nothing is left pauses whoever would ask next, until there is."""
    server = rehearse({**STEPS, "rate_limit": {"requests": 1, "per": 1.0}})
    agent = AgentOrder(model="claude-haiku-4-5", base_url=server.url)
    await pool.call(agent, agent.model, ASKED, Parameters(100))
    _, patience = await pool._open(agent)
    assert 0 < patience.paused_for <= 2
    await pool.call(agent, agent.model, ASKED, Parameters(100))
    assert [record.status for record in server.requests] == [200, 200]  # nobody ran into the limit


async def test_a_refused_key_is_no_reason_to_wait(pool: Pool, rehearse: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says what is wrong at once."""
    server = rehearse(STEPS)
    monkeypatch.setenv("ANTHROPIC_API_KEY", "wrong")
    agent = AgentOrder(model="claude-haiku-4-5", base_url=server.url)
    with pytest.raises(ModelError) as caught:
        await pool.call(agent, agent.model, ASKED, Parameters(100))
    assert caught.value.kind == "auth"
    assert len(server.requests) == 1
