"""`overnight cost`: what was spent, from the session logs, beside what the journal has booked. It only looks."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from decimal import Decimal
from typing import Any

import click

from dispatcher.context import Context
from dispatcher.errors import BadInput
from dispatcher.shown.cost import BY, By, Call, Sum, calls_of_night, differences, grouped
from dispatcher.upkeep import remains
from dispatcher.upkeep.remains import Remains

__all__ = ["command"]

_HEADS = ("calls", "input", "cache read", "cache write", "output", "cost")


@click.command("cost")
@click.argument("unit", required=False)
@click.option("--by", type=click.Choice(list(BY)), default="unit", help="What each line sums up (default: unit).")
@click.option("--night", default="", metavar="NIGHT", help="An earlier night. `--by night` without it: all of them.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def command(unit: str | None, by: By, night: str, *, as_json: bool) -> None:
    """Show tokens and dollars of every model call, or of UNIT's, and whether the journal has booked the same."""
    here = Context.here()
    nights = [remains.gather(here.home, one) for one in _chosen(here, by, night)]
    calls = [call for one in nights for call in calls_of_night(one, unit)]
    if unit is not None and not calls and not any(unit in one.ledger.units for one in nights):
        here.known(unit)
    faults = [f"{fault.path}: {fault.what}" for one in nights for fault in one.faults]
    found = [line for one in nights for line in differences(one, unit)]
    booked = sum((_booked(one, unit) for one in nights), Decimal(0))
    show = _as_json if as_json else _as_text
    click.echo(show(grouped(calls, by), _total(calls), booked, [*found, *faults]))


def _chosen(here: Context, by: By, night: str) -> list[str]:
    """Return the nights to look at. Raises BadInput for one that is not there."""
    if night and not here.home.is_night(night):
        there = ", ".join(here.home.all_nights()) or "none"
        raise BadInput(f"there is no night {night!r}; there are: {there}", field="--night")
    if by == "night" and not night:
        return here.home.all_nights()
    chosen = night or here.state.night
    return [chosen] if chosen else []


def _booked(night: Remains, unit: str | None) -> Decimal:
    units = night.ledger.units
    return sum((facts.cost for name, facts in units.items() if unit in (None, name)), Decimal(0))


def _total(calls: Sequence[Call]) -> Sum:
    total = Sum()
    for call in calls:
        total = total.plus(call)
    return total


def _as_json(sums: Mapping[str, Sum], total: Sum, booked: Decimal, found: Sequence[str]) -> str:
    rows = {name: _plain(one) for name, one in sums.items()}
    facts = {"rows": rows, "total": _plain(total), "booked": str(booked), "differences": list(found)}
    return json.dumps(facts)


def _plain(one: Sum) -> dict[str, Any]:
    return {**asdict(one), "cost": str(one.cost)}


def _as_text(sums: Mapping[str, Sum], total: Sum, booked: Decimal, found: Sequence[str]) -> str:
    if not sums and not booked:
        return "nothing was spent yet"
    rows = [("", *_HEADS), *(_row(name, one) for name, one in sums.items()), _row("total", total)]
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    lines = [
        "  ".join(_aligned(cell, width, at) for at, (cell, width) in enumerate(zip(row, widths, strict=True)))
        for row in rows
    ]
    if total.unpriced:
        lines.append(f"the price of {total.unpriced} calls is unknown: they are not in the dollars; see [model] price")
    if not found:
        return "\n".join([*lines, f"the journal has booked ${booked:.4f}: the same"])
    return "\n".join([*lines, f"the journal has booked ${booked:.4f}; not the same:", *(f"  {line}" for line in found)])


def _row(name: str, one: Sum) -> tuple[str, ...]:
    tokens = (one.calls, one.input, one.cache_read, one.cache_write, one.output)
    known = f"${one.cost:.4f}" if one.unpriced < one.calls or not one.calls else "unknown"
    cost = f"{known} + unknown" if 0 < one.unpriced < one.calls else known
    return (name, *(f"{number:,}" for number in tokens), cost)


def _aligned(cell: str, width: int, at: int) -> str:
    return cell.ljust(width) if at == 0 else cell.rjust(width)
