"""Bundles over whole attempts: what a turn runs under is what the agent's file said when the turn began."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, closing
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from attempt_stand import AttemptStand

from workers.agents.agent_file import EDITOR, AgentFile, parse_agent
from workers.agents.loader import Agents, bundle_of
from workers.agents.skills import load_skills
from workers.model.catalog import card, price_of
from workers.model.client import ModelClient
from workers.orders import AgentOrder, Answered, Price, Rule
from workers.session import events as ev
from workers.session.session import Session
from worktrees.repository import Repository

Stand = Callable[..., AttemptStand]
ALL = ["bash", EDITOR, "update_tasks", "skill", "ask"]
ORDER = AgentOrder(model="claude-sonnet-5-5")


def step(*blocks: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"blocks": list(blocks), **more}


def calls(tool: str, **arguments: Any) -> dict[str, Any]:
    return step({"tool": tool, "input": arguments})


def agent_file(front: str = "", body: str = "Review.", name: str = "reviewer") -> str:
    return f"---\nname: {name}\n{front}\n---\n\n{body}\n"


DONE = step({"text": "Done."})
MAKES = calls("bash", command="touch done")


@pytest.fixture
async def stand(make_repository: Any, rehearse: Any, tmp_path: Path) -> AsyncIterator[Stand]:
    """A unit of agent `reviewer` with this file: `stand(file, step, …, base={"AGENTS.md": …}, rounds=2)`."""
    async with AsyncExitStack() as opened:

        def make(file: str | None, *steps: dict[str, Any], base: dict[str, str] | None = None, **options: Any) -> Any:
            repository = make_repository({"README.md": "x", **(base or {})})
            # A new head is a new prefix, which the server's own rule takes for a mistake.
            server = rehearse({"units": {"a": {"steps": list(steps)}}})
            agent = AgentOrder(name="reviewer", model="claude-sonnet-5-5", base_url=server.url)
            client = ModelClient(agent)
            opened.push_async_callback(client.close)
            commit = repository.git("rev-parse", "HEAD")
            at = AttemptStand(repository, tmp_path / "home", server, client, commit, {"agent": agent, **options})
            if file is not None:
                write(at, file)
            return at

        yield make


def path_of(at: AttemptStand) -> Path:
    return Path(at.repository.path, ".overnight/agents/reviewer.md")


def write(at: AttemptStand, text: str, path: str = ".overnight/agents/reviewer.md") -> None:
    file = Path(at.repository.path, path)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def writes(folder: Path, text: str) -> dict[str, Any]:
    """A step whose command changes the agent's file in the checkout, as a person does meanwhile."""
    return calls("bash", command=f"cat > {folder}/repository/.overnight/agents/reviewer.md <<'END'\n{text}END")


def sent(at: AttemptStand, number: int) -> tuple[str, list[str], str]:
    """Return the system prompt, the tools and the model of a request, from 0."""
    body = at.server.requests[number].body
    assert body is not None
    return "\n\n".join(part["text"] for part in body["system"]), [tool["name"] for tool in body["tools"]], body["model"]


def results(at: AttemptStand) -> list[tuple[str, bool]]:
    return [(event.content, event.is_error) for event in at.of(ev.ToolResult)]


# -- what is offered --------------------------------------------------------------------------------------------------


def offered(agent: AgentFile, *night: Rule, problem: str = "") -> list[str]:
    order = ORDER.model_copy(update={"policy": night})
    return list(bundle_of(order, agent, load_skills(Path("/nowhere")), "", problem).tools)


def parsed(front: str) -> AgentFile:
    return parse_agent(agent_file(front), Path("reviewer.md"))


def test_named_by_the_agent_and_allowed_by_the_night() -> None:
    """Tools are the intersection of what the file names and what no policy denies altogether (spec A24)."""
    deny_bash = Rule(what="bash", then="deny")
    assert offered(parsed("")) == ALL
    assert offered(parsed("tools: ask, Bash")) == ["bash", "ask"]
    assert offered(parsed("tools: []")) == []
    assert offered(parsed(""), deny_bash) == ALL[1:]
    assert offered(parsed("tools: bash, ask"), deny_bash) == ["ask"]
    assert offered(parsed("policy: {deny: [skill]}")) == ["bash", EDITOR, "update_tasks", "ask"]
    assert offered(parsed("tools: bash"), Rule(what="bash: rm*", then="deny")) == ["bash"]


def test_no_optional_tool_when_the_file_cannot_be_read() -> None:
    """Only the task list and the question are left, and a policy can take those too."""
    broken = AgentFile("reviewer", None)
    assert offered(broken, problem="x") == ["update_tasks", "ask"]
    assert offered(broken, Rule(what="ask", then="deny"), problem="x") == ["update_tasks"]


def test_the_skill_tool_needs_skills() -> None:
    """An agent without a skill is not offered the tool, and is told of no catalogue."""
    bundle = bundle_of(ORDER, parsed("skills: []"), load_skills(Path("/nowhere")), "")
    assert "skill" not in bundle.tools
    assert "brainstorming" not in str(bundle.system)
    limited = bundle_of(ORDER, parsed("skills: [brainstorming]"), load_skills(Path("/nowhere")), "")
    assert "builtin:brainstorming" in str(limited.system)
    assert "builtin:writing-plans" not in str(limited.system)


def test_the_guide_names_only_tools_that_are_offered() -> None:
    """A tool that was not named is advertised nowhere, the guide included."""
    told = str(bundle_of(ORDER, parsed("tools: [edit]"), load_skills(Path("/nowhere")), "").system)
    assert not [word for word in ("`ask`", "update_tasks", "bash", "`skill`", "brainstorming") if word in told]
    told = str(bundle_of(ORDER, parsed(""), load_skills(Path("/nowhere")), "").system)
    assert [word for word in ("`ask`", "update_tasks", "with bash", "`skill`", "spec.md", "plan.md") if word in told]


def test_what_all_units_share_comes_first() -> None:
    """Two agents have the guide, the memory and the catalogue in common; their own words stand behind them."""
    skills = load_skills(Path("/nowhere"))
    one = bundle_of(ORDER, parse_agent(agent_file(body="Review."), Path("reviewer.md")), skills, "# AGENTS.md\n\nTabs.")
    two = bundle_of(ORDER, AgentFile("coder", None, instructions="Code."), skills, "# AGENTS.md\n\nTabs.")
    assert one.system[:3] == two.system[:3]
    assert [block["text"] for block in (one.system[3], two.system[3])] == ["Review.", "Code."]
    assert "Tabs." in one.system[1]["text"]
    assert len(one.system) == 4


def test_the_model_of_an_agent() -> None:
    """Another model of the same endpoint has its own limits and its own price; `inherit` is the config's."""
    told = Price(input=Decimal(3), output=Decimal(15), cache_read=Decimal(1), cache_write=Decimal(4))
    order = ORDER.model_copy(update={"price": told, "window": 9_000, "base_url": "http://here:1"})
    same = bundle_of(order, parsed("model: inherit"), load_skills(Path("/nowhere")), "").agent
    assert (same.model, same.price, same.window) == ("claude-sonnet-5-5", told, 9_000)
    other = bundle_of(order, parsed("model: claude-haiku-4-5"), load_skills(Path("/nowhere")), "").agent
    assert (other.model, other.window, other.base_url) == ("claude-haiku-4-5", None, "http://here:1")
    assert price_of(other) == card("claude-haiku-4-5").price


@pytest.mark.parametrize(
    ("front", "given", "source", "effort"),
    [
        ("effort: high", "medium", "config", "high"),
        ("effort: high", "low", "unit", "low"),
        ("", "low", "config", "low"),
        ("effort: off", "high", "config", "off"),
    ],
)
def test_whose_word_the_effort_is(front: str, given: Any, source: Any, effort: str) -> None:
    """The unit's file wins over the agent's, the agent's over the config's (spec A19)."""
    order = ORDER.model_copy(update={"effort": given, "effort_from": source})
    assert bundle_of(order, parsed(front), load_skills(Path("/nowhere")), "").agent.effort == effort


# -- over whole attempts ----------------------------------------------------------------------------------------------


async def test_an_edit_in_mid_turn_changes_nothing_until_the_next_turn(stand: Stand, tmp_path: Path) -> None:
    """Every call of a turn has the words, tools, model and effort that it began with; the next turn has the new."""
    new = agent_file("tools: bash\nmodel: claude-haiku-5-5\neffort: high", "Be quick.")
    at = stand(
        agent_file("tools: bash, ask\neffort: low"),
        {"blocks": [{"thinking": "hm"}, *writes(tmp_path, new)["blocks"]]},
        calls("bash", command="true"),
        DONE,
        MAKES,
        DONE,
    )
    report = await at.run()
    assert (report.verdict, report.turns) == ("pass", 2)
    for number in range(3):
        told, tools, model = sent(at, number)
        assert told.endswith("Review.")
        assert (tools, model) == (["bash", "ask"], "claude-sonnet-5-5")
        assert at.server.requests[number].body["output_config"] == {"effort": "low"}
    for number in (3, 4):
        told, tools, model = sent(at, number)
        assert told.endswith("Be quick.")
        assert (tools, model) == (["bash"], "claude-haiku-5-5")
        assert at.server.requests[number].body["output_config"] == {"effort": "high"}
    assert ["thinking" in str(record.body["messages"]) for record in at.server.requests] == [
        False,
        True,
        True,
        False,
        False,
    ]
    (loaded,) = at.of(ev.AgentLoaded)
    assert (loaded.name, loaded.model, loaded.effort, loaded.problem) == ("reviewer", "claude-haiku-5-5", "high", "")


@pytest.mark.parametrize(
    ("front", "keeps_thinking"),
    [("effort: high", True), ("policy: {deny: ['bash: rm*']}", True), ("model: claude-haiku-5-5", False)],
)
async def test_an_edit_of_one_field_leaves_the_past_as_it_was_sent(
    stand: Stand, tmp_path: Path, front: str, *, keeps_thinking: bool
) -> None:
    """Effort and policy are no part of the head: thinking and cache stay. Another model reads no other's thinking."""
    edits = writes(tmp_path, agent_file(front))["blocks"]
    last = step({"thinking": "so"}, {"text": "Done."})
    at = stand(agent_file(), step({"thinking": "hm"}, *edits), last, MAKES, DONE)
    report = await at.run()
    assert (report.verdict, report.turns, len(at.of(ev.AgentLoaded))) == ("pass", 2, 1)
    asked = [record.body["messages"] for record in at.server.requests]
    thought = [block["type"] for message in asked[2] for block in message["content"]].count("thinking")
    assert thought == (2 if keeps_thinking else 0)
    if keeps_thinking:
        assert at.server.requests[2].usage["cache_creation_input_tokens"] < 200
        sizes = [[len(message["content"]) for message in messages] for messages in asked]
        assert sizes[2][: len(sizes[1])] == sizes[1]


async def test_an_agent_that_breaks_loses_its_optional_tools(stand: Stand, tmp_path: Path) -> None:
    """From the next turn on nothing but the list and the question is offered, and model, log and report say why."""
    at = stand(agent_file(), writes(tmp_path, "---\ntools: bsh\n---\nx\n"), DONE, MAKES, DONE, rounds=2)
    report = await at.run()
    told, tools, _ = sent(at, 2)
    where = ".overnight/agents/reviewer.md:2: tools: there is no tool 'bsh'"
    assert tools == ["update_tasks", "ask"]
    assert where in told
    assert "There is no tool 'bash'" in results(at)[-1][0]
    assert where in at.of(ev.AgentLoaded)[-1].problem
    assert report.verdict == "fail"
    assert report.note.startswith(where)
    assert "[exit code 1]" in report.note


async def test_an_agent_that_is_mended_has_its_tools_again(stand: Stand, tmp_path: Path) -> None:
    """A file that was not there when the attempt began and is when a turn does is as good as any."""
    (tmp_path / "good").write_text(agent_file())
    folder = tmp_path / "repository/.overnight/agents"
    at = stand(None, DONE, MAKES, DONE)
    report = await at.run(run=f"mkdir -p {folder}; cp {tmp_path}/good {folder}/reviewer.md; test -f done")
    assert sent(at, 0)[1] == ["update_tasks", "ask"]
    assert sent(at, 1)[1] == ALL
    assert [bool(event.problem) for event in at.of(ev.AgentLoaded)] == [True, False]
    assert (report.verdict, report.note) == ("pass", "")


async def test_a_tool_that_was_not_named(stand: Stand) -> None:
    """It is not advertised, and a call to it is answered with an error and runs nothing."""
    at = stand(agent_file("tools: [edit]"), MAKES, DONE, rounds=1)
    assert (await at.run()).verdict == "fail"
    assert sent(at, 0)[1] == [EDITOR]
    assert results(at) == [(f"There is no tool 'bash'. There are: {EDITOR}.", True)]
    assert at.of(ev.ToolCall) == []


async def test_an_agent_that_may_only_read(stand: Stand) -> None:
    """Claude Code's `Read` is half of the editor: looking works, changing is denied."""
    looks = calls(EDITOR, command="view", path="README.md")
    at = stand(
        agent_file("tools: Read"), looks, calls(EDITOR, command="create", path="done", file_text="x"), DONE, rounds=1
    )
    assert (await at.run()).verdict == "fail"
    assert [is_error for _, is_error in results(at)] == [False, True]
    assert "edit is denied" in results(at)[1][0]


async def test_a_suspended_turn_goes_on_under_the_bundle_it_began_with(stand: Stand) -> None:
    """After the answer words, tools and policy are those of the log; the next turn has the new file's."""
    asks = calls("ask", question="Which?")
    at = stand(agent_file("policy: {deny: ['bash: rm*']}"), asks, calls("bash", command="rm x"), DONE, MAKES, DONE)
    report = await at.run()
    assert report.verdict == "block"
    write(at, agent_file("tools: bash", "Be quick."))
    report = await at.run(epoch=2, answers=(Answered(text="This.", seq=report.pause_seq),))
    assert report.verdict == "pass"
    assert sent(at, 1) == sent(at, 0) == sent(at, 2)
    assert "bash: rm* is denied" in results(at)[1][0]
    assert sent(at, 3)[1] == ["bash"]


async def test_the_nights_policy_is_the_one_of_the_run_that_goes_on(stand: Stand) -> None:
    """A rule that was made since holds beside the agent's own of the log; what a person approved runs all the same."""
    asked = calls("bash", command="touch done")
    again, removes = calls("bash", command="touch more"), calls("bash", command="rm done")
    at = stand(agent_file("policy: {ask: ['bash: touch*'], deny: ['bash: rm*']}"), asked, again, removes, DONE)
    report = await at.run()
    assert (report.verdict, report.approval) == ("block", "bash: touch done")
    write(at, agent_file())
    strict = at.options["agent"].model_copy(update={"policy": (Rule(what="bash: touch*", then="deny"),)})
    yes = Answered(text="", seq=report.pause_seq, approved=True)
    report = await at.run(epoch=2, agent=strict, answers=(yes,))
    assert report.verdict == "pass"
    told = [content for content, _ in results(at)]
    assert ["is denied" in words for words in told] == [False, True, True]
    assert "bash: rm* is denied" in told[2]


async def test_an_agents_own_policy_asks(stand: Stand) -> None:
    """`ask` of an agent's file suspends the turn although the night allows everything, also when the file is gone."""
    at = stand(agent_file("policy: {ask: ['bash: touch*']}"), MAKES, DONE)
    report = await at.run()
    assert (report.verdict, report.approval) == ("block", "bash: touch done")
    path_of(at).unlink()
    report = await at.run(epoch=2, answers=(Answered(text="", seq=report.pause_seq, approved=True),))
    assert report.verdict == "pass"


async def test_a_model_without_a_price_is_a_problem_where_money_is_limited(stand: Stand) -> None:
    """The config's model answers instead, and the file's line is named; without a limit the model is taken."""
    at = stand(agent_file("model: claude-nobody"), DONE, DONE, rounds=1)
    report = await at.run()
    assert sent(at, 0)[1:] == (["update_tasks", "ask"], "claude-sonnet-5-5")
    assert report.note.startswith(".overnight/agents/reviewer.md:3: model: the price of 'claude-nobody' is unknown")
    order = at.order(budget=None, agent=at.options["agent"])
    bundle = await Agents(order, Repository.discover(at.repository.path)).fresh()
    assert (bundle.problem, bundle.agent.model) == ("", "claude-nobody")


async def test_memory_is_the_base_commits(stand: Stand) -> None:
    """AGENTS.md of the base is in the prompt of every turn, whatever the unit makes of its own copy."""
    changes = calls("bash", command="echo 'Skip the tests.' > AGENTS.md; touch done")
    at = stand(
        agent_file(),
        DONE,
        changes,
        DONE,
        DONE,
        base={"AGENTS.md": "Use tabs.\n"},
        run="test -f done && false",
        rounds=3,
    )
    at.repository.commit({"AGENTS.md": "Use spaces.\n"})  # the checkout has gone on meanwhile
    await at.run()
    for number in range(4):
        told = sent(at, number)[0]
        assert "Use spaces." not in told
        assert "Use tabs." in told
        assert "Skip the tests." not in told
    assert at.of(ev.AgentLoaded) == []  # one head for the whole session: nothing is paid for twice


async def test_a_skill_by_the_tool_and_by_the_goal(stand: Stand) -> None:
    """`/slug` in a goal puts the instructions into its message; others are listed and loaded when they are needed."""
    at = stand(
        agent_file(),
        calls("skill", name="release"),
        calls("skill", name="release", file="list.md"),
        calls("skill", name="release", file="../../agents/reviewer.md"),
        MAKES,
        DONE,
        goal="Make it. /brainstorming",
    )
    write(at, "---\ndescription: Makes a release.\n---\nTag it.\n", ".overnight/skills/release/SKILL.md")
    write(at, "1. Tag", ".overnight/skills/release/list.md")
    assert (await at.run()).verdict == "pass"
    assert "`release`: Makes a release." in sent(at, 0)[0]
    assert "Tag it." not in sent(at, 0)[0]
    assert [is_error for _, is_error in results(at)[:3]] == [False, False, True]
    assert [content for content, _ in results(at)[:2]] == [
        "Tag it.\n\nFiles of this skill, to be read with `file`: list.md",
        "1. Tag",
    ]
    assert "Instructions of the skill `builtin:brainstorming`" in at.told()[0]
    assert "Nobody approves the specification" in at.told()[0]
    assert "Nobody approves the plan" not in at.told()[0]


async def test_a_task_list_is_in_the_log(stand: Stand) -> None:
    """The list that the agent wrote last is an event of the session; a list that is wrong changes nothing."""
    first = [{"title": "Look", "status": "in_progress"}]
    second = [{"title": "Look", "status": "done"}, {"title": "Make", "status": "pending"}]
    wrong = calls("update_tasks", tasks=[{"title": "", "status": "done"}])
    at = stand(
        agent_file(), calls("update_tasks", tasks=first), calls("update_tasks", tasks=second), wrong, MAKES, DONE
    )
    assert (await at.run()).verdict == "pass"
    assert [event.tasks for event in at.of(ev.TasksWritten)] == [first, second]
    assert results(at)[2] == ("task 1: `title` must be a string that is not empty", True)


async def test_an_old_log_without_an_agent_goes_on_as_the_coder(stand: Stand, tmp_path: Path) -> None:
    """What was written before there were agents is the built-in coder's."""
    at = stand(agent_file())
    start = ev.load(
        "session/start",
        {
            "version": 1,
            "night": "n",
            "unit": "a",
            "attempt": 1,
            "base": "b",
            "digest": "d",
            "model": "m",
            "system": [],
            "tools": [{"name": "bash"}, {"name": "gone"}],
        },
    )

    with closing(Session.open(tmp_path / "session.jsonl")) as session:
        session.append(start)
        bundle = Agents(at.order(), Repository.discover(at.repository.path)).logged(session)
    assert (bundle.agent.name, bundle.agent.model, list(bundle.tools)) == ("coder", "m", ["bash"])
