"""The config: defaults, strictness with help, durations and money, the template."""

import re
from datetime import time, timedelta
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatcher.config import (
    CONFIG_PATH,
    DEFAULT_PROTECT,
    Config,
    _paths,
    days,
    load,
    money,
    parse,
    rates,
    seconds,
    template,
)
from dispatcher.errors import ConfigError


def test_no_file_means_the_defaults(tmp_path: Path) -> None:
    """A repository without a config runs with the numbers of the design."""
    config = load(tmp_path)
    assert config == Config()
    assert (config.base, config.model.name, config.model.provider) == ("", "claude-sonnet-5-5", "anthropic")
    assert (config.limits.night, config.limits.unit) == (Decimal(50), Decimal(5))
    assert (config.limits.attempts, config.limits.rounds, config.limits.minutes) == (3, 5, 60)
    assert (config.engine.beat, config.engine.lost_after, config.engine.fence) == (1.0, 10, 5.0)
    assert config.verify.timeout == 900
    assert config.verify.protect == DEFAULT_PROTECT


def test_the_config_of_the_design_is_read(tmp_path: Path) -> None:
    """The example of the design page means what it says."""
    path = tmp_path / CONFIG_PATH
    path.parent.mkdir()
    path.write_text(
        'base = "main"\n[model]\nname = "m"\nprovider = "anthropic"\nkey_command = "pass show x"\n'
        "price = { input = 3, output = 15.5, cache_read = 0.3 }\n"
        '[setup]\nrun = "uv sync --frozen"\n[verify]\nrun = "uv run pytest -q"\ntimeout = "1h30m"\n'
        'protect = ["spec/**"]\n[merge]\nverify = "make ci"\n'
        '[limits]\nnight = "$12.50"\nunit = 5\nattempts = 2\nrounds = 1\nminutes = 0.5\nuntil = "07:00"\nslots = 8\n'
        '[engine]\nbroker = "redis+socket:///run/redis.sock"\n',
        encoding="utf-8-sig",
    )
    config = load(tmp_path)
    assert (config.base, config.setup.run, config.merge.verify) == ("main", "uv sync --frozen", "make ci")
    assert config.model.price
    assert (config.model.price.output, config.model.price.cache_write_5m) == (Decimal("15.5"), None)
    assert (config.verify.timeout, config.verify.protect) == (5400, ("spec/**", ".overnight/**"))
    assert (config.limits.night, config.limits.unit, config.limits.until) == (Decimal("12.5"), 5, time(7))
    assert config.engine.broker == "redis+socket:///run/redis.sock"


@pytest.mark.parametrize(
    ("text", "line", "field", "words"),
    [
        ("[limits]\nnigth = 5", 2, "limits.nigth", 'did you mean "night"'),
        ("[limit]\nnight = 5", 1, "limit", 'did you mean "limits"'),
        ("x = 1\nnight = 5", 1, "x", "known here: base, model"),
        ("night = 5", 1, "night", "it belongs in [limits]"),
        ("[model]\nbroker = 'x'", 2, "model.broker", "it belongs in [engine]"),
        ("[model]\n\napi_key = 'sk-secret'", 3, "model.api_key", "does not belong in this file"),
        ("[model]\nprovider = 'acme'", 2, "model.provider", '"anthropic", "bedrock" or "vertex"'),
        ("[model]\nprovider = 5", 2, "model.provider", '"anthropic", "bedrock" or "vertex"'),
        ("[model]\nthinking = 'deep'", 2, "model.thinking", "'adaptive', 'budget' or 'none'"),
        ("[model]\nwindow = 10", 2, "model.window", "is at least 1000"),
        ("[model]\nbase_url = 'gateway:80'", 2, "model.base_url", "https://host"),
        ("[model]\neffort = 'max'", 2, "model.effort", "'off', 'low', 'medium' or 'high'"),
        ("[model]\nprice = {input = -1, output = 1}", 2, "model.price.input", "is at least 0"),
        ("[model.price]\noutput = 1", 1, "model.price.input", "is missing"),
        ("[verify]\ntimeout = '15'", 2, "verify.timeout", '"15m"'),
        ("[verify]\ntimeout = 0", 2, "verify.timeout", "more than 0"),
        ("[verify]\nprotect = [\n 'a',\n '../b']", 2, "verify.protect.1", "no '..'"),
        ("[verify]\nrun = ''", 2, "verify.run", "is empty"),
        ("[limits]\nnight = '5 EUR'", 2, "limits.night", '"$5"'),
        ("[limits]\nnight = 0", 2, "limits.night", "more than 0"),
        ("[limits]\nnight = true", 2, "limits.night", '"$5"'),
        ("[limits]\nattempts = 0", 2, "limits.attempts", "is at least 1"),
        ("[limits]\nattempts = true", 2, "limits.attempts", "is a whole number"),
        ("[limits]\nminutes = nan", 2, "limits.minutes", "finite"),
        ("[limits]\nuntil = '25:00'", 2, "limits.until", '"07:00"'),
        ("[engine]\nbroker = 'amqp://user:secret@host'", 2, "engine.broker", "redis://"),
        ("[engine]\nbroker = 'redis:///0'", 2, "engine.broker", "redis://"),
        ("[engine]\nprocesses = 0", 2, "engine.processes", "is at least 1"),
        ("[engine]\nfence = 9", 1, "engine", "between 2 (2 beats) and 5"),
        ("[engine]\nfence = 1", 1, "engine", "between 2 (2 beats) and 5"),
        ("base = '--upload-pack=x'", 1, "base", "no '-' at the start"),
        ("a = 1\nb = ", 2, None, "is not TOML"),
        ("[limits]\n[limits]", 2, None, "is not TOML"),
    ],
)
def test_a_fault_names_file_line_key_and_remedy(text: str, line: int, field: str | None, words: str) -> None:
    """Every mistake is a ConfigError that says where and what to do, and never repeats a secret."""
    path = Path("config.toml")
    with pytest.raises(ConfigError) as caught:
        parse(text, path)
    assert (caught.value.path, caught.value.line, caught.value.field) == (path, line, field)
    assert words in caught.value.message
    assert "secret" not in str(caught.value)


def test_all_faults_come_at_once_in_the_order_of_the_file() -> None:
    """Three mistakes need one look."""
    with pytest.raises(ConfigError) as caught:
        parse("[limits]\nnigth = 1\nslots = 0\n[engine]\nbroker = 'x'\n")
    assert [problem.line for problem in caught.value.problems] == [2, 3, 5]
    assert len(str(caught.value).splitlines()) == 3


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    """A folder in its place and bytes that are no UTF-8 are errors, not defaults."""
    path = tmp_path / CONFIG_PATH
    path.mkdir(parents=True)
    with pytest.raises(ConfigError, match="cannot be read"):
        load(tmp_path)
    path.rmdir()
    path.write_bytes(b"# x\n# caf\xe9\n")
    with pytest.raises(ConfigError, match=r"config.toml:2: is not UTF-8"):
        load(tmp_path)


def test_what_we_judge_by_is_always_protected() -> None:
    """Whatever `protect` says, even nothing, `.overnight/**` is in it, once."""
    assert parse("[verify]\nprotect = []").verify.protect == (".overnight/**",)
    assert parse("[verify]\nprotect = ['.overnight/**']").verify.protect == (".overnight/**",)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("90s", 90), ("15m", 900), ("1h30m", 5400), ("1h", 3600), ("1.5h", 5400), ("0.25s", 0.25), (7, 7), (1.5, 1.5)],
)
def test_durations(text: object, expected: float) -> None:
    """Hours, minutes and seconds in this order, or a bare number of seconds."""
    assert seconds(text) == expected


@pytest.mark.parametrize(
    "text", ["", "15", "m", "30m1h", "-5s", "5 min", "0s", "8000h", 0, -1, True, float("nan"), None]
)
def test_what_is_no_duration(text: object) -> None:
    """A unit is needed in text, and nothing ends before it starts or lasts for weeks."""
    with pytest.raises(ValueError, match="a duration"):
        seconds(text)


@pytest.mark.parametrize(("text", "expected"), [("30d", 30), ("8w", 56), ("0d", 0), (0, 0)])
def test_periods(text: object, expected: int) -> None:
    """Days or weeks; nothing is kept for a while that is nothing."""
    assert days(text) == timedelta(days=expected)


@pytest.mark.parametrize("text", ["", "30", "1h", "-1d", "1.5d", 30, True, None])
def test_what_is_no_period(text: object) -> None:
    """A night's files are kept for whole days."""
    with pytest.raises(ValueError, match="a period"):
        days(text)


def test_journals_are_kept_at_least_as_long_as_sessions() -> None:
    """The defaults are thirty and a hundred and eighty days."""
    assert (parse("").keep.sessions, parse("").keep.journals) == (timedelta(days=30), timedelta(days=180))
    with pytest.raises(ConfigError, match="at least as long as sessions") as caught:
        parse('[keep]\nsessions = "4w"\njournals = "7d"\n')
    assert (caught.value.line, caught.value.field) == (1, "keep")


@pytest.mark.parametrize(
    ("text", "expected"), [("3/15", ("3", "15")), (" $0.10/$0.5 ", ("0.10", "0.5")), ("0/0", ("0", "0"))]
)
def test_rates(text: str, expected: tuple[str, str]) -> None:
    """Dollars per million tokens in and out, with or without the sign."""
    found = rates(text)
    assert (found.input, found.output) == (Decimal(expected[0]), Decimal(expected[1]))
    assert found.cache_read is None


@pytest.mark.parametrize("text", ["", "3", "3/", "/15", "3/15/2", "-3/15", "3,5/15", "inf/1"])
def test_what_are_no_rates(text: str) -> None:
    """One number alone, other signs and other currencies are refused with an example."""
    with pytest.raises(ValueError, match='"3/15"'):
        rates(text)


@given(st.integers(0, 100), st.integers(0, 59), st.integers(1, 59))
def test_every_duration_adds_up(hours: int, minutes: int, rest: int) -> None:
    """1h2m3s is the sum of its parts."""
    assert seconds(f"{hours}h{minutes}m{rest}s") == hours * 3600 + minutes * 60 + rest


@pytest.mark.parametrize(("text", "expected"), [("$5", "5"), ("5", "5"), (5, "5"), ("$2.50", "2.5"), (0.1, "0.1")])
def test_money(text: object, expected: str) -> None:
    """Dollars, with or without the sign, without the dust of binary fractions."""
    assert money(text) == Decimal(expected)


@pytest.mark.parametrize("text", ["", "$", "5€", "1,000", "-5", "0", "nan", "inf", "1e9", True, None, [5]])
def test_what_is_no_money(text: object) -> None:
    """Other currencies, commas, nothing and less than nothing are refused."""
    with pytest.raises(ValueError, match="an amount of money"):
        money(text)


def test_tomls_own_time_is_a_time() -> None:
    """`until = 07:30:00` without quotes is TOML's local time and means the same."""
    assert parse("[limits]\nuntil = 07:30:00").limits.until == time(7, 30)


def test_the_template_means_the_defaults() -> None:
    """The file that init writes changes nothing."""
    assert parse(template()) == Config()


def test_every_key_of_the_template_is_true() -> None:
    """Uncommented, its lines are valid: defaults are the defaults, and no key of the config is missing."""
    keys = re.sub(r"(?m)^# ((?:\w+ = .*)|\]|  \".*)$", r"\1", template())
    plain = "\n".join(line for line in keys.splitlines() if "example" not in line)
    assert parse(plain) == Config()
    full = parse(keys)
    assert full.limits.until == time(7)
    named = set(re.findall(r"(?m)^(?:\[)?(\w+)(?:\]| =)", keys)) | set(re.findall(r"(\w+) = [\d.]+", keys))
    assert {path[-1] for path in _paths(Config)} - named == {"cache_write_1h"}


def test_limits_of_runs_and_turns_and_what_becomes_of_the_state_file() -> None:
    """All of them optional; nothing is capped by default but the night and the unit."""
    plain = parse("")
    assert (plain.limits.run, plain.limits.turns, plain.limits.hours, plain.limits.stale_after) == (None, None, None, 3)
    assert plain.state.commit is False
    text = '[limits]\nrun = "$20"\nturns = 9\nrun_turns = 90\nnight_turns = 900\nhours = 7.5\nstale_after = 0\n'
    given = parse(f"{text}[state]\ncommit = true\n")
    assert (given.limits.run, given.limits.run_turns, given.limits.night_turns) == (Decimal(20), 90, 900)
    assert (given.limits.hours, given.limits.stale_after, given.state.commit) == (7.5, 0, True)
    for wrong in ("hours = 0", "turns = 0", "stale_after = -1", 'run = "$0"'):
        with pytest.raises(ConfigError, match=wrong.split()[0]):
            parse(f"[limits]\n{wrong}\n")
    with pytest.raises(ConfigError, match=r"state\.commit"):
        parse('[state]\ncommit = "yes"\n')
