"""The folder of a demonstration: a copy of the project under git, a home of its own, and the `overnight` command in it.

Nothing of the person who looks on gets in: no key, no git configuration, no proxy, no home.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import as_file, files
from pathlib import Path
from typing import Self

from dispatcher.errors import EngineError
from dispatcher.home import Home
from dispatcher.opening import STATE_PATH

__all__ = ["Stage", "script_file"]

_GIT = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1", "GIT_TERMINAL_PROMPT": "0"}
_OURS = ("ANTHROPIC_", "OVERNIGHT_", "GIT_", "CELERY_")
_PROXIES = frozenset({"http_proxy", "https_proxy", "all_proxy", "no_proxy"})
_COMMAND_SECONDS = 60.0
_TEMPLATE = "-tpl"


@dataclass(frozen=True)
class Stage:
    """One demonstration's places. `environment` is what every command in it runs under."""

    root: Path
    environment: Mapping[str, str]

    @classmethod
    def build(cls, root: Path, *, url: str, key: str) -> Self:
        """Copy the project to `root` and commit it; the model is at `url`. Raises EngineError."""
        stage = cls(root, _environment(root / "home", url, key))
        with as_file(files("dispatcher.demo") / "project") as project:
            shutil.copytree(project, stage.repository, copy_function=_copy)
        stage.git("init", "--quiet", "--initial-branch", "main")
        for name, value in {"user.name": "Demo", "user.email": "demo@localhost", "commit.gpgSign": "false"}.items():
            stage.git("config", name, value)
        stage.git("add", "--all")
        stage.git("commit", "--quiet", "--message", "A till, half written")
        return stage

    @property
    def repository(self) -> Path:
        """The project under git."""
        return self.root / "till"

    @property
    def home(self) -> Home:
        """Where the night keeps its sessions and its journal."""
        return Home.for_repository(self.repository / ".git", self.environment, self.repository)

    @property
    def state_text(self) -> str:
        """The state file as it is now."""
        return (self.repository / STATE_PATH).read_text(encoding="utf-8")

    def git(self, *arguments: str) -> str:
        """Return what a git command in the project prints. Raises EngineError."""
        return _output(["git", *arguments], self.repository, self.environment)

    def overnight(self, *arguments: str) -> str:
        """Return what an `overnight` command in the project prints. Raises EngineError when it fails."""
        return _output(command(*arguments), self.repository, self.environment)

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Start an `overnight` command that dies with this process; its output, errors included, is a pipe."""
        setpriv = shutil.which("setpriv", path=self.environment["PATH"])
        if setpriv is None:
            raise EngineError("`setpriv` is missing; install util-linux", component="demo")
        return subprocess.Popen(
            [setpriv, "--pdeathsig", "KILL", *command(*arguments)],
            cwd=self.repository,
            env=dict(self.environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )


def command(*arguments: str) -> list[str]:
    """Return the command line of `overnight` with these arguments, wherever it is installed."""
    return [sys.executable, "-P", "-m", "dispatcher.cli", *arguments]


def script_file() -> Path:
    """Return the script of the model's part."""
    with as_file(files("dispatcher.demo") / "script.yaml") as path:
        return path


def _copy(source: str, target: str) -> None:
    """Copy a file; Python sources wait under another ending, so that nobody lints, types or collects them here."""
    shutil.copyfile(source, target.removesuffix(_TEMPLATE))


def _environment(home: Path, url: str, key: str) -> dict[str, str]:
    mine = {
        name: value for name, value in os.environ.items() if not name.startswith(_OURS) and name.lower() not in _PROXIES
    }
    return {
        **mine,
        **_GIT,
        "PATH": os.environ.get("PATH", os.defpath),
        "OVERNIGHT_HOME": str(home),
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_API_KEY": key,
        "NO_COLOR": "1",
        "PYTHONUNBUFFERED": "1",
    }


def _output(argv: list[str], cwd: Path, environment: Mapping[str, str]) -> str:
    try:
        done = subprocess.run(
            argv,
            cwd=cwd,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_COMMAND_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EngineError(f"`{' '.join(argv)}` could not be run: {error}", component="demo") from error
    if done.returncode:
        said = (done.stderr or done.stdout).strip()
        message = f"`{' '.join(argv)}` ended with exit code {done.returncode}: {said}"
        raise EngineError(message, component="demo")
    return done.stdout
