"""What an order says of a unit: config and unit file joined. Pure."""

from collections.abc import Iterable, Mapping
from decimal import Decimal
from pathlib import Path

from dispatcher.config import Config
from dispatcher.decide import HandOut
from dispatcher.errors import UnitFileError
from dispatcher.ledger import UnitFacts
from dispatcher.units import UNITS_PATH, UnitFile, digest
from workers.model.catalog import card
from workers.orders import AgentOrder, Price, UnitOrder, VerifyOrder

__all__ = ["agent_of", "base_of", "digest_of", "order_of", "verify_of"]

_CACHE_WRITE = Decimal("1.25")  # of the input price, for five minutes (facts: caching and cost)


def verify_of(unit: UnitFile, config: Config) -> str:
    """Return the verify command in force. Raises UnitFileError for a unit without any."""
    command = unit.verify or config.verify.run
    if command is None:
        raise UnitFileError(
            "the unit has no verify, so nothing could make it pass; add `verify: …`, or [verify] run to the config",
            path=UNITS_PATH / f"{unit.id}.md",
            field="verify",
        )
    return command


def digest_of(unit: UnitFile, config: Config) -> str:
    """Return the digest that a verdict on this unit stands under (rule 17)."""
    return digest(unit, verify_of(unit, config), config.verify.protect)


def agent_of(config: Config, unit: UnitFile | None = None) -> AgentOrder:
    """Return which model works, and how hard."""
    model = config.model
    price = card(model.name).price
    if model.price is not None:
        given = model.price
        price = Price(
            input=given.input,
            output=given.output,
            cache_read=given.input if given.cache_read is None else given.cache_read,
            cache_write=given.input * _CACHE_WRITE if given.cache_write_5m is None else given.cache_write_5m,
        )
    return AgentOrder(
        model=model.name,
        base_url=model.base_url,
        key_command=model.key_command,
        effort=(unit.effort if unit is not None else None) or model.effort,
        max_output_tokens=model.max_output_tokens,
        price=price,
    )


def base_of(hand_out: HandOut, facts: UnitFacts) -> str | None:
    """Return the commit that the hand-out's attempt is bound to: its own, or its fork's; None: the tip as it is now."""
    if hand_out.attempt == facts.attempt:
        return facts.base
    return None if facts.fork is None else facts.bases[facts.fork.attempt]


def order_of(
    unit: UnitFile,
    hand_out: HandOut,
    facts: UnitFacts,
    config: Config,
    *,
    night: str,
    base: str,
    run_id: str,
    repository: Path,
    home: Path,
) -> UnitOrder:
    """Return the order for a hand-out; `base` is what `base_of` says, else the merged branch's tip."""
    resumed = facts.costs.get(hand_out.attempt, Decimal(0))
    return UnitOrder(
        night=night,
        unit=unit.id,
        attempt=hand_out.attempt,
        epoch=hand_out.epoch,
        run_id=run_id,
        goal=unit.goal,
        base=base,
        digest=digest_of(unit, config),
        repository=str(repository),
        home=str(home),
        agent=agent_of(config, unit),
        verify=VerifyOrder(
            run=verify_of(unit, config),
            timeout=config.verify.timeout,
            setup=config.setup.run,
            setup_timeout=config.setup.timeout,
            protect=config.verify.protect,
            may_edit=unit.may_edit,
        ),
        rounds=unit.limits.rounds or config.limits.rounds,
        budget=None if hand_out.reserve is None else hand_out.reserve + resumed,
        seconds=(unit.limits.minutes or config.limits.minutes) * 60,
        fence=config.engine.fence,
        notes=tuple(facts.notes),
        answers=facts.answers if hand_out.attempt == facts.attempt else (),
        fork=facts.forked if hand_out.attempt == facts.attempt else facts.fork,
    )


def distinct_verifies(units: Iterable[UnitFile], config: Config) -> Mapping[str, list[str]]:
    """Return each distinct verify command with the units that it decides, in the order of the units."""
    found: dict[str, list[str]] = {}
    for unit in units:
        found.setdefault(verify_of(unit, config), []).append(unit.id)
    return found
