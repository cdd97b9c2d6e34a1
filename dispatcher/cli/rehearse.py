"""`overnight rehearse`: serve a script by hand, so that a night can be rehearsed without a key."""

from pathlib import Path

import click

from dispatcher.errors import BadInput
from workers.rehearsal import RehearsalError, serve

__all__ = ["command"]


@click.command("rehearse")
@click.argument("script", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option("--port", default=8765, show_default=True, type=click.IntRange(0, 65535), help="0: any free one.")
def command(script: Path, host: str, port: int) -> None:
    """Play the model's part from SCRIPT, a YAML file, until Ctrl-C."""
    try:
        click.echo(serve(script, host, port, announce=click.echo))
    except RehearsalError as error:
        raise BadInput(str(error)) from error
