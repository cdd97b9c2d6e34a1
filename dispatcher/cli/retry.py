"""`overnight retry`: put a unit back into `open`, with its attempts."""

import click

from dispatcher import dropbox
from dispatcher.cli.ask import request
from dispatcher.context import Context
from dispatcher.errors import BadInput
from dispatcher.state import Bucket

__all__ = ["command"]


@click.command("retry")
@click.argument("unit")
def command(unit: str) -> None:
    """Put UNIT back into `open`: a new attempt in a fresh context, with all its attempts again."""
    here = Context.here()
    if here.state.bucket_of(here.known(unit)) is Bucket.passed:
        raise BadInput(f"{unit} has passed, and what passed stays passed")
    request(here, dropbox.Retry(unit=unit))
