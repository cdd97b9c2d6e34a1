"""`overnight agents`: who can work here and what they can look up, with what is wrong in each file."""

import json
from pathlib import Path
from typing import Any

import click

from dispatcher.agents import faults_of
from dispatcher.context import Context
from dispatcher.errors import BadInput
from workers.agents.agent_file import BUILT_IN, EDITOR, AgentFile, agent_names, load_agent, path_of
from workers.agents.skills import SKILLS_PATH, Skill, load_skills
from workers.errors import BundleFileError
from workers.session.transcript import harmless

__all__ = ["command"]


@click.command("agents")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
@click.pass_context
def command(ctx: click.Context, *, as_json: bool) -> None:
    """List agents and skills, built in and of this repository. Exit 2 when a file cannot be used."""
    here = Context.here()
    root, default = here.repository.root, here.config.agent.default
    agents = [_agent(root, name, is_default=name == default) for name in _names(root)]
    catalogue = load_skills(root)
    skills = [_skill(skill) for skill in catalogue.skills.values()]
    skills += [{"name": slug, "problems": _shown(error)} for slug, error in catalogue.problems.items()]
    if as_json:
        click.echo(json.dumps({"agents": agents, "skills": skills}, ensure_ascii=False))
    else:
        click.echo(harmless("\n".join([*_listed("agents", agents), *_listed("skills", skills)])))
    ctx.exit(2 if any(one["problems"] for one in (*agents, *skills)) else 0)


def _names(root: Path) -> list[str]:
    try:
        return agent_names(root)
    except BundleFileError as error:
        raise BadInput.all_of(list(faults_of(error))) from error


def _agent(root: Path, name: str, *, is_default: bool) -> dict[str, Any]:
    try:
        agent = load_agent(root, name)
    except BundleFileError as error:
        return {"name": name, "file": str(path_of(name)), "problems": _shown(error)}
    notes = list(agent.notes)
    if agent.path is not None and name in BUILT_IN:
        notes.insert(0, "stands in for the built-in agent")
    return {
        "name": name,
        "file": None if agent.path is None else str(agent.path),
        "default": is_default,
        "description": agent.description,
        "model": agent.model,
        "effort": agent.effort,
        "tools": None if agent.tools is None else sorted(agent.tools),
        "skills": None if agent.skills is None else list(agent.skills),
        "policy": [f"{rule.then} {rule.what}" for rule in agent.rules],
        "about": _about(agent),
        "notes": notes,
        "problems": [],
    }


def _about(agent: AgentFile) -> str:
    """Return in a line how an agent differs from what is usual."""
    tools = None if agent.tools is None else [name for name in sorted(agent.tools) if name != EDITOR]
    if tools is not None and EDITOR in (agent.tools or ()):
        tools.append("view" if any(rule.what == "edit" and rule.then == "deny" for rule in agent.rules) else "edit")
    parts = [
        agent.model or "",
        f"effort {agent.effort}" if agent.effort else "",
        "" if tools is None else f"tools {', '.join(tools) or 'none'}",
        "" if agent.skills is None else f"skills {', '.join(agent.skills) or 'none'}",
    ]
    return "; ".join(part for part in parts if part)


def _skill(skill: Skill) -> dict[str, Any]:
    notes = list(skill.notes)
    if skill.shadows:
        notes.insert(0, f"stands in for builtin:{skill.slug}")
    if not skill.is_listed:
        notes.insert(0, "only by /slug in a goal")
    return {
        "name": skill.name,
        "file": None if skill.root is None else str(SKILLS_PATH / skill.slug / "SKILL.md"),
        "description": skill.description,
        "notes": notes,
        "problems": [],
    }


def _shown(error: BundleFileError) -> list[str]:
    return [str(one) for one in error.problems]


def _listed(heading: str, entries: list[dict[str, Any]]) -> list[str]:
    lines = [heading]
    for entry in entries:
        if entry["problems"]:
            lines += [f"✘ {entry['name']}", *(f"    {problem}" for problem in entry["problems"])]
            continue
        source = "built in" if entry["file"] is None else entry["file"]
        default = ", default" if entry.get("default") else ""
        lines.append(f"✔ {entry['name']}  ({source}{default})")
        lines += [f"    {line}" for line in (entry["description"], entry.get("about")) if line]
        lines += [f"    note: {note}" for note in entry["notes"]]
    return lines
