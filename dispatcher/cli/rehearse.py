"""`overnight rehearse`: serve a script by hand, so that a night can be rehearsed without a key."""

from pathlib import Path

import click

from workers.rehearsal import serve

__all__ = ["command"]


@click.command("rehearse")
@click.argument("script", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--host", default="127.0.0.1", show_default=True)
@click.option("--port", default=8765, show_default=True, type=click.IntRange(0, 65535))
def command(script: Path, host: str, port: int) -> None:
    """Play the model's part from SCRIPT until stopped."""
    serve(script, host, port, announce=click.echo)
