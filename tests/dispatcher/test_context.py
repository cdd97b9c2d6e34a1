"""What every command needs first."""

import subprocess

import pytest

from dispatcher.context import Context
from dispatcher.errors import ConfigError


@pytest.fixture
def inside(tmp_path, monkeypatch):
    """A working directory in a repository with a config of its own."""
    root = tmp_path / "repository"
    (root / ".overnight").mkdir(parents=True)
    (root / ".overnight" / "config.toml").write_text('[engine]\nbroker = "redis://configured:6379/0"\nbeat = 2\n')
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")
    monkeypatch.setenv("OVERNIGHT_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("OVERNIGHT_BROKER", raising=False)
    monkeypatch.chdir(root)
    subprocess.run(["git", "init", "--quiet", str(root)], check=True)
    as_somebody = ["git", "-c", "user.name=t", "-c", "user.email=t@localhost"]
    subprocess.run([*as_somebody, "commit", "--quiet", "--allow-empty", "--message", "start"], cwd=root, check=True)
    return root


def test_the_broker_comes_from_the_config(inside):
    """Without the variable the config's broker is in force."""
    assert Context.here().config.engine.broker == "redis://configured:6379/0"


def test_the_environment_wins_over_the_configured_broker(inside, monkeypatch):
    """OVERNIGHT_BROKER is in force where it is set, and changes nothing else: a password has no place in the file."""
    monkeypatch.setenv("OVERNIGHT_BROKER", "redis://:secret@elsewhere:6379/0")
    engine = Context.here().config.engine
    assert (engine.broker, engine.beat) == ("redis://:secret@elsewhere:6379/0", 2.0)


def test_a_broker_that_is_none_is_named_without_its_value(inside, monkeypatch):
    """A variable that names no Redis is bad input; the message names the variable, never the password in it."""
    monkeypatch.setenv("OVERNIGHT_BROKER", "amqp://:secret@elsewhere")
    with pytest.raises(ConfigError) as raised:
        Context.here()
    assert "OVERNIGHT_BROKER" in str(raised.value)
    assert "secret" not in str(raised.value)
