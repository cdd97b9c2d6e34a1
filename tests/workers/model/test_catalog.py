"""What is known of models without asking: prices to the cent, unknown ones said so, thinking in each one's form."""

from datetime import date
from decimal import Decimal
from typing import Any

import pytest

from workers.model.catalog import Card, card, card_of, cost, described, learn, parameters, price_of, prices_as_of
from workers.orders import AgentOrder, LongPrompt, Price
from workers.rehearsal import Script
from workers.rehearsal.models import model_info
from workers.session.events import Usage

USAGE = Usage(input_tokens=1_234, output_tokens=567, cache_creation_input_tokens=8_900, cache_read_input_tokens=123_456)


@pytest.mark.parametrize(
    ("model", "dollars"),
    [
        # Worked out by hand: 1,234 in + 567 out + 8,900 written + 123,456 read, per million.
        ("claude-sonnet-5-5", "0.0427336"),  # 0.002468 + 0.00567 + 0.02225 + 0.0123456
        ("claude-opus-5-5", "0.0854672"),  # 0.004936 + 0.01134 + 0.0445 + 0.0246912
        ("claude-haiku-4-5", "0.0275396"),  # 0.001234 + 0.002835 + 0.011125 + 0.0123456
        ("claude-fable-5-1", "0.182804"),  # 0.01234 + 0.02835 + 0.11125 + 0.030864
    ],
)
def test_cost(model: str, dollars: str) -> None:
    """A call costs what a person works out from the price list, exactly."""
    assert cost(card(model).price, USAGE) == Decimal(dollars)


@pytest.mark.parametrize(
    ("read", "dollars"),
    [
        # 1,000 in + 2,000 out + 9,000 written + the rest read: 100,000 tokens of prompt, and one more.
        (90_000, "0.003125"),  # 0.0001 + 0.001 + 0.001125 + 0.0009
        (90_001, "0.01562505"),  # 0.0005 + 0.005 + 0.005625 + 0.00450005
    ],
)
def test_a_long_prompt_costs_more(read: int, dollars: str) -> None:
    """Above the tier every token of the call has the higher price, also what it answers and what comes from cache."""
    usage = Usage(
        input_tokens=1_000, output_tokens=2_000, cache_creation_input_tokens=9_000, cache_read_input_tokens=read
    )
    assert cost(card("claude-haiku-5-5").price, usage) == Decimal(dollars)


class HourUsage(Usage):
    """Usage that tells writes for an hour apart."""

    cache_creation_1h_input_tokens: int = 0


def test_writes_for_an_hour() -> None:
    """They have their own price; where it is not told, twice the input price."""
    usage: Any = HourUsage(cache_creation_input_tokens=1_000_000, cache_creation_1h_input_tokens=400_000)
    price = card("claude-sonnet-5-5").price
    assert price is not None
    assert cost(price, usage) == Decimal("3.10")  # 600,000 at 2.50 + 400,000 at 4
    assert cost(price.model_copy(update={"cache_write_1h": Decimal(10)}), usage) == Decimal("5.50")
    assert cost(price.model_copy(update={"cache_write_1h": None}), usage) == Decimal("3.10")


def test_an_order_carries_the_tier() -> None:
    """What goes to a worker prices a call as here."""
    price = card("claude-haiku-5-5").price
    assert price is not None
    assert Price.model_validate_json(price.model_dump_json()) == price
    assert isinstance(price.above, LongPrompt)


def test_a_stranger_has_no_price() -> None:
    """A model that the table does not have costs None, which is not nothing."""
    assert card("somebody-else").price is None
    assert cost(None, USAGE) is None
    assert cost(card("claude-sonnet-5-5").price, Usage()) == 0


def test_the_users_price_comes_first() -> None:
    """A price in the order is in force, also for a model that the table has."""
    own = Price(input=Decimal(1), output=Decimal(2), cache_read=Decimal(3), cache_write=Decimal(4))
    assert price_of(AgentOrder(model="claude-sonnet-5-5", price=own)) == own
    assert price_of(AgentOrder(model="claude-sonnet-5-5")) == card("claude-sonnet-5-5").price
    assert price_of(AgentOrder(model="somebody-else")) is None


def test_a_background_model_has_a_price_of_its_own() -> None:
    """The agent's price is not that of another model."""
    own = Price(input=Decimal(1), output=Decimal(2), cache_read=Decimal(3), cache_write=Decimal(4))
    agent = AgentOrder(model="claude-sonnet-5-5", price=own, background="claude-haiku-4-5")
    assert price_of(agent, "claude-haiku-4-5") == card("claude-haiku-4-5").price
    assert price_of(agent.model_copy(update={"background_price": own}), "claude-haiku-4-5") == own
    assert price_of(agent.model_copy(update={"background": "x"}), "x") is None


@pytest.mark.parametrize(
    ("name", "known", "priced"),
    [
        ("claude-haiku-4-5", True, True),
        ("claude-haiku-4-5-20251001", True, True),
        ("anthropic.claude-haiku-4-5", True, False),
        ("eu.anthropic.claude-haiku-4-5-20251001-v1:0", True, False),
        ("claude-haiku-4-5@20251001", True, False),
        ("claude-haiku-4-6", False, False),
        ("my-claude-haiku-4-5", False, False),
    ],
)
def test_other_names_of_a_model(name: str, known: bool, priced: bool) -> None:
    """A snapshot is the model itself; a cloud's name has its limits, but no price that we know."""
    found = card(name)
    assert (found.window == 200_000 and found.output == 64_000) is known
    assert (found.price is not None) is priced


def test_a_clouds_price_is_unknown() -> None:
    """The clouds' prices differ by region, also where the name is the vendor's."""
    assert price_of(AgentOrder(model="claude-haiku-5-5", provider="vertex")) is None
    assert price_of(AgentOrder(model="claude-fable-5-2")) is None
    assert card("claude-fable-5-2").window == 1_000_000


def test_the_table_has_a_date() -> None:
    """Prices change: the table says of which day it is."""
    date.fromisoformat(prices_as_of())


@pytest.mark.parametrize(
    ("model", "effort", "max_tokens", "thinking", "config"),
    [
        ("claude-sonnet-5-5", "off", 128_000, {"type": "between_tools"}, None),
        ("claude-sonnet-5-5", "low", 128_000, {"type": "adaptive"}, {"effort": "low"}),
        ("claude-haiku-5-5", "off", 128_000, {"type": "disabled"}, None),
        ("claude-opus-5-5", "off", 128_000, {"type": "adaptive"}, {"effort": "low"}),
        ("claude-opus-5-5", "high", 128_000, {"type": "adaptive"}, {"effort": "high"}),
        ("claude-haiku-4-5", "off", 64_000, None, None),
        ("claude-haiku-4-5", "low", 64_000, {"type": "enabled", "budget_tokens": 1_024}, None),
        ("claude-haiku-4-5", "medium", 64_000, {"type": "enabled", "budget_tokens": 4_096}, None),
        ("claude-haiku-4-5", "high", 64_000, {"type": "enabled", "budget_tokens": 16_384}, None),
        ("somebody-else", "high", 32_000, None, None),
    ],
)
def test_parameters(model: str, effort: Any, max_tokens: int, thinking: Any, config: Any) -> None:
    """Each model gets the whole of its output, and the effort in the form that it takes (spec A19, A20)."""
    found = parameters(AgentOrder(model=model, effort=effort))
    assert (found.max_tokens, found.thinking, found.output_config) == (max_tokens, thinking, config)
    other = AgentOrder(model=model, effort="low" if effort != "low" else "high")
    assert parameters(other, effort=effort) == found  # a call's own effort comes before the agent's


@pytest.mark.parametrize(
    ("asked", "room", "budget"), [(8_000, 8_000, 4_000), (999_999, 64_000, 16_384), (2_000, 2_000, None)]
)
def test_thinking_leaves_room_for_the_answer(asked: int, room: int, budget: int | None) -> None:
    """A smaller output limit is kept, a larger one is the model's; thinking never takes more than half of it."""
    found = parameters(AgentOrder(model="claude-haiku-4-5", effort="high", max_output_tokens=asked))
    assert found.max_tokens == room
    assert (found.thinking or {}).get("budget_tokens") == budget


@pytest.mark.parametrize(
    ("efforts", "wanted", "sent"),
    [
        (("low", "medium", "high"), "medium", "medium"),
        (("low", "high"), "medium", "low"),
        (("high", "max"), "low", "high"),
        (("high", "max"), "off", "high"),
        ((), "medium", None),
    ],
)
def test_an_effort_that_is_not_offered(efforts: tuple[str, ...], wanted: Any, sent: str | None) -> None:
    """The nearest one below is taken, else the lowest that there is; none where the model has no levels."""
    found = parameters(AgentOrder(model="m", effort=wanted), Card(1000, 1000, frozenset({"adaptive"}), efforts))
    assert found.thinking == {"type": "adaptive"}
    assert found.output_config == (None if sent is None else {"effort": sent})


KINDS = {
    "claude-haiku-4-5": (frozenset({"enabled", "disabled"}), ()),
    "rehearsal-plain": (frozenset({"disabled"}), ()),
    "rehearsal-always": (frozenset({"adaptive"}), ("low", "medium", "high", "xhigh", "max")),
    "own": (frozenset({"adaptive", "between_tools"}), ("low", "high")),
}


@pytest.mark.parametrize("name", KINDS)
def test_an_endpoints_description(name: str) -> None:
    """Limits, forms and levels are read as the API tells them; prices, which it does not tell, stay."""
    own = {"models": {"own": {"thinking": ["adaptive", "between_tools"], "efforts": ["low", "high"]}}}
    model = Script.parse({"units": {}, **own}).model_table()[name]
    found = described(model_info(model), card("claude-sonnet-5-5"))
    assert (found.thinking, found.efforts) == KINDS[name]
    assert (found.window, found.output) == (model.max_input_tokens, model.max_tokens)
    assert found.price == card("claude-sonnet-5-5").price


@pytest.mark.parametrize(
    "raw",
    [
        {},
        {"capabilities": None, "max_tokens": None, "max_input_tokens": 0},
        {"capabilities": ["x"], "max_tokens": "many"},
    ],
)
def test_a_description_that_says_nothing(raw: Any) -> None:
    """Whatever is missing or strange is as it was known before."""
    assert described(raw, card("claude-opus-5-5")) == card("claude-opus-5-5")


def test_told_before_learned_before_the_table() -> None:
    """A person's word wins, then the endpoint's, then the table; another endpoint's is not heard."""
    here = AgentOrder(model="claude-haiku-4-5", base_url="http://here", background="claude-opus-5-5")
    learned = Card(5_000, 4_000, frozenset({"adaptive"}), ("low",))
    learn(here, "claude-haiku-4-5", learned)
    assert card_of(here) == learned
    assert card_of(here, "claude-opus-5-5") == card("claude-opus-5-5")
    assert card_of(here.model_copy(update={"base_url": "http://there"})) == card("claude-haiku-4-5")
    told = card_of(here.model_copy(update={"window": 9_000, "thinking": "budget"}))
    assert (told.window, told.output, told.thinking) == (9_000, 4_000, frozenset({"enabled", "disabled"}))
    assert not card_of(here.model_copy(update={"thinking": "none"})).thinks
