"""`overnight import`: unit files from a prd.json or a feature_list.json."""
# ruff: noqa: N999 - each command's module has its name, and this one is a keyword

from pathlib import Path

import click

from dispatcher.archive import archived_units
from dispatcher.context import Context
from dispatcher.errors import BadInput
from dispatcher.orders import verify_of
from dispatcher.porting import Imported, read_list
from dispatcher.units import dump, parse
from worktrees.files import write_atomic

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
    for unit in found.units:
        if not dry_run:
            write_atomic(here.units_dir / f"{unit.id}.md", dump(unit).encode())
        click.echo(f"{unit.id} → open")
    for name in found.passed:
        click.echo(f"skipped, passes already: {name}")
    for what in found.left_out:
        click.echo(f"not carried over: {what}")


def _read(file: Path, here: Context, verify: str | None) -> Imported:
    """Read everything before anything is written: a file that cannot be used as a whole changes nothing."""
    taken = {*here.units, *here.state.ids(), *archived_units(here.repository.root)}
    try:
        found = read_list(file.read_text(encoding="utf-8-sig"), taken, verify)
    except BadInput as error:
        raise BadInput(error.message, path=file, line=error.line) from None
    except UnicodeDecodeError:
        raise BadInput("is not UTF-8; save it as UTF-8", path=file) from None
    for unit in found.units:
        verify_of(parse(dump(unit), Path(f"{unit.id}.md")), here.config)
    return found
