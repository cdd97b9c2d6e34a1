"""Merging in memory, and moving a ref forward by compare-and-swap. No checkout is needed or touched."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from worktrees.errors import GitError, RepositoryError
from worktrees.git import GitResult
from worktrees.repository import COMMIT_ID, Repository, split_nul

DETAIL_LIMIT = 2_000


@dataclass(frozen=True)
class Clean:
    """A merge without conflicts: the id of the merged tree."""

    tree: str


@dataclass(frozen=True)
class Conflict:
    """A merge that needs a decision: the paths, and what git said about them (at most 2,000 characters)."""

    paths: tuple[str, ...]
    detail: str


def merge_trees(repository: Repository, ours: str, theirs: str) -> Clean | Conflict:
    """Merge two commits in memory. Raises RepositoryError for an unknown one, GitError (no common history)."""
    pair = (repository.resolve(ours), repository.resolve(theirs))  # 2.39 exits 1 for an unknown ref as well
    command = ("merge-tree", "--write-tree", "--name-only", "-z", *pair)
    result = repository.git.run(*command, check=False)
    tree = result.stdout.partition("\0")[0].strip()
    if result.code not in (0, 1) or not COMMIT_ID.fullmatch(tree):
        raise GitError(command, result.code, result.stderr)
    return Clean(tree) if result.code == 0 else _conflict(result)


def _conflict(result: GitResult) -> Conflict:
    """Take apart `tree NUL (path NUL)… NUL (count NUL path… NUL kind NUL message NUL)…`."""
    _tree, _, rest = result.stdout.partition("\0")
    listed, _, messages = f"\0{rest}".partition("\0\0")
    return Conflict(tuple(dict.fromkeys(split_nul(listed))), _messages(messages)[:DETAIL_LIMIT])


def _messages(text: str) -> str:
    fields, texts = text.split("\0"), []
    while fields and fields[0].isdigit():
        after_paths = 1 + int(fields[0])
        texts.append("".join(fields[after_paths + 1 : after_paths + 2]).strip())
        fields = fields[after_paths + 2 :]
    return "\n".join(texts).encode(errors="surrogateescape").decode(errors="replace")


def commit_merge(repository: Repository, *, tree: str, parents: Sequence[str], message: str) -> str:
    """Write a commit of `tree` with these parents, in our name, and return its id. No ref moves."""
    words = [word for parent in parents for word in ("-p", repository.resolve(parent))]
    return repository.git.run("commit-tree", tree, *words, "-F", "-", stdin=message).stdout.strip()


def advance(repository: Repository, ref: str, *, new: str, old: str | None, message: str) -> None:
    """Move `ref` from `old` (None: it must not exist) to `new`.

    Raises RefMoved when it is elsewhere, and RepositoryError when it is checked out in some worktree:
    moving it there would make that checkout show the whole merge as undone.
    """
    place = _checked_out_at(repository, ref)
    if place is not None:
        name = ref.removeprefix("refs/heads/")
        text = f"{name} is checked out in {place} and cannot be moved from outside. Switch that checkout first."
        raise RepositoryError(text, place)
    repository.update_ref(ref, repository.resolve(new), old, message=message)


def _checked_out_at(repository: Repository, ref: str) -> Path | None:
    place = None
    for line in repository.git.run("worktree", "list", "--porcelain", "-z").stdout.split("\0"):
        key, _, value = line.partition(" ")
        if key == "worktree":
            place = Path(value)
        elif key == "branch" and value == ref:
            return place
    return None
