"""Agents' files: what they may say, how a fault is shown, and what of Claude Code's they may bring along."""

from pathlib import Path

import pytest

from workers.agents.agent_file import AGENTS_PATH, EDITOR, AgentFile, agent_names, load_agent, parse_agent
from workers.errors import BundleFileError
from workers.orders import Rule

PATH = AGENTS_PATH / "reviewer.md"


def parse(front: str, body: str = "Review.") -> AgentFile:
    return parse_agent(f"---\n{front}\n---\n\n{body}\n", PATH)


def refused(front: str, body: str = "Review.") -> BundleFileError:
    with pytest.raises(BundleFileError) as caught:
        parse(front, body)
    return caught.value


def write(root: Path, name: str, text: str) -> Path:
    path = root / AGENTS_PATH / f"{name}.md"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_all_that_a_file_may_say() -> None:
    """Every key arrives as what it means."""
    agent = parse(
        "name: reviewer\ndescription: Reads\n  code\nmodel: claude-haiku-5-5\ntools: [bash, ask]\neffort: off\n"
        "skills: [builtin:writing-plans, ours]\npolicy:\n  deny: ['bash: git push*']\n  ask: bash\n  allow: [ask]"
    )
    assert agent == AgentFile(
        name="reviewer",
        path=PATH,
        description="Reads code",
        model="claude-haiku-5-5",
        tools=frozenset({"bash", "ask"}),
        effort="off",
        skills=("writing-plans", "ours"),
        rules=(
            Rule(what="ask", then="allow"),
            Rule(what="bash", then="ask"),
            Rule(what="bash: git push*", then="deny"),
        ),
        instructions="Review.",
        lines=agent.lines,
    )


def test_an_empty_table_means_what_is_usual() -> None:
    """No key is needed: all tools, all skills, the config's model and effort."""
    agent = parse_agent("---\n---\nReview.", PATH)
    assert (agent.model, agent.tools, agent.effort, agent.skills, agent.rules) == (None, None, None, None, ())
    assert parse("model: inherit").model is None


def test_without_instructions_it_is_a_coder_of_another_kind() -> None:
    """A file that only says `effort: high` has the built-in coder's instructions."""
    assert parse("effort: high", "").instructions == load_agent(Path("/nowhere"), "coder").instructions


@pytest.mark.parametrize(
    ("tools", "names", "denied"),
    [
        ("bash", {"bash"}, set()),
        ("Bash, Edit", {"bash", EDITOR}, set()),
        ("[Write]", {EDITOR}, set()),
        ("Read", {EDITOR}, {"edit"}),
        ("[view, Grep, mcp__x__y]", {EDITOR}, {"edit"}),
        ("TodoWrite, AskUserQuestion, Skill", {"update_tasks", "ask", "skill"}, set()),
        (EDITOR, {EDITOR}, set()),
        ("[]", set(), set()),
        ("Glob", set(), set()),
        ("'*'", None, set()),
    ],
)
def test_names_of_tools(tools: str, names: set[str] | None, denied: set[str]) -> None:
    """Our names and Claude Code's lead to the API's; who may only read is kept from editing by the policy."""
    agent = parse(f"tools: {tools}")
    assert agent.tools == (None if names is None else frozenset(names))
    assert {rule.what for rule in agent.rules if rule.then == "deny"} == denied


@pytest.mark.parametrize(
    ("front", "names", "denied"),
    [
        ("disallowedTools: Bash", {EDITOR, "ask", "update_tasks", "skill"}, set()),
        ("disallowedTools: Edit, Write", {"bash", EDITOR, "ask", "update_tasks", "skill"}, {"edit"}),
        (f"disallowedTools: [{EDITOR}]", {"bash", "ask", "update_tasks", "skill"}, set()),
        ("tools: Bash, Edit\ndisallowedTools: WebFetch, Bash", {EDITOR}, set()),
    ],
)
def test_tools_that_are_taken_away(front: str, names: set[str], denied: set[str]) -> None:
    """`disallowedTools` is no key to pass over: without it the agent could do more than its owner wants."""
    agent = parse(front)
    assert agent.tools == frozenset(names)
    assert {rule.what for rule in agent.rules if rule.then == "deny"} == denied


def test_claude_codes_own_keys_are_passed_over_with_a_note() -> None:
    """A file of Claude Code's works as it is, and says what of it means nothing here."""
    agent = parse("name: reviewer\nmodel: sonnet\ntools: Bash, WebFetch\ncolor: red\npermissionMode: plan")
    assert agent.model == "claude-sonnet-5-5"
    assert [next(word for word in ("color", "permissionMode", "WebFetch") if word in note) for note in agent.notes] == [
        "color",
        "permissionMode",
        "WebFetch",
    ]


@pytest.mark.parametrize(
    ("front", "line", "field", "words"),
    [
        ("modle: x", 2, "modle", 'did you mean "model"'),
        ("name: reviewer\nquux: x", 3, "quux", "known: name"),
        ("name: other", 2, "name", "make them the same"),
        ("tools:\n  - bash\n  - bsh", 4, "tools.1", "did you mean 'bash'"),
        ("tools: bash, bsh", 2, "tools", "did you mean 'bash'"),
        ("tools: Bash(git diff)", 2, "tools", "policy"),
        ("tools:", 2, "tools", "write [] for none"),
        ("effort: very", 2, "effort", "'off', 'low'"),
        ("policy:\n  deny: [bash]\n  never: [x]", 4, "policy.never", "known: allow, ask, deny"),
        ("policy:\n  deny:\n    - bsh", 4, "policy.deny.0", "there is no tool 'bsh'"),
        ("policy:\n  deny: ['bash:']", 3, "policy.deny.0", "looks like"),
        ("name: a\nname: reviewer", 3, "name", "twice"),
        ("description: Use it: now", 2, None, "quotes"),
        ("- a", 2, None, "key: value"),
        ("model: [a]", 2, "model", "string"),
    ],
)
def test_a_fault_is_shown_where_it_is(front: str, line: int, field: str | None, words: str) -> None:
    """File, line, field, and what to do."""
    error = refused(front)
    assert (error.path, error.line, error.field) == (PATH, line, field)
    assert words in str(error)
    assert str(error).startswith(f"{PATH}:{line}: ")


def test_all_faults_are_shown_at_once_in_order() -> None:
    """Nobody mends a file fault by fault."""
    error = refused("tools: [bsh]\nname: other")
    assert [fault.field for fault in error.problems] == ["tools.0", "name"]
    assert str(error).count("\n") == 1


@pytest.mark.parametrize("text", ["Review.", "---\nname: reviewer\n", ""])
def test_front_matter_has_a_begin_and_an_end(text: str) -> None:
    """Prose alone is no agent, and a table that never ends swallows the instructions."""
    with pytest.raises(BundleFileError, match="front matter") as caught:
        parse_agent(text, PATH)
    assert caught.value.line == 1


def test_the_built_in_coder_and_a_file_that_takes_its_place(tmp_path: Path) -> None:
    """`coder` needs no file; a file of that name wins."""
    built_in = load_agent(tmp_path, "coder")
    assert built_in.path is None
    assert built_in.tools is None
    assert agent_names(tmp_path) == ["coder"]
    write(tmp_path, "coder", "---\neffort: low\n---\nOurs.")
    write(tmp_path, "other", "---\n---\nOther.")
    assert load_agent(tmp_path, "coder").instructions == "Ours."
    assert agent_names(tmp_path) == ["coder", "other"]


def test_an_agent_that_is_not_there_is_named_with_what_is_close(tmp_path: Path) -> None:
    """A misspelt name is met with the right one."""
    write(tmp_path, "reviewer", "---\n---\nx")
    with pytest.raises(BundleFileError, match=r"agents/reviwer\.md: there is no such agent; did you mean 'reviewer'"):
        load_agent(tmp_path, "reviwer")
    with pytest.raises(BundleFileError, match="cannot be the name"):
        load_agent(tmp_path, "../../etc/passwd")


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    """A folder, a FIFO, other bytes or a huge file are named; nothing hangs and nothing is guessed."""
    import os

    folder = tmp_path / AGENTS_PATH
    (folder / "folder.md").mkdir(parents=True)
    os.mkfifo(folder / "fifo.md")
    (folder / "latin.md").write_bytes(b"---\n---\n\nR\xe9vise.")
    (folder / "huge.md").write_bytes(b"---\n---\n" + b"x" * 300_000)
    (folder / "nul.md").write_bytes(b"---\n---\nx\0y")
    for name, words in [
        ("folder", "not a plain file"),
        ("fifo", "not a plain file"),
        ("latin", "UTF-8"),
        ("huge", "at most"),
        ("nul", "NUL"),
    ]:
        with pytest.raises(BundleFileError, match=words):
            load_agent(tmp_path, name)


def test_windows_line_ends_and_a_byte_order_mark(tmp_path: Path) -> None:
    """Editors of other systems write files that work."""
    (tmp_path / AGENTS_PATH).mkdir(parents=True)
    (tmp_path / AGENTS_PATH / "win.md").write_bytes("\ufeff---\r\neffort: low\r\n---\r\nReview.\r\nWell.\r\n".encode())
    agent = load_agent(tmp_path, "win")
    assert (agent.effort, agent.instructions) == ("low", "Review.\nWell.")
