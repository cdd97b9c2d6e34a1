"""`overnight init`: a commented config and the folder for units."""

import click

from dispatcher.config import CONFIG_PATH, template
from dispatcher.context import Context
from worktrees.files import write_atomic

__all__ = ["command"]


@click.command("init")
def command() -> None:
    """Write .overnight/config.toml, commented, and make the folder for units. Changes nothing that is there."""
    here = Context.here()
    here.units_dir.mkdir(parents=True, exist_ok=True)
    path = here.repository.root / CONFIG_PATH
    if path.exists():
        click.echo(f"{CONFIG_PATH} is there already; nothing was changed")
        return
    write_atomic(path, template().encode())
    click.echo(f"wrote {CONFIG_PATH}: set [setup] and [verify], then `overnight add`")
