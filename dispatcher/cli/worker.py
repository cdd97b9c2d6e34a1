"""`overnight worker`: a Celery worker on a broker of your own, for `[engine] broker`."""

import os
import sys

import click

from dispatcher.context import Context
from dispatcher.engine import worker_command
from dispatcher.errors import ConfigError
from workers import app as worker_app

__all__ = ["command"]


@click.command("worker")
@click.option("-j", "--slots", type=click.IntRange(1, 512), default=4, show_default=True, metavar="SLOTS")
@click.option("--name", default="worker", show_default=True, help="The worker's name before the @.")
def command(slots: int, name: str) -> None:
    """Serve units from the broker in the config, with a checkout of this repository, until stopped."""
    here = Context.here()
    engine = here.config.engine
    if engine.broker is None:
        raise ConfigError(
            "a worker of its own needs [engine] broker, or OVERNIGHT_BROKER; without one `overnight run` starts its own"
        )
    here.home.make()
    env = {
        **os.environ,
        worker_app.BROKER: engine.broker,
        worker_app.HOME: str(here.home.root),
        worker_app.BEAT: str(engine.beat),
        worker_app.PATIENCE: str(engine.beat * engine.lost_after / 2),
    }
    sys.stdout.flush()
    argv = worker_command(f"{name}@%h", slots)
    os.execve(argv[0], argv, env)  # noqa: S606  # becomes the worker: signals reach it directly
