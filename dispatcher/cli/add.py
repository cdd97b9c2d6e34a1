"""`overnight add`: writes a unit file and nothing else; the next run, or the running one, adopts it into `open`."""

from pathlib import Path

import click
from pydantic import ValidationError

from dispatcher.archive import archived_units
from dispatcher.cli.ask import from_stdin
from dispatcher.context import Context
from dispatcher.errors import BadInput, UnitFileError
from dispatcher.orders import verify_of
from dispatcher.state import Bucket, is_unit_id
from dispatcher.units import UnitFile, check_graph, dump, parse, slug
from worktrees.files import create_atomic
from worktrees.process import syntax_fault

__all__ = ["command", "write_new"]


@click.command("add")
@click.argument("goal")
@click.option("--verify", metavar="CMD", help="The command that alone can make the unit pass (else [verify] run).")
@click.option("--id", "unit_id", metavar="ID", help="The unit's id (else made from the goal).")
@click.option("--after", multiple=True, metavar="ID", help="A unit that must pass first; may be given several times.")
@click.option("--may-edit", multiple=True, metavar="GLOB", help="A protected path that this unit may change.")
def command(
    goal: str, verify: str | None, unit_id: str | None, after: tuple[str, ...], may_edit: tuple[str, ...]
) -> None:
    """Write down a unit of work: GOAL in your own words ("-" reads it from standard input)."""
    here = Context.here()
    if goal == "-":
        goal = from_stdin()
    if not goal.strip():
        raise BadInput("there are no words to say what is to be done", field="GOAL")
    if not (verify or here.config.verify.run):
        message = "nothing could make the unit pass: give the command that decides, or set [verify] run in the config"
        raise BadInput(message, field="--verify")
    if verify is not None and not verify.strip():
        raise BadInput("is empty: give the command that decides", field="--verify")
    taken = {*here.units, *here.state.ids()}
    if unit_id is not None:
        _check_id(unit_id, taken - _without_file(here))
    try:
        wanted = UnitFile(id=unit_id or slug(goal, taken), goal=goal, verify=verify, after=after, may_edit=may_edit)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"])
        raise BadInput(first["msg"].removeprefix("Value error, "), field=field) from None
    unit = _checked(wanted, here)
    here.units_dir.mkdir(parents=True, exist_ok=True)
    path = here.units_dir / f"{unit.id}.md"
    write_new(path, unit)
    click.echo(f"{unit.id} → {here.state.bucket_of(unit.id) or Bucket.open}")


def _without_file(here: Context) -> set[str]:
    """Return the units that are listed and to be done, and have neither a file nor a goal: `add` gives them one."""
    to_do = {unit for bucket in Bucket if bucket is not Bucket.passed for unit in here.state.ids(bucket)}
    return to_do - here.units.keys() - here.state.typed_goals.keys()


def _check_id(unit_id: str, taken: set[str]) -> None:
    if not is_unit_id(unit_id):
        raise BadInput(
            f"{unit_id!r} cannot be a unit's id: use 1 to 60 of a-z, 0-9 and '-', the first no '-'", field="--id"
        )
    if unit_id in taken:
        raise BadInput(f"there is a unit {unit_id} already; choose another id", field="--id")


def _checked(unit: UnitFile, here: Context) -> UnitFile:
    """Read the unit back as the next run will: whatever is wrong with it is said now."""
    checked = parse(dump(unit), Path(f"{unit.id}.md"))
    fault = syntax_fault(verify_of(checked, here.config))
    if fault is not None:
        raise BadInput(f"bash cannot read this verify: {fault}", field="--verify" if unit.verify else "[verify] run")
    check_graph({**here.units, checked.id: checked}, archived_units(here.repository.root))
    return checked


def write_new(path: Path, unit: UnitFile) -> None:
    """Write a unit's file whole or not at all, never over one that somebody else made meanwhile."""
    try:
        create_atomic(path, dump(unit).encode())
    except FileExistsError:
        raise UnitFileError("is there already; choose another --id", path=path) from None
