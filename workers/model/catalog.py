"""What is known of each model: limits, the forms of thinking it takes, and dated prices; and what follows for a call.

The endpoint's own word comes before the table's, and a person's (config) before both. Prices come from the table or
from a person alone: no endpoint tells them, and a price that nobody told is unknown, never guessed.
"""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cache
from importlib.resources import files
from typing import Any

from workers.orders import AgentOrder, Price
from workers.session.events import Usage

__all__ = [
    "Card",
    "Parameters",
    "card",
    "card_of",
    "cost",
    "described",
    "is_learned",
    "learn",
    "parameters",
    "price_of",
    "prices_as_of",
]

_MILLION = Decimal(1_000_000)
# Thinking tokens a call on models that take budgets (spec A19), and the least that the API takes for one.
_BUDGETS = {"off": 0, "low": 1_024, "medium": 4_096, "high": 16_384}
_LEAST_BUDGET = 1_024
_LEVELS = ("low", "medium", "high", "xhigh", "max")
# How a person names a form of thinking in the config, and what that means here.
_TOLD = {
    "adaptive": (frozenset({"adaptive"}), _LEVELS[:3]),
    "budget": (frozenset({"enabled", "disabled"}), ()),
    "none": (frozenset[str](), ()),
}
# The clouds' names of a model: `eu.anthropic.claude-haiku-4-5-20251001-v1:0`, `claude-haiku-4-5@20251001`.
_CLOUD_NAME = re.compile(r"^(?:[a-z-]+\.)?(?:anthropic\.)?(claude-[a-z0-9-]+?)(?:[-@]\d{8})?(?:-v\d+(?::\d+)?)?$")
_SNAPSHOT = re.compile(r"-\d{8}$")


@dataclass(frozen=True, slots=True)
class Card:
    """What a model takes. `window` and `output` in tokens; `thinking` the forms that the API names so (spec A19)."""

    window: int
    output: int
    thinking: frozenset[str] = frozenset()
    efforts: tuple[str, ...] = ()
    price: Price | None = None

    @property
    def thinks(self) -> bool:
        """Whether the model can be asked to think."""
        return bool(self.thinking & {"adaptive", "enabled"})


_STRANGER = Card(window=200_000, output=32_000)


@cache
def _table() -> dict[str, Any]:
    return tomllib.loads(files("workers.model").joinpath("models.toml").read_text("utf-8"))


def prices_as_of() -> str:
    """Return the day on which the price table was read, ISO 8601."""
    return str(_table()["as_of"])


@cache
def card(model: str) -> Card:
    """Return what the table knows of a model; for a stranger modest limits, no thinking and no price.

    A cloud's name of a known model has its limits but no price: the clouds' own prices differ by region.
    """
    plain = _SNAPSHOT.sub("", model)
    found = _CLOUD_NAME.match(model)
    row = _table()["models"].get(plain) or _table()["models"].get(found[1] if found else "")
    if row is None:
        return _STRANGER
    price = Price.model_validate(row["price"]) if "price" in row and plain in _table()["models"] else None
    return Card(row["window"], row["output"], frozenset(row["thinking"]), tuple(row["efforts"]), price)


def described(raw: Mapping[str, Any], known: Card) -> Card:
    """Return a model as its endpoint describes it (`GET /v1/models/{id}`); what it leaves out is as known before."""
    capabilities = raw.get("capabilities")
    thinking, efforts = known.thinking, known.efforts
    if isinstance(capabilities, Mapping):
        thinking = frozenset(_supported(_part(capabilities, "thinking", "types")))
        offered = _supported(_part(capabilities, "effort"))
        efforts = tuple(level for level in _LEVELS if level in offered)
    window, output = (raw.get(name) for name in ("max_input_tokens", "max_tokens"))
    return replace(
        known,
        window=window if isinstance(window, int) and window > 0 else known.window,
        output=output if isinstance(output, int) and output > 0 else known.output,
        thinking=thinking,
        efforts=efforts,
    )


def _part(of: Mapping[str, Any], *path: str) -> Mapping[str, Any]:
    for name in path:
        found = of.get(name)
        of = found if isinstance(found, Mapping) else {}
    return of


def _supported(of: Mapping[str, Any]) -> list[str]:
    return [name for name, said in of.items() if isinstance(said, Mapping) and said.get("supported") is True]


# What endpoints have told this process, by endpoint and model.
_learned: dict[tuple[str, str | None, str], Card] = {}


def learn(agent: AgentOrder, model: str, found: Card) -> None:
    """Remember for this process what the agent's endpoint says of a model."""
    _learned[agent.provider, agent.base_url, model] = found


def is_learned(agent: AgentOrder, model: str) -> bool:
    """Tell whether the agent's endpoint has been asked for the model in this process."""
    return (agent.provider, agent.base_url, model) in _learned


def card_of(agent: AgentOrder, model: str | None = None) -> Card:
    """Return what is in force for an agent's model, or for `model`: what was told, else learned, else the table's."""
    name = model or agent.model
    found = _learned.get((agent.provider, agent.base_url, name)) or card(name)
    if name != agent.model:
        return found
    thinking, efforts = (found.thinking, found.efforts) if agent.thinking is None else _TOLD[agent.thinking]
    return replace(found, window=agent.window or found.window, thinking=thinking, efforts=efforts)


def price_of(agent: AgentOrder, model: str | None = None) -> Price | None:
    """Return the price in force of an agent's model, or of its background one: the user's, else the table's, else None.

    The table has the vendor's own prices; those of the clouds differ, so they are unknown until somebody tells them.
    """
    name = model or agent.model
    told = agent.price if name == agent.model else agent.background_price if name == agent.background else None
    if told is not None:
        return told
    return card(name).price if agent.provider == "anthropic" else None


def cost(price: Price | None, usage: Usage) -> Decimal | None:
    """Return what a call cost in dollars, or None where the price is unknown.

    A long prompt makes the whole call dearer where the model has such a tier; writes for an hour count apart.
    """
    if price is None:
        return None
    prompt = usage.input_tokens + usage.cache_creation_input_tokens + usage.cache_read_input_tokens
    rates = price.above if price.above is not None and prompt > price.above.tokens else price
    hour = min(usage.cache_creation_1h_input_tokens, usage.cache_creation_input_tokens)
    total = (
        rates.input * usage.input_tokens
        + rates.output * usage.output_tokens
        + rates.cache_read * usage.cache_read_input_tokens
        + rates.cache_write * (usage.cache_creation_input_tokens - hour)
        + (2 * rates.input if rates.cache_write_1h is None else rates.cache_write_1h) * hour
    )
    return total / _MILLION


@dataclass(frozen=True, slots=True)
class Parameters:
    """What a call says beside its content."""

    max_tokens: int
    thinking: dict[str, Any] | None = None
    output_config: dict[str, Any] | None = None


def parameters(agent: AgentOrder, card: Card | None = None, effort: str | None = None) -> Parameters:
    """Return the parameters of a call: the model's whole output capacity, and the effort in the form that it takes.

    `effort` overrides the agent's (spec A19). Budgets are at most half of the output; "off" is the least that the model
    accepts.
    """
    known = card or card_of(agent)
    wanted = effort or agent.effort
    room = min(agent.max_output_tokens or known.output, known.output)
    if "adaptive" in known.thinking:
        return _adaptive(room, known, wanted)
    budget = min(_BUDGETS.get(wanted, _BUDGETS["high"]), room // 2)
    if "enabled" in known.thinking and budget >= _LEAST_BUDGET:
        return Parameters(room, {"type": "enabled", "budget_tokens": budget})
    return Parameters(room)  # unasked, these models do not think


def _adaptive(room: int, known: Card, wanted: str) -> Parameters:
    """Unasked, these models think, so "off" has to be said: some can be told to, some only to think least."""
    if wanted == "off":
        for form in ("disabled", "between_tools"):
            if form in known.thinking:
                return Parameters(room, {"type": form})
    level = _level(known.efforts, wanted)
    return Parameters(room, {"type": "adaptive"}, None if level is None else {"effort": level})


def _level(offered: tuple[str, ...], wanted: str) -> str | None:
    """Return the highest level that is offered and not above the wanted one, else the lowest that is offered."""
    most = _LEVELS.index(wanted) if wanted in _LEVELS else 0
    fitting = [level for level in _LEVELS[: most + 1] if level in offered]
    return fitting[-1] if fitting else next((level for level in _LEVELS if level in offered), None)
