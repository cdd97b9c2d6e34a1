"""Policy: what becomes of a call before it runs, whatever a shell command is wrapped in."""

import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.orders import Rule
from workers.policy import WORDS_LIMIT, Decision, decide, offered, stricter, words_of

EDITOR = "str_replace_based_edit_tool"


def rules(**lists: list[str]) -> list[Rule]:
    return [Rule(what=what, then=then) for then, whats in lists.items() for what in whats]


def bash(command: Any, **lists: list[str]) -> str:
    return decide(rules(**lists), "bash", {"command": command}).then


def edit(path: Any, command: str = "create", **lists: list[str]) -> str:
    return decide(rules(**lists), EDITOR, {"command": command, "path": path}).then


def test_without_a_rule_everything_is_allowed() -> None:
    """And no rule is named."""
    assert decide([], "bash", {"command": "rm -rf /"}) == Decision("allow")
    assert decide(rules(deny=["edit"]), "bash", {"command": "ls"}) == Decision("allow")


def test_the_rule_that_decided_is_named_as_it_was_written() -> None:
    """So that people and the model can be told which."""
    assert decide(rules(ask=["bash:  git push*"]), "bash", {"command": "git push"}) == Decision(
        "ask", "bash:  git push*"
    )


@pytest.mark.parametrize(
    ("lists", "expected"),
    [
        ({"deny": ["bash"], "ask": ["bash: git push"], "allow": ["bash: git push"]}, "deny"),
        ({"deny": ["*"], "allow": ["bash: git push"]}, "deny"),
        ({"ask": ["bash: git *"], "allow": ["bash: git push"]}, "ask"),
        ({"ask": ["bash"], "allow": ["bash"]}, "ask"),
        ({"ask": ["bash"], "allow": ["bash: git *"]}, "allow"),
        ({"ask": ["*"], "allow": ["bash"]}, "allow"),
        ({"ask": ["*", "bash"], "allow": ["b*"]}, "ask"),
    ],
)
def test_what_wins(lists: dict[str, list[str]], expected: str) -> None:
    """A deny always; else what says more; else the stricter one. The order of the rules does not matter."""
    found = rules(**lists)
    assert decide(found, "bash", {"command": "git push"}).then == expected
    assert decide(found[::-1], "bash", {"command": "git push"}).then == expected


@pytest.mark.parametrize(
    "command",
    [
        "git push",
        "git  push origin main",
        "  git push",
        "cd x && git push",
        "make; git push -f",
        "true || git push",
        "sleep 1 & git push",
        "echo y | git push",
        "ls\ngit push",
        "git \\\n push",
        "echo $(git push)",
        "echo `git push`",
        "(git push)",
        "{ git push; }",
        "if true; then git push; fi",
        "for x in 1 2; do git push; done",
        "! git push",
        "FOO=1 BAR='x y' git push",
        "env -i A=b git push",
        "sudo -n /usr/bin/git push",
        "timeout 60s git push",
        "xargs -n 1 git push",
        "xargs -I {} git push",
        "env -u A -C /x git push",
        "sudo -u root env B=1 git push",
        "timeout -s KILL 5 git push",
        "git -C /x push",
        "git --no-pager -c a=b push",
        "sudo -u root /usr/bin/git -C . push",
        "find . -name x -exec git push \\;",
        "coproc git push",
        'bash -c "git push"',
        "sh -ec 'cd x; git push'",
        "eval git push",
        "g''it push",
        '"git" push',
        "\\git push",
        "diff <(git push) x",
        "git push>log",
    ],
)
def test_a_deny_and_an_ask_see_every_part(command: str) -> None:
    """One part is enough, however it is wrapped or quoted; the command is then denied, or asked for, as a whole."""
    assert bash(command, deny=["bash: git push*"]) == "deny"
    assert bash(command, ask=["bash: git push *"]) == "ask"


@pytest.mark.parametrize("words", ["xargs ", "env -a b ", "git -a b ", "A=1 ", "sudo -u ", "(", "a; "])
def test_a_command_without_end_holds_nobody_up(words: str) -> None:
    """However long it is and whatever it is wrapped in: the event loop of all units waits for the decision."""
    began = time.monotonic()
    assert bash(words * 20_000 + "git pull", deny=["bash: git push*"]) == "allow"
    assert time.monotonic() - began < 5


@pytest.mark.parametrize(
    "command", ["git pull", "git log --grep push", "gitpush", "ls git push.txt", "", None, 7, ["git push"]]
)
def test_what_a_pattern_does_not_mean(command: Any) -> None:
    """Other commands, and arguments that are no command at all: the tool itself refuses those."""
    assert bash(command, deny=["bash: git push*"]) == "allow"


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("git status", "allow"),
        ("git log -p 2>&1 | head -5", "allow"),
        ("git diff >/dev/null && git status", "allow"),
        ("git status; rm x", "ask"),
        ("git log > x", "ask"),
        ("git log >> ~/.bashrc", "ask"),
        ("git log | tee x", "ask"),
        ("git log $(rm x)", "ask"),
        ("git log `rm x`", "ask"),
        ("git log\nrm x", "ask"),
        ("GIT_PAGER='rm x' git log", "ask"),
        ("git log & rm x", "ask"),
        ("", "ask"),
        (None, "ask"),
    ],
)
def test_an_allow_needs_all_parts(command: Any, expected: str) -> None:
    """What no allow names keeps the whole command from being allowed, a file that is written among it."""
    assert bash(command, ask=["bash"], allow=["bash: git *", "bash: head *"]) == expected


@pytest.mark.parametrize(
    ("path", "command", "what", "matches"),
    [
        ("infra/a.tf", "create", "edit: infra/**", True),
        ("./infra/x/../a.tf", "create", "edit: infra/**", True),
        ("/home/x/worktrees/u.1/infra/a.tf", "str_replace", "edit: infra/**", True),
        ("infra/a.tf", "view", "edit: infra/**", False),
        ("infra/a.tf", "view", "view: infra/**", True),
        ("infra/a.tf", "view", f"{EDITOR}: infra", True),
        ("a/.env", "insert", "edit: .env", True),
        ("src/a.py", "create", "edit: infra/**", False),
        (None, "create", "edit: infra/**", False),
    ],
)
def test_paths_match_as_protect_does(path: Any, command: str, what: str, matches: bool) -> None:
    """The editor's changes are called `edit`, its looks `view`; a path cannot hide behind dots or the root."""
    assert edit(path, command, deny=[what]) == ("deny" if matches else "allow")


def test_an_absolute_path_is_never_allowed_by_a_pattern() -> None:
    """Where the worktree is, is not known here: `src` may be another folder of that name."""
    lists = {"ask": ["edit"], "allow": ["edit: src/**"]}
    assert edit("src/a.py", **lists) == "allow"
    assert edit("/other/src/a.py", **lists) == "ask"
    assert edit("src/../infra/a.py", **lists) == "ask"


def test_other_tools_match_by_their_texts() -> None:
    """Any text of a call is enough for an ask, all are needed for an allow."""
    call = {"url": "https://example.org/a", "method": "GET", "limit": 3}
    assert decide(rules(ask=["fetch: https://*"]), "fetch", call).then == "ask"
    assert decide(rules(ask=["fetch"], allow=["fetch: https://*"]), "fetch", call).then == "ask"


def test_nobody_is_asked_whether_they_may_be_asked() -> None:
    """`ask = ["*"]` means each action; a question is none."""
    assert decide(rules(ask=["*"]), "ask", {"question": "?"}).then == "allow"
    assert decide(rules(deny=["ask"]), "ask", {"question": "?"}).then == "deny"


@pytest.mark.parametrize(
    ("lists", "left"),
    [
        ({"deny": ["bash"]}, [EDITOR, "ask"]),
        ({"deny": ["bash: *"]}, [EDITOR, "ask"]),
        ({"deny": ["bash: rm *"]}, ["bash", EDITOR, "ask"]),
        ({"ask": ["bash"]}, ["bash", EDITOR, "ask"]),
        ({"deny": ["edit"]}, ["bash", EDITOR, "ask"]),
        ({"deny": ["edit", "view"]}, ["bash", "ask"]),
        ({"deny": [EDITOR]}, ["bash", "ask"]),
        ({"deny": ["*"], "allow": ["bash"]}, []),
    ],
)
def test_what_is_denied_altogether_is_not_offered(lists: dict[str, list[str]], left: list[str]) -> None:
    """A tool of which something is left is; the order stays."""
    assert offered(rules(**lists), ["bash", EDITOR, "ask"]) == left


def test_an_agents_policy_never_loosens_the_nights() -> None:
    """Of two decisions the stricter one counts, of equal ones the first."""
    allow, ask, deny = Decision("allow", "a"), Decision("ask", "b"), Decision("deny", "c")
    assert stricter(allow, ask) == stricter(ask, allow) == ask
    assert stricter(ask, deny, allow) == deny
    assert stricter(Decision("ask", "first"), ask).rule == "first"


def test_what_people_read_of_a_call() -> None:
    """The tool and what it does, in one line."""
    assert words_of("bash", {"command": "make\nmake install\n"}) == "bash: make ⏎ make install"
    assert words_of(EDITOR, {"command": "create", "path": "a.py", "file_text": "x" * 1234}) == (
        "edit: a.py, create (1,234 characters)"
    )
    assert words_of(EDITOR, {"command": "view", "path": "a.py"}) == "view: a.py, view"
    assert words_of("fetch", {"url": "u", "n": 2}) == "fetch: url=u n=2"


def test_what_is_left_out_of_a_long_call_is_said() -> None:
    """Beginning and end are shown, and how much is missing: nothing is approved that looks shorter than it is."""
    words = words_of("bash", {"command": "echo " + "a" * 1000 + "; rm -rf x"})
    assert len(words) <= WORDS_LIMIT
    assert words.startswith("bash: echo aaa")
    assert words.endswith("; rm -rf x")
    assert "more characters" in words


@given(st.sampled_from(["bash", EDITOR, "other"]), st.dictionaries(st.text(max_size=8), st.text(max_size=400)))
def test_words_are_one_harmless_line(tool: str, arguments: dict[str, str]) -> None:
    """Whatever a model wrote: no control character, no second line, never too long; and every call has a decision."""
    for keys in (arguments, {"command": "".join(arguments.values()), "path": "".join(arguments)}):
        words = words_of(tool, keys)
        assert words.isprintable()
        assert len(words) <= WORDS_LIMIT
        decide(rules(deny=["bash: x*"], ask=["edit: x"], allow=["*"]), tool, keys)
