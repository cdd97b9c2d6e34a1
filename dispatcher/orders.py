"""What an order says of a unit: config and unit file joined. Pure."""

from collections.abc import Iterable, Mapping
from decimal import Decimal
from pathlib import Path

from dispatcher import lessons
from dispatcher.config import Config, Prices
from dispatcher.decide import HandOut
from dispatcher.errors import UnitFileError
from dispatcher.ledger import UnitFacts
from dispatcher.units import UNITS_PATH, UnitFile, agent_of_attempt, digest
from workers.model.catalog import price_of
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
    agent = AgentOrder(
        name=config.agent.default,
        model=model.name,
        provider=model.provider,
        base_url=model.base_url,
        key_command=model.key_command,
        region=model.region,
        project=model.project,
        background=model.background,
        background_price=_told(model.background_price),
        window=model.window,
        thinking=model.thinking,
        effort=(unit.effort if unit is not None else None) or model.effort,
        effort_from="config" if unit is None or unit.effort is None else "unit",
        max_output_tokens=model.max_output_tokens,
        price=_told(model.price),
        policy=config.policy.rules(),
        compact_at=config.context.compact_at,
        context_cap=config.context.cap,
    )
    return agent.model_copy(update={"price": price_of(agent)})


def _told(given: Prices | None) -> Price | None:
    """Return a person's price; without a word on the cache its reads cost the input price: nothing is understated."""
    if given is None:
        return None
    return Price(
        input=given.input,
        output=given.output,
        cache_read=given.input if given.cache_read is None else given.cache_read,
        cache_write=given.input * _CACHE_WRITE if given.cache_write_5m is None else given.cache_write_5m,
        cache_write_1h=given.cache_write_1h,
    )


def _named(agent: AgentOrder, name: str | None) -> AgentOrder:
    return agent if name is None else agent.model_copy(update={"name": name})


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
        agent=_named(agent_of(config, unit), agent_of_attempt(unit, facts.failures + facts.conflicts)),
        verify=VerifyOrder(
            run=verify_of(unit, config),
            timeout=config.verify.timeout,
            setup=config.setup.run,
            setup_timeout=config.setup.timeout,
            protect=config.verify.protect,
            may_edit=unit.may_edit,
        ),
        rounds=hand_out.turns or unit.limits.rounds or config.limits.rounds,
        budget=None if hand_out.reserve is None else hand_out.reserve + resumed,
        budget_of=hand_out.bound,
        seconds=(unit.limits.minutes or config.limits.minutes) * 60,
        fence=config.engine.fence,
        notes=lessons.told(facts),
        answers=facts.answers if hand_out.attempt == facts.attempt else (),
        told=facts.told,
        attach=unit.attach,
        fork=facts.forked if hand_out.attempt == facts.attempt else facts.fork,
    )


def distinct_verifies(units: Iterable[UnitFile], config: Config) -> Mapping[str, list[str]]:
    """Return each distinct verify command with the units that it decides, in the order of the units."""
    found: dict[str, list[str]] = {}
    for unit in units:
        found.setdefault(verify_of(unit, config), []).append(unit.id)
    return found
