"""`overnight import`: unit files from a prd.json or a feature_list.json."""
# ruff: noqa: N999 - each command's module has its name, and this one is a keyword

import os
import time
from pathlib import Path

import click

from dispatcher.archive import archived_units
from dispatcher.cli.add import write_new
from dispatcher.context import Context
from dispatcher.errors import BadInput
from dispatcher.orders import verify_of
from dispatcher.porting import Imported, read_list
from dispatcher.units import dump, parse

__all__ = ["command"]


@click.command("import")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--verify", metavar="CMD", help="The verify of items that name none (else [verify] run).")
@click.option("--dry-run", is_flag=True, help="Say what would be written, and write nothing.")
def command(file: Path, verify: str | None, *, dry_run: bool) -> None:
    """Write a unit file for each item of FILE (prd.json, feature_list.json) that has not passed yet."""
    here = Context.here()
    found = _read(file, here, verify)
    here.units_dir.mkdir(parents=True, exist_ok=True)
    began = time.time_ns()
    for place, unit in enumerate(found.units):
        if not dry_run:
            path = here.units_dir / f"{unit.id}.md"
            write_new(path, unit)
            os.utime(path, ns=(began + place, began + place))  # the queue's order, finer than a file system's clock
        was = f"  (there: {found.was[unit.id]})" if unit.id in found.was else ""
        click.echo(f"{unit.id} → open{was}")
    for unit_id in found.there:
        click.echo(f"skipped, is there already: {unit_id}")
    for name in found.passed:
        click.echo(f"skipped, passes already: {name}")
    for what in found.left_out:
        click.echo(f"not carried over: {what}")
    if not (found.units or found.there or found.passed):
        click.echo(f"{file} lists nothing to do; nothing was written")


def _read(file: Path, here: Context, verify: str | None) -> Imported:
    """Read everything before anything is written: a file that cannot be used as a whole changes nothing."""
    taken = {*here.units, *here.state.ids(), *archived_units(here.repository.root)}
    try:
        known = {unit.goal: unit.id for unit in here.units.values()}
        found = read_list(file.read_text(encoding="utf-8-sig"), taken, verify, known)
    except BadInput as error:
        raise BadInput(error.message, path=file, line=error.line) from None
    except UnicodeDecodeError:
        raise BadInput("is not UTF-8; save it as UTF-8", path=file) from None
    for unit in found.units:
        verify_of(parse(dump(unit), Path(f"{unit.id}.md")), here.config)
    return found
