"""Agents' files over real nights: who works, what an edit changes and when, and what is bad input before any token."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from night_stand import QUICK, Ended, Project, bash, makes, plays, says, until

MakeNight = Callable[..., Project]
AGENT = "---\nname: reviewer\ndescription: Reviews.\n{front}\n---\n\n{body}\n"


def write_agent(project: Project, front: str = "", body: str = "Review.", name: str = "reviewer") -> None:
    text = AGENT.format(front=front, body=body).replace("name: reviewer", f"name: {name}")
    project.write(f".overnight/agents/{name}.md", text)


def messages_of(project: Project, unit: str) -> list[dict[str, Any]]:
    """Return the bodies of a unit's model calls, in order."""
    bodies = [record.body for record in project.server.requests if record.path == "/v1/messages"]
    return [
        body
        for body in bodies
        if body is not None and f"unit: {unit}\n" in json.dumps(body["messages"][0]).replace("\\n", "\n")
    ]


def told(body: dict[str, Any]) -> str:
    return "\n\n".join(part["text"] for part in body["system"])


def tools(body: dict[str, Any]) -> list[str]:
    return [tool["name"] for tool in body["tools"]]


def test_each_unit_has_its_agent_and_all_share_the_memory(night: MakeNight) -> None:
    """One unit has its own agent, one the config's default; the base's AGENTS.md is the same for both."""
    project = night(
        plays({"create-foo": makes("foo.txt"), "create-bar": makes("bar.txt")}),
        config=f'{QUICK}[agent]\ndefault = "other"\n',
    )
    project.write("AGENTS.md", "Use tabs.\n")
    project.git("add", "AGENTS.md")
    project.git("commit", "-q", "-m", "memory")
    project.write("AGENTS.md", "Not committed.\n")
    write_agent(project, "model: claude-haiku-5-5\ntools: [bash]\neffort: high")
    write_agent(project, "effort: low", "Do other things.", "other")
    project.unit("create-foo", agent="reviewer")
    project.unit("create-bar", effort="medium")
    ended = project.overnight("run", "-j", "2")
    assert ended.code == 0, ended.text
    (foo, *_), (bar, *_) = messages_of(project, "create-foo"), messages_of(project, "create-bar")
    assert (foo["model"], tools(foo), foo["output_config"]) == ("claude-haiku-5-5", ["bash"], {"effort": "high"})
    assert (bar["model"], len(tools(bar)), bar["output_config"]) == ("claude-sonnet-5-5", 5, {"effort": "medium"})
    assert told(foo).endswith("Review.")
    assert told(bar).endswith("Do other things.")
    assert foo["system"][1] == bar["system"][1]
    assert "Use tabs." in foo["system"][1]["text"]
    assert "Not committed." not in told(bar)


def test_an_edit_in_mid_turn_is_in_force_from_the_next_turn(night: MakeNight) -> None:
    """The file changes while the model thinks: that turn goes on as it began, the next one has the new file."""
    steps = [bash("ls"), bash("ls", latency=1.5), says("Tried."), *makes("foo.txt")]
    project = night(plays({"create-foo": steps}))
    write_agent(project, "tools: bash, ask")
    project.unit("create-foo", agent="reviewer")
    run = project.start("run", "-j", "1")
    until(lambda: project.calls("create-foo") == 2, "the second step")
    write_agent(project, "tools: bash", "Be quick.")
    ended = run.wait()
    assert ended.code == 0, ended.text
    bodies = messages_of(project, "create-foo")
    assert [told(body).endswith("Be quick.") for body in bodies] == [False, False, False, True, True]
    assert [len(tools(body)) for body in bodies] == [2, 2, 2, 1, 1]
    log = project.overnight("log", "create-foo").out
    assert "agent       reviewer on claude-sonnet-5-5" in log


def test_an_agent_that_breaks_in_the_night_is_named_in_the_morning(night: MakeNight) -> None:
    """The unit goes on without optional tools, spends no effect on a guess, and its note begins with file and line."""
    steps = [bash("ls", latency=1.5), says("Tried."), bash("echo made > foo.txt"), says("I have no tools.")]
    limits = "[limits]\nattempts = 1\nrounds = 2\n"
    project = night(plays({"create-foo": steps}), config=QUICK + limits)
    write_agent(project)
    project.unit("create-foo", agent="reviewer")
    run = project.start("run", "-j", "1")
    until(lambda: project.calls("create-foo") == 1, "the first step")
    write_agent(project, "tools: [bsh]")
    ended = run.wait()
    assert ended.code == 1, ended.text
    bodies = messages_of(project, "create-foo")
    assert [tools(body) for body in bodies[2:]] == [["update_tasks", "ask"]] * 2
    where = ".overnight/agents/reviewer.md:4: tools.0: there is no tool 'bsh'"
    assert where in told(bodies[2])
    assert where in project.overnight("log", "create-foo").out
    assert ".overnight/agents/reviewer.md:4" in project.overnight("report").out
    assert project.ids("passed") == []


# -- before anybody works ---------------------------------------------------------------------------------------------


def refused(ended: Ended, *words: str) -> None:
    assert ended.code == 2, ended.text
    assert "Traceback" not in ended.text
    for word in words:
        assert word in ended.err, f"{word!r} is not in: {ended.err}"


@pytest.mark.parametrize(
    ("front", "words"),
    [
        ("tools: [bsh]", ("agents/reviewer.md:4: tools.0", "did you mean 'bash'")),
        ("colour: red", ("agents/reviewer.md:4: colour", "unknown key")),
        ("skills: [relese]", ("agents/reviewer.md:4: skills", "there is no skill 'relese'")),
        ("model: claude-nobody", ("agents/reviewer.md:4: model", "price")),
    ],
)
def test_a_broken_agent_is_bad_input(night: MakeNight, front: str, words: tuple[str, ...]) -> None:
    """File, line and field are named, and the model is not asked anything."""
    project = night(plays({"create-foo": makes("foo.txt")}))
    write_agent(project, front)
    project.unit("create-foo", agent="reviewer")
    refused(project.overnight("run"), *words)
    assert project.server.requests == []


def test_an_agent_that_is_not_there_is_the_units_fault_or_the_configs(night: MakeNight) -> None:
    """Whoever names it is named, with what was probably meant."""
    project = night(plays({"create-foo": makes("foo.txt")}))
    write_agent(project)
    path = project.unit("create-foo", agent="reviwer")
    refused(
        project.overnight("run"), "units/create-foo.md: agent: there is no agent 'reviwer'", "did you mean 'reviewer'"
    )
    path.unlink()
    project.unit("create-foo")
    project.config(f'{QUICK}[agent]\ndefault = "nobody"\n')
    refused(project.overnight("run"), "config.toml: agent.default: there is no agent 'nobody'")
    assert project.server.requests == []


def test_a_broken_skill_that_a_goal_calls_for(night: MakeNight) -> None:
    """`/slug` of a skill that cannot be loaded is found before anybody works without it."""
    project = night(plays({"create-foo": makes("foo.txt")}))
    project.write(".overnight/skills/release/SKILL.md", "Tag it.")
    project.write(".overnight/units/create-foo.md", "---\nverify: test -f foo.txt\n---\n\nDo it. /release\n")
    refused(project.overnight("run"), "skills/release/SKILL.md:1", "front matter")
    assert project.server.requests == []


def test_the_list_of_agents_and_skills(night: MakeNight) -> None:
    """`overnight agents` shows who there is, what stands in for what, and what is wrong; a fault is exit 2."""
    project = night(plays({}))
    good = project.overnight("agents")
    assert good.code == 0, good.text
    assert "✔ coder  (built in, default)" in good.out
    assert "✔ builtin:writing-plans  (built in)" in good.out
    write_agent(project, "tools: Read\ncolor: red\nmodel: haiku")
    write_agent(project, name="coder")
    write_agent(project, "tools: [bsh]", name="broken")
    project.write(".overnight/skills/brainstorming/SKILL.md", "---\ndescription: Ours.\n---\nx\n")
    project.write(".overnight/skills/release/SKILL.md", "Tag it.")
    bad = project.overnight("agents")
    assert bad.code == 2, bad.text
    for line in [
        "✘ broken\n    .overnight/agents/broken.md:4: tools.0: there is no tool 'bsh'",
        "✔ coder  (.overnight/agents/coder.md, default)",
        "note: stands in for the built-in agent",
        "claude-haiku-5-5; tools view",
        "note: color is Claude Code's",
        "note: stands in for builtin:brainstorming",
        "✘ release\n    .overnight/skills/release/SKILL.md:1:",
    ]:
        assert line in bad.out, bad.out
    facts = json.loads(project.overnight("agents", "--json").out)
    assert {one["name"]: bool(one["problems"]) for one in facts["agents"]} == {
        "broken": True,
        "coder": False,
        "reviewer": False,
    }
