"""Preflight: what would fail for every unit is found before a model is asked anything."""

import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from checkouts import trees_of
from entries import NIGHT, unit

from dispatcher import preflight
from dispatcher.book import Book
from dispatcher.config import Config, parse
from dispatcher.errors import BadInput, ConfigError, EngineError, UnitFileError
from dispatcher.journal import NightStarted
from worktrees.repository import Repository
from worktrees.worktree import Worktrees

UNIT = [unit("a", verify="test -f done"), unit("b", verify="test -f README.md"), unit("c", verify="test -f done")]


class Base:
    def __init__(self, checkout: Any, folder: Path) -> None:
        self.repository = Repository.discover(checkout.path)
        self.commit = checkout.git("rev-parse", "HEAD")
        self.worktrees = Worktrees(self.repository, folder / "worktrees")
        self.book = Book.open(folder / "journal.jsonl")
        self.book.note(NightStarted(night=NIGHT, title="t", base=self.commit, base_name="main"))
        self.shown: list[str] = []

    async def run(self, units: Any, config: str = "") -> preflight.Findings:
        look = preflight.OnTheBase(parse(config), self.worktrees, self.book.ledger, self.shown.append)
        return await look.run(units, self.commit)


@pytest.fixture
def base(make_repository: Any, tmp_path: Path) -> Iterator[Base]:
    made = Base(make_repository(), tmp_path / "home")
    yield made
    made.book.close()


async def test_setup_and_each_distinct_verify_run_once(base: Base, tmp_path: Path) -> None:
    """In one clean tree, which is gone afterwards; a red verify is what one expects of work not done."""
    count = tmp_path / "count"
    found = await base.run(UNIT, f'[setup]\nrun = "echo x >> {count}"\n')
    assert [(one.command, one.passed, one.stage) for one in found.verifies] == [
        ("test -f done", False, "base"),
        ("test -f README.md", True, "base"),
    ]
    assert found.line.endswith("1 red, as work not done is; green already, so that a pass proves little: b")
    assert found.setup_seconds is not None
    assert count.read_text() == "x\n"
    assert trees_of(base.worktrees) == []


async def test_what_the_journal_knows_is_not_run_again(base: Base) -> None:
    """Not even the setup, when there is nothing new."""
    config = '[setup]\nrun = "true"\n'
    found = await base.run(UNIT, config)
    base.book.note(*found.verifies)
    base.shown.clear()
    assert await base.run(UNIT, config) == preflight.Findings(None, ())
    assert base.shown == []
    more = await base.run([*UNIT, unit("d", verify="true")], config)
    assert [one.command for one in more.verifies] == ["true"]


async def test_an_edited_setup_is_tried_though_every_verify_is_known(base: Base) -> None:
    """It may fail, and then it would for every unit; what is known of a verify holds behind the setup of its run."""
    base.book.note(*(await base.run(UNIT)).verifies)
    with pytest.raises(ConfigError, match="setup failed"):
        await base.run(UNIT, '[setup]\nrun = "exit 3"\n')
    assert await base.run(UNIT) == preflight.Findings(None, ())
    again = await base.run(UNIT, '[setup]\nrun = "true"\n')
    assert len(again.verifies) == 2
    old = again.verifies[0].model_dump(exclude={"setup"})
    assert type(again.verifies[0]).model_validate(old).setup == ""


async def test_a_setup_that_fails_is_bad_input_with_its_own_words(base: Base) -> None:
    """And its tree is gone."""
    with pytest.raises(ConfigError, match="no network") as caught:
        await base.run(UNIT, '[setup]\nrun = "echo Error: no network; exit 3"\n')
    assert caught.value.field == "setup.run"
    assert trees_of(base.worktrees) == []


async def test_verifies_that_cannot_start_are_all_named(base: Base) -> None:
    """Not there (127) and not executable (126), with the unit file that says so."""
    wrong = [unit("a", verify="no-such-command"), unit("b", verify="./README.md"), unit("c", verify="exit 1")]
    assert not base.repository.root.joinpath("README.md").stat().st_mode & stat.S_IXUSR
    with pytest.raises(UnitFileError) as caught:
        await base.run(wrong)
    assert [(str(one.path), one.field) for one in caught.value.problems] == [
        (".overnight/units/a.md", "verify"),
        (".overnight/units/b.md", "verify"),
    ]
    assert "127" in str(caught.value)
    assert "126" in str(caught.value)


async def test_a_verify_that_hangs_is_cut_off(base: Base) -> None:
    """It is red, not bad input."""
    found = await base.run([unit("a", verify="sleep 60")], '[verify]\ntimeout = "0.3s"\n')
    assert [one.passed for one in found.verifies] == [False]
    assert "killed after 0.3 s" in found.verifies[0].output


def test_a_branch_in_the_way_is_named_with_what_to_do(make_repository: Any) -> None:
    """Git cannot have `overnight` and `overnight/…` at once."""
    checkout = make_repository()
    repository = Repository.discover(checkout.path)
    preflight.check_refs(repository)
    checkout.git("branch", "overnight")
    with pytest.raises(BadInput, match="git branch -m overnight"):
        preflight.check_refs(repository)


def test_without_a_price_the_limits_would_mean_nothing() -> None:
    """A price in the config is enough."""
    preflight.check_prices(Config())
    with pytest.raises(ConfigError) as caught:
        preflight.check_prices(parse('[model]\nname = "claude-nobody"\n'))
    assert caught.value.field == "model.price"
    assert "--price IN/OUT" in str(caught.value)
    priced = '[model]\nname = "claude-nobody"\nprice = { input = 1, output = 2 }\n'
    preflight.check_prices(parse(priced))
    with pytest.raises(ConfigError) as caught:
        preflight.check_prices(parse(priced + 'background = "claude-cheap"\n'))
    assert caught.value.field == "model.background_price"
    preflight.check_prices(parse(priced + 'background = "claude-haiku-5-5"\n'))
    with pytest.raises(ConfigError):  # a cloud's own prices are not in the table
        preflight.check_prices(parse('[model]\nprovider = "vertex"\n'))


async def test_the_endpoint_is_asked_for_the_model_before_anything_costs(
    rehearse: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It knows the model or not, takes the key or not, is there or not: three different errors."""
    server = rehearse({"units": {}})

    def config(name: str = "claude-sonnet-5-5", url: str = server.url) -> Config:
        return parse(f'[model]\nname = "{name}"\nbase_url = "{url}"\n')

    await preflight.check_model(config())
    with pytest.raises(ConfigError) as unknown:
        await preflight.check_model(config("claude-nobody"))
    assert unknown.value.field == "model.name"
    monkeypatch.setenv("ANTHROPIC_API_KEY", "wrong")
    with pytest.raises(BadInput) as refused:
        await preflight.check_model(config())
    assert refused.value.field == "ANTHROPIC_API_KEY"
    monkeypatch.setenv("ANTHROPIC_API_KEY", server.key)
    monkeypatch.delenv("AWS_BEARER_TOKEN_BEDROCK", raising=False)
    with pytest.raises(ConfigError) as cheap:
        await preflight.check_model(parse(f'[model]\nbase_url = "{server.url}"\nbackground = "claude-cheap"\n'))
    assert cheap.value.field == "model.background"
    monkeypatch.setattr("workers.model.key._is_there", lambda _: False)
    with pytest.raises(BadInput, match="overnight\\[bedrock\\]") as extra:
        await preflight.check_model(parse('[model]\nprovider = "bedrock"\nregion = "eu-west-1"\n'))
    assert extra.value.field == "model.provider"
    with pytest.raises(EngineError) as away:
        await preflight.check_model(config(url="http://127.0.0.1:9"))
    assert away.value.component == "model"
    assert server.requests == []


async def test_a_command_that_prints_no_key_is_named_as_what_is_wrong() -> None:
    """Not the variable, which nobody meant to use."""
    with pytest.raises(BadInput) as caught:
        await preflight.check_model(parse('[model]\nkey_command = "false"\n'))
    assert str(caught.value) == "model.key_command: key_command gave no key (exit 1): it said nothing"
