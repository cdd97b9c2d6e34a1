"""Skills: instructions that an agent loads when it needs them (the Agent Skills convention; spec A25).

Built-in ones come with the package, a project's own are `.overnight/skills/<slug>/SKILL.md`. All of them are read when
a turn starts; other files of a skill's folder only when somebody asks, never outside of it and never through a link.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path, PurePosixPath

from workers.errors import BundleFileError, ToolError
from workers.tools import beneath

from .front_matter import FrontMatter, read_front_matter

__all__ = ["SKILLS_PATH", "Skill", "Skills", "load_skills"]

SKILLS_PATH = Path(".overnight/skills")
"""Relative to the checkout."""

_FILE = "SKILL.md"
_SLUG = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_LONGEST_SLUG, _LONGEST_DESCRIPTION = 64, 1024  # as the convention has it
_MOST_CHARACTERS = 100_000  # instructions that are longer would fill the model's window
_MOST_FILES = 100
_KNOWN = frozenset(
    {"name", "description", "disable-model-invocation", "license", "compatibility", "metadata", "version"}
)
# A slash and a slug that are not part of a path.
_INVOKED = re.compile(r"(?<![\w/.:~-])/(?:builtin:)?([a-z0-9]+(?:-[a-z0-9]+)*)(?![\w/-])(?!\.\w)")


@dataclass(frozen=True, slots=True)
class Skill:
    """One skill. `root` is the checkout that its folder is in, None for a built-in one.

    `is_listed` is False where only a person may call for it. `shadows` says that it stands in for a built-in one.
    """

    slug: str
    description: str
    instructions: str
    root: Path | None = None
    is_listed: bool = True
    shadows: bool = False
    notes: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The name in the catalogue: built-in ones say that they are."""
        return f"builtin:{self.slug}" if self.root is None else self.slug

    @property
    def folder(self) -> PurePosixPath:
        """The skill's folder, relative to the checkout."""
        return PurePosixPath(SKILLS_PATH, self.slug)


@dataclass(frozen=True, slots=True)
class Skills:
    """The catalogue, by slug, and what is wrong with the files that are not in it."""

    skills: Mapping[str, Skill]
    problems: Mapping[str, BundleFileError]

    def limited(self, slugs: Collection[str] | None) -> "Skills":
        """Return the part of the catalogue that an agent names; None: all of it."""
        if slugs is None:
            return self
        return Skills({slug: skill for slug, skill in self.skills.items() if slug in slugs}, self.problems)

    def listed(self) -> list[Skill]:
        """Return what the model may load by itself."""
        return [skill for skill in self.skills.values() if skill.is_listed]

    def invoked(self, text: str) -> list[Skill]:
        """Return the skills that a text calls for as `/slug`, each once, in that order."""
        return [self.skills[slug] for slug in self.named(text) if slug in self.skills]

    @staticmethod
    def named(text: str) -> list[str]:
        """Return what a text may mean as the slugs of skills, each once, in that order."""
        return list(dict.fromkeys(_INVOKED.findall(text)))

    # -- what the tool `skill` is given ---------------------------------------------------------------------------

    def instructions(self, name: str) -> str:
        """Return a skill's instructions with the names of its other files. Raises ToolError."""
        return "\n\n".join(part for part in (self._skill(name).instructions, self._others(self._skill(name))) if part)

    def file(self, name: str, path: str) -> str:
        """Return a file of a skill's folder as text. Raises ToolError for one outside it or behind a link."""
        skill = self._skill(name)
        wanted = PurePosixPath(path)
        if wanted.is_absolute() or ".." in wanted.parts or "\0" in path or not wanted.name:
            raise ToolError(f"{path!r} is no file of the skill; name it relative to the skill's folder, without `..`")
        if skill.root is None:
            raise ToolError(f"{skill.name} has no files but its instructions")
        try:
            text = beneath.read_bytes(skill.root, skill.folder / wanted).decode("utf-8")
        except UnicodeDecodeError:
            raise ToolError(f"{path} is not UTF-8 text") from None
        if len(text) > _MOST_CHARACTERS:
            return f"{text[:_MOST_CHARACTERS]}\n[… {len(text) - _MOST_CHARACTERS:,} more characters]"
        return text

    def _skill(self, name: str) -> Skill:
        slug = name.removeprefix("builtin:").removeprefix("/")
        found = self.skills.get(slug)
        if found is not None and name.startswith("builtin:") and found.root is not None:
            found = _built_in().get(slug)
        if found is None:
            names = ", ".join(skill.name for skill in self.listed()) or "none"
            raise ToolError(f"there is no skill {name!r}; there are: {names}")
        return found

    def _others(self, skill: Skill) -> str:
        if skill.root is None:
            return ""
        names = [name for name in beneath.list_directory(skill.root, skill.folder, depth=3) if not name.endswith("/")]
        others = [name for name in names if name != _FILE][:_MOST_FILES]
        return f"Files of this skill, to be read with `file`: {', '.join(others)}" if others else ""


def load_skills(root: Path) -> Skills:
    """Return the catalogue of the checkout at `root` as its files are now. Never raises for a file that is wrong."""
    found = dict(_built_in())
    problems: dict[str, BundleFileError] = {}
    for slug in _slugs(root, problems):
        try:
            skill = _load(root, slug)
        except BundleFileError as error:
            problems[slug] = error
            found.pop(slug, None)  # the one that it stands in for is not what somebody wanted
        else:
            found[slug] = skill
    return Skills(dict(sorted(found.items())), problems)


def _slugs(root: Path, problems: dict[str, BundleFileError]) -> Iterator[str]:
    try:
        names = sorted(path.name for path in (root / SKILLS_PATH).iterdir() if path.name[0] != ".")
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        problems[""] = BundleFileError(f"cannot be read: {error.strerror}", path=SKILLS_PATH)
        return
    for name in names:
        if _is_folder(root, name):
            yield name


def _is_folder(root: Path, name: str) -> bool:
    path = root / SKILLS_PATH / name
    return path.is_dir() or path.is_symlink()  # a link is named as what is wrong; a stray file is not ours


def _load(root: Path, slug: str) -> Skill:
    path = SKILLS_PATH / slug / _FILE
    if not _SLUG.fullmatch(slug) or len(slug) > _LONGEST_SLUG:
        raise BundleFileError(f"a skill's folder has a name of a-z, 0-9 and '-', which {slug!r} is not", path=path)
    try:
        text = beneath.read_bytes(root, PurePosixPath(path)).decode("utf-8")
    except ToolError as error:
        message = str(error).removeprefix(f"{path}").removeprefix(": ").strip()
        raise BundleFileError(f"cannot be read: {message}", path=path) from error
    except UnicodeDecodeError:
        raise BundleFileError("is not UTF-8; save it as UTF-8", path=path) from None
    return _skill_of(read_front_matter(text, path), slug, root)


def _skill_of(front: FrontMatter, slug: str, root: Path | None) -> Skill:
    name, description = front.values.get("name"), front.values.get("description")
    if name is not None and name != slug:
        raise front.fault(f"is {name!r}, but the folder's name says {slug!r}: make them the same", "name")
    if not isinstance(description, str) or not description.strip():
        raise front.fault("is missing: say in a line what the skill is for and when to use it", "description")
    if len(description) > _LONGEST_DESCRIPTION:
        raise front.fault(f"has {len(description)} characters; at most {_LONGEST_DESCRIPTION}", "description")
    if not front.body or len(front.body) > _MOST_CHARACTERS or "\0" in front.body:
        message = f"the instructions are missing, have a NUL character, or more than {_MOST_CHARACTERS:,} characters"
        raise BundleFileError(message, path=front.path, line=front.body_line)
    return Skill(
        slug=slug,
        description=" ".join(description.split()),
        instructions=front.body,
        root=root,
        is_listed=front.values.get("disable-model-invocation") != "true",
        shadows=root is not None and slug in _built_in(),
        notes=tuple(f"{key} means nothing here" for key in front.values if key not in _KNOWN),
    )


@cache
def _built_in() -> Mapping[str, Skill]:
    folder = files("workers.agents").joinpath("builtin", "skills")
    found: Iterable[tuple[str, str]] = (
        (one.name, one.joinpath(_FILE).read_text("utf-8")) for one in folder.iterdir() if one.is_dir()
    )
    made = {slug: _skill_of(read_front_matter(text, SKILLS_PATH / slug / _FILE), slug, None) for slug, text in found}
    return dict(sorted(made.items()))
