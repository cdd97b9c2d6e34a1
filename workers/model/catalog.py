"""What is known of each model without asking: limits, the form of thinking it takes, and dated prices."""

import tomllib
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from importlib.resources import files
from typing import Any, Literal

from workers.orders import AgentOrder, Price
from workers.session.events import Usage

__all__ = ["Card", "card", "cost", "parameters", "price_of", "prices_as_of"]

_MILLION = Decimal(1_000_000)
# Thinking tokens a call on models that take budgets (spec A19).
_BUDGETS = {"off": 0, "low": 1_024, "medium": 4_096, "high": 16_384}


@dataclass(frozen=True, slots=True)
class Card:
    """Limits in tokens. `thinking` None: not known, so nothing is asked for."""

    output: int
    thinking: Literal["adaptive", "budget", "none"]
    price: Price | None


_STRANGER = Card(output=32_000, thinking="none", price=None)


@cache
def _table() -> dict[str, Any]:
    return tomllib.loads(files("workers.model").joinpath("models.toml").read_text("utf-8"))


def prices_as_of() -> str:
    """Return the day on which the price table was read, ISO 8601."""
    return str(_table()["as_of"])


@cache
def card(model: str) -> Card:
    """Return what is known of a model; for a stranger modest limits, no thinking and no price."""
    row = _table()["models"].get(model)
    if row is None:
        return _STRANGER
    return Card(row["output"], row["thinking"], Price.model_validate(row["price"]))


def price_of(agent: AgentOrder) -> Price | None:
    """Return the price in force: the user's, else the table's, else None."""
    return agent.price or card(agent.model).price


def cost(price: Price | None, usage: Usage) -> Decimal | None:
    """Return what a call cost in dollars, or None where the price is unknown."""
    if price is None:
        return None
    total = (
        price.input * usage.input_tokens
        + price.output * usage.output_tokens
        + price.cache_read * usage.cache_read_input_tokens
        + price.cache_write * usage.cache_creation_input_tokens
    )
    return total / _MILLION


@dataclass(frozen=True, slots=True)
class Parameters:
    """What a call says beside its content."""

    max_tokens: int
    thinking: dict[str, Any] | None = None
    output_config: dict[str, Any] | None = None


def parameters(agent: AgentOrder) -> Parameters:
    """Return an agent's call parameters: the model's whole output capacity, and its effort in the model's form."""
    known = card(agent.model)
    room = min(agent.max_output_tokens or known.output, known.output)
    budget = _BUDGETS[agent.effort]
    if known.thinking == "budget" and 0 < budget < room:
        return Parameters(room, thinking={"type": "enabled", "budget_tokens": budget})
    if known.thinking == "adaptive" and agent.effort == "off":
        return Parameters(room, {"type": "disabled"})  # unasked, these models think
    if known.thinking == "adaptive":
        return Parameters(room, {"type": "adaptive"}, {"effort": agent.effort})
    return Parameters(room)
