"""What is known of models without asking: prices to the cent, unknown ones said so, thinking in each one's form."""

from datetime import date
from decimal import Decimal
from typing import Any

import pytest

from workers.model.catalog import card, cost, parameters, price_of, prices_as_of
from workers.orders import AgentOrder, Price
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


def test_the_table_has_a_date() -> None:
    """Prices change: the table says of which day it is."""
    date.fromisoformat(prices_as_of())


@pytest.mark.parametrize(
    ("model", "effort", "max_tokens", "thinking", "config"),
    [
        ("claude-sonnet-5-5", "off", 128_000, {"type": "disabled"}, None),
        ("claude-sonnet-5-5", "low", 128_000, {"type": "adaptive"}, {"effort": "low"}),
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


@pytest.mark.parametrize(("asked", "room"), [(8_000, 8_000), (999_999, 64_000)])
def test_a_smaller_output(asked: int, room: int) -> None:
    """A smaller output limit is kept, a larger one is the model's; thinking never fills all of it."""
    found = parameters(AgentOrder(model="claude-haiku-4-5", effort="high", max_output_tokens=asked))
    assert found.max_tokens == room
    assert found.thinking is None or found.thinking["budget_tokens"] < room
