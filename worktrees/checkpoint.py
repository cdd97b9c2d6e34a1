"""The commit of everything an agent left in its worktree, with changes to protected paths taken back.

The agent may have rewritten the `.git` file, moved HEAD, made commits, set flags in the index or nested a
repository: none of it decides what is committed, which is the files as they are, on top of what we knew.
Files go in by explicit list (`update-index`), since `git add` would run git inside nested repositories.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from worktrees.errors import GitError, NestedRepository, RepositoryError
from worktrees.files import disk_error, write_atomic
from worktrees.git import Git
from worktrees.globs import is_match
from worktrees.repository import COMMIT_ID, split_nul, update_ref
from worktrees.worktree import Worktree, keep

LINK_TO_REPOSITORY = "160000"


@dataclass(frozen=True)
class Checkpoint:
    """A commit of a worktree: its tree and parent, which paths were taken back, and which differ from base."""

    commit: str
    tree: str
    parent: str
    taken_back: tuple[str, ...]
    changed: tuple[str, ...]


@dataclass(frozen=True)
class _Change:
    """One path of the index that differs from the base; mode and blob are the base's, `status` is git's letter."""

    path: str
    status: str
    mode: str
    blob: str


def checkpoint(
    worktree: Worktree,
    *,
    base: str,
    message: str,
    protected: Sequence[str] = (),
    may_edit: Sequence[str] = (),
    ref: str | None = None,
    expected: str | None = None,
) -> Checkpoint:
    """Commit all files that are not ignored; move the worktree's HEAD, and `ref` from `expected`, to the commit.

    Paths that match `protected` and not `may_edit` (patterns as in globs.py) go back to what they are in
    `base`, in the index and on disk. Without a change against its parent no commit is made: it is the parent
    then. `expected` is the last checkpoint (default: the base): commits that the agent made on top of it stay
    in the history if they are a plain line, otherwise they are kept aside and only their files count.
    Only while no process works in the worktree. Raises NestedRepository, RefMoved, RepositoryError, GitError.
    """
    worktree.restore_pointer()
    worktree.clear_locks()
    git = worktree.git()
    commits = _commits(worktree, base, base if expected is None else expected)
    base, anchor = commits[0].id, commits[1]
    parent = _settle_head(worktree, anchor)
    tracked = _start_index(worktree, git, parent.id)
    _take_in(git, _untracked_unless_nested(worktree, git, tracked))
    taken_back, changed = _take_back(worktree, base, protected, may_edit)
    tree = git.run("write-tree").stdout.strip()
    commit = _commit_tree(git, tree, parent, message)
    _move(git, parent.id, commit, message)
    if ref is not None:
        update_ref(git, ref, commit, expected, message=message)
    return Checkpoint(commit, tree, parent.id, taken_back, changed)


@dataclass(frozen=True)
class _Commit:
    """A commit and its tree."""

    id: str
    tree: str


def _commits(worktree: Worktree, *revs: str) -> list[_Commit]:
    """Look commits up, all with one git command: a night makes thousands of checkpoints."""
    git = Git(worktree.common_dir)  # an agent may have broken the worktree's own HEAD
    asked = "".join(f"{rev}^{{commit}}\n{rev}^{{tree}}\n" for rev in revs)
    found = git.run("cat-file", "--batch-check=%(objectname)", stdin=asked).stdout.splitlines()
    commits = [_Commit(*pair) for pair in zip(found[::2], found[1::2], strict=True)]
    for rev, commit in zip(revs, commits, strict=False):
        if not rev or "\n" in rev or not COMMIT_ID.fullmatch(commit.id):
            message = f"{rev!r} is not a commit in the repository of {worktree.path}"
            raise RepositoryError(message, worktree.path)
    return commits


def _settle_head(worktree: Worktree, anchor: _Commit) -> _Commit:
    """Return the commit to build on, and make HEAD point to it, detached, whatever the agent did to it."""
    file = worktree.admin_dir / "HEAD"
    if _is_plain_file(file) and file.read_bytes() == f"{anchor.id}\n".encode():
        return anchor
    git = worktree.git()
    head = _detached_head(worktree)
    if head is not None and _is_plain_line(git, anchor.id, head):
        return _commits(worktree, head)[0]
    if head is not None:
        keep(git, worktree.name, head)
    write_atomic(file, f"{anchor.id}\n".encode())
    return anchor


def _detached_head(worktree: Worktree) -> str | None:
    """Return HEAD's commit, detaching it from a branch; None when it is missing or leads nowhere."""
    file = worktree.admin_dir / "HEAD"
    if not _is_plain_file(file):
        return None
    git = worktree.git()
    result = git.run("rev-parse", "--verify", "--quiet", "HEAD^{commit}", check=False)
    found = result.stdout.strip()
    if result.code != 0 or not COMMIT_ID.fullmatch(found):
        return None
    if not COMMIT_ID.fullmatch(file.read_text(errors="replace").strip()):
        write_atomic(file, f"{found}\n".encode())
    return found


def _is_plain_file(file: Path) -> bool:
    return file.is_file() and not file.is_symlink()


def _is_plain_line(git: Git, anchor: str, head: str) -> bool:
    """Whether `head` is the anchor or a line of ordinary commits on it.

    A merge among them would claim that other work is in, and the next merge would silently drop that work.
    """
    if head == anchor:
        return True
    if git.run("merge-base", "--is-ancestor", anchor, head, check=False).code != 0:
        return False
    return not git.run("rev-list", "--min-parents=2", "--max-count=1", f"{anchor}..{head}").stdout


def _start_index(worktree: Worktree, git: Git, parent: str) -> list[str]:
    """Make the index that of the parent, keeping what it knows about unchanged files, and return its files' paths.

    Otherwise `git rm --cached` would drop a tracked file that is also ignored, and `assume-unchanged` or
    `skip-worktree` would keep git from looking at a file at all.
    """
    if git.run("read-tree", "--reset", parent, check=False).code != 0:
        (worktree.admin_dir / "index").unlink(missing_ok=True)  # corrupt: everything is read again
        git.run("read-tree", "--reset", parent)
    entries = [entry.partition("\t") for entry in split_nul(git.run("ls-files", "-v", "--stage", "-z").stdout)]
    flagged = [path for head, _, path in entries if head[0].islower() or head[0] == "S"]  # `H mode blob stage`
    for option in ("--no-assume-unchanged", "--no-skip-worktree"):
        _feed(git, flagged, option)
    return [path for head, _, path in entries if not head.startswith(LINK_TO_REPOSITORY, 2)]


def _untracked_unless_nested(worktree: Worktree, git: Git, tracked: list[str]) -> list[str]:
    """Return the untracked files. Raises NestedRepository for a `.git` beside any file that would be committed."""
    untracked = _untracked(git)
    for path in untracked:
        if path.endswith("/"):
            raise NestedRepository(worktree.path / path)
    for directory in sorted(_directories([*tracked, *untracked])):
        if os.path.lexists(worktree.path / directory / ".git"):
            raise NestedRepository(worktree.path / directory)
    return untracked


def _directories(paths: Iterable[str]) -> set[str]:
    """Return all directories above the paths, without the root."""
    found: set[str] = set()
    for path in paths:
        parent = path.rpartition("/")[0]
        while parent and parent not in found:
            found.add(parent)
            parent = parent.rpartition("/")[0]
    return found


def _untracked(git: Git) -> list[str]:
    """Return files that are neither tracked nor ignored; a repository among them ends in a slash."""
    result = git.run("ls-files", "--others", "--exclude-standard", "-z")
    if "could not open directory" in result.stderr:  # git goes on without it, and so would lose work
        raise GitError(("ls-files", "--others"), result.code, result.stderr)
    return split_nul(result.stdout)


def _take_in(git: Git, untracked: list[str]) -> None:
    """Bring the index to what is on disk."""
    fields = split_nul(git.run("diff-files", "-z", "--name-status", "--no-renames", "--ignore-submodules=all").stdout)
    states = list(zip(fields[::2], fields[1::2], strict=True))
    _feed(git, [path for status, path in states if status == "D"], "--force-remove")
    there = [path for status, path in states if status != "D"]
    if any(status != "M" for status, _ in states):  # what stood in the way of a path may be gone now
        untracked = _untracked(git)
    _feed(git, [*there, *untracked], "--add", "--remove", "--replace")


def _feed(git: Git, paths: Sequence[str], *options: str) -> None:
    if paths:
        git.run("update-index", *options, "-z", "--stdin", stdin="".join(f"{path}\0" for path in paths))


def _take_back(
    worktree: Worktree, base: str, protected: Sequence[str], may_edit: Sequence[str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Put protected paths back to the base, in the index and on disk; return (taken back, still changed)."""
    git = worktree.git()
    before = _changes(git, base)
    back = [change for change in before if is_match(change.path, protected) and not is_match(change.path, may_edit)]
    if not back:
        return (), tuple(change.path for change in before)
    added = [change.path for change in back if change.status == "A"]
    _feed(git, added, "--force-remove")
    for path in added:
        _delete_below(worktree.path, path)
    _restore(git, [change for change in back if change.status != "A"])
    after = {change.path for change in _changes(git, base)}
    # More than asked for when a directory had been replaced by a file or a symlink: that one has to go.
    return tuple(sorted({change.path for change in before} - after)), tuple(sorted(after))


def _restore(git: Git, changes: Sequence[_Change]) -> None:
    lines = "".join(f"{change.mode} {change.blob}\t{change.path}\0" for change in changes)
    files = "".join(f"{change.path}\0" for change in changes if change.mode != LINK_TO_REPOSITORY)
    if lines:
        git.run("update-index", "--add", "--replace", "-z", "--index-info", stdin=lines)
    if files:
        git.run("checkout-index", "--force", "--index", "-z", "--stdin", stdin=files)


def _changes(git: Git, base: str) -> list[_Change]:
    """Return how the index differs from a commit: `:mode mode blob blob letter NUL path NUL` each."""
    fields = split_nul(git.run("diff-index", "--cached", "--raw", "--no-abbrev", "--no-renames", "-z", base).stdout)
    changes = []
    for head, path in zip(fields[::2], fields[1::2], strict=True):
        mode, _, blob, _, status = head.removeprefix(":").split(" ")
        changes.append(_Change(path, status[0], mode, blob))
    return changes


def _delete_below(root: Path, path: str) -> None:
    """Delete a file below `root`, and the directories that it leaves empty, without following a symlink."""
    *parents, name = path.split("/")
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    with contextlib.ExitStack() as opened:
        places = []
        try:
            places.append(os.open(root, flags))
            opened.callback(os.close, places[-1])
            for part in parents:
                places.append(os.open(part, flags, dir_fd=places[-1]))
                opened.callback(os.close, places[-1])
            os.unlink(name, dir_fd=places[-1])
        except (FileNotFoundError, NotADirectoryError):
            return  # gone already
        except OSError as error:
            raise disk_error("take back", root / path, error) from error
        with contextlib.suppress(OSError):  # the first one that is not empty
            for part, place in zip(reversed(parents), reversed(places[:-1]), strict=True):
                os.rmdir(part, dir_fd=place)


def _commit_tree(git: Git, tree: str, parent: _Commit, message: str) -> str:
    if parent.tree == tree:
        return parent.id
    return git.run("commit-tree", tree, "-p", parent.id, "-F", "-", stdin=message).stdout.strip()


def _move(git: Git, old: str, new: str, message: str) -> None:
    if old != new:
        git.run("update-ref", "--no-deref", "-m", message.partition("\n")[0], "HEAD", new, old)
