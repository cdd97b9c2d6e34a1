"""Where the model's key comes from: the SDK's own variables, or a command that prints it. No file of ours holds it."""

import importlib.util
import os
import subprocess

from workers.errors import ModelError
from workers.orders import AgentOrder

__all__ = ["read_key", "refuse_missing_extra"]

_KEY_SECONDS = 60.0
# What the SDK needs to sign requests for a cloud, unless it is given a token.
_EXTRAS = {"bedrock": ("boto3", "botocore"), "vertex": ("google.auth", "requests")}
_TOKENS = {"bedrock": "AWS_BEARER_TOKEN_BEDROCK"}


def read_key(agent: AgentOrder, *, seconds: float = _KEY_SECONDS) -> str | None:
    """Return the key that `key_command` prints, or None to let the SDK look in its own variables. Blocks.

    Raises ModelError of kind auth when there is none, or the command fails or takes longer than `seconds`.
    """
    if agent.key_command is not None:
        return _printed(agent.key_command, seconds)
    named = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN")
    if agent.provider == "anthropic" and not any(os.environ.get(name) for name in named):
        raise ModelError("auth", "no key for the model; set ANTHROPIC_API_KEY, or key_command under [model]")
    return None


def _printed(command: str, seconds: float) -> str:
    try:
        done = subprocess.run(  # noqa: S602  # the user's own command, from trusted configuration
            command,
            shell=True,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=seconds,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired as error:
        raise ModelError("auth", f"key_command gave no key within {seconds:g} s") from error
    key = done.stdout.strip()
    if done.returncode != 0 or not key:
        said = done.stderr.strip()[:200] or "it said nothing"
        raise ModelError("auth", f"key_command gave no key (exit {done.returncode}): {said}")
    return key


def refuse_missing_extra(provider: str, key: str | None) -> None:
    """Raise ModelError of kind auth when a cloud's own packages are missing and there is no token instead of them."""
    if key is not None or os.environ.get(_TOKENS.get(provider, "")):
        return
    missing = [name for name in _EXTRAS.get(provider, ()) if not _is_there(name)]
    if missing:
        raise ModelError(
            "auth",
            f"provider {provider!r} needs {' and '.join(missing)}, which is not installed: "
            f"`pip install 'overnight[{provider}]'`",
        )


def _is_there(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # the package that it would be in
        return False
