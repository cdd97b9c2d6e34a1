"""Faults of a config or a unit file are said in words that help, not in those of the library that found them."""

from pathlib import Path

import pytest

from dispatcher import config, units
from dispatcher.errors import ConfigError, UnitFileError


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[limits]\nattempts = 0\n", "2: limits.attempts: is at least 1"),
        ("[limits]\nslots = 999\n", "2: limits.slots: is at most 512"),
        ('[limits]\nrounds = "5"\n', "2: limits.rounds: is a whole number, without quotes"),
        ('[policy]\nask = "bash"\n', '2: policy.ask: is a list, such as ["…", "…"]'),
        ('[policy]\ndeny = ["bsh: rm *"]\n', "2: policy.deny.0: there is no tool 'bsh'; did you mean 'bash'?"),
        ('verify = "pytest"\n', "1: verify: has keys of its own and is no single value"),
        ("[verify]\nrun = 5\n", "2: verify.run: is text, in quotes"),
        ('[verify]\nrun = ""\n', "2: verify.run: is empty"),
        ('[state]\ncommit = "yes"\n', "2: state.commit: is true or false, without quotes"),
        ('[model]\neffort = "huge"\n', "2: model.effort: is one of 'off', 'low', 'medium' or 'high'"),
        ("[model]\nprice = { input = 3 }\n", "2: model.price.output: is missing"),
    ],
)
def test_a_fault_of_the_config_is_said_in_plain_words(text: str, said: str) -> None:
    """Line, key, and what the value should be."""
    with pytest.raises(ConfigError) as found:
        config.parse(text, Path("config.toml"))
    assert str(found.value) == f"config.toml:{said}"


@pytest.mark.parametrize(
    ("front", "said"),
    [
        ("limits: 5", "u.md:2: limits: has keys of its own and is no single value"),
        ("limits: {rounds: 0}", "u.md:2: limits.rounds: is at least 1"),
        ("effort: huge", "u.md:2: effort: is one of 'off', 'low', 'medium' or 'high'"),
    ],
)
def test_a_fault_of_a_unit_file_is_said_in_plain_words(front: str, said: str) -> None:
    """The same words, for the same faults."""
    with pytest.raises(UnitFileError) as found:
        units.parse(f"---\n{front}\n---\n\nDo it.\n", Path("u.md"))
    assert str(found.value) == said


def test_a_rule_of_the_policy_may_use_claude_codes_names() -> None:
    """`Bash` would match nothing as it stands: it is read as `bash`, here as in an agent's file."""
    found = config.parse('[policy]\nask = ["Bash: git push*", "Write"]\ndeny = ["*"]\n')
    assert (found.policy.ask, found.policy.deny) == (("bash: git push*", "edit"), ("*",))
