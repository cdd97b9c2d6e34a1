"""A repository: finding it, and reading and moving what it holds. Never touches files of the checkout."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from pathlib import Path

from worktrees.errors import GitError, RefMoved, RepositoryError
from worktrees.git import Git, GitResult, run_git

OLDEST_GIT = (2, 38)  # merge-tree --write-tree
COMMIT_ID = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")


@dataclass(frozen=True)
class Repository:
    """A checkout (`root`), its git directory, and the common directory that all its worktrees share."""

    root: Path
    git_dir: Path
    common_dir: Path

    @classmethod
    def discover(cls, path: Path) -> Repository:
        """Return the repository whose checkout (or linked worktree) holds `path`.

        Raises RepositoryError: git missing or too old, not a repository, bare, somebody else's, or empty.
        """
        _demand_git(path)
        if not path.is_dir():
            message = f"{path} is not a directory. Give the path of a checkout."
            raise RepositoryError(message, path)
        if _ask(path, "--is-inside-work-tree") != "true":
            message = f"{path} is a bare repository or inside a .git directory. Run in a checkout of it instead."
            raise RepositoryError(message, path)
        absolute = "--path-format=absolute"
        found = cls(
            Path(_ask(path, absolute, "--show-toplevel")),
            Path(_ask(path, absolute, "--absolute-git-dir")),
            Path(_ask(path, absolute, "--git-common-dir")),
        )
        if found.git.run("rev-parse", "--verify", "--quiet", "HEAD^{commit}", check=False).code != 0:
            message = f"{found.root} has no commits yet. Make one first: units start from a commit."
            raise RepositoryError(message, found.root)
        return found

    @functools.cached_property
    def git(self) -> Git:
        """Git on this checkout."""
        return Git(self.git_dir, self.root)

    def resolve(self, rev: str) -> str:
        """Return the full id of the commit that `rev` names. Raises RepositoryError for an unknown one."""
        found = self._commit_of(rev)
        if found is None:
            message = f"{rev!r} is not a commit, branch or tag in {self.root}. Fetch it, or correct the name."
            raise RepositoryError(message, self.root)
        return found

    def has_commit(self, commit: str) -> bool:
        """Whether this repository holds the commit with that full id, readable."""
        return COMMIT_ID.fullmatch(commit) is not None and self._commit_of(commit) == commit

    def _commit_of(self, rev: str) -> str | None:
        if not rev or rev.startswith("-") or "\0" in rev:
            return None
        result = self.git.run("rev-parse", "--verify", "--quiet", f"{rev}^{{commit}}", check=False)
        found = result.stdout.strip()
        return found if result.code == 0 and COMMIT_ID.fullmatch(found) else None

    def tree(self, commit: str) -> str:
        """Return the id of the commit's tree."""
        return self.git.run("rev-parse", "--verify", f"{self.resolve(commit)}^{{tree}}").stdout.strip()

    def parents(self, commit: str) -> tuple[str, ...]:
        """Return the ids of the commit's parents, the first one first."""
        line = self.git.run("rev-list", "--parents", "--max-count=1", self.resolve(commit)).stdout
        return tuple(line.split()[1:])

    def is_ancestor(self, ancestor: str, descendant: str) -> bool:
        """Whether `ancestor` is in the history of `descendant`, or is it. Raises RepositoryError."""
        pair = (self.resolve(ancestor), self.resolve(descendant))
        result = self.git.run("merge-base", "--is-ancestor", *pair, check=False)
        if result.code not in (0, 1):
            raise GitError(("merge-base", "--is-ancestor", *pair), result.code, result.stderr)
        return result.code == 0

    def read_ref(self, ref: str) -> str | None:
        """Return the object id that the full ref name (`refs/…`) points to, None if there is no such ref."""
        return read_ref(self.git, ref)

    def update_ref(self, ref: str, new: str, old: str | None, *, message: str) -> None:
        """Move `ref` to `new` if it is at `old` (None: does not exist). Raises RefMoved, changing nothing."""
        update_ref(self.git, ref, new, old, message=message)

    def read_text(self, commit: str, path: str) -> str | None:
        """Return the file's text in the commit (undecodable bytes replaced), None if there is no such file."""
        result = self.git.run("cat-file", "blob", f"{self.resolve(commit)}:{path}", check=False)
        if result.code != 0:
            return None
        return result.stdout.encode(errors="surrogateescape").decode(errors="replace")

    def blobs(self, commit: str, *paths: str) -> dict[str, tuple[str, int]]:
        """Return mode and size in bytes of those of `paths` that are files or links (120000) in the commit."""
        command = ("ls-tree", "-l", "-z", "--full-tree", self.resolve(commit), "--", *paths)
        fields = (entry.partition("\t") for entry in split_nul(self.git.run(*command).stdout))
        found = {path: head.split() for head, _, path in fields}
        return {path: (head[0], int(head[3])) for path, head in found.items() if head[1] == "blob"}

    def branch_collision(self, prefix: str) -> str | None:
        """Return the branch that keeps branches `<prefix>/…` from being made: git cannot have both."""
        parts = prefix.strip("/").split("/")
        for length in range(1, len(parts) + 1):
            name = "/".join(parts[:length])
            if self.read_ref(f"refs/heads/{name}") is not None:
                return name
        return None

    def changed_paths(self, before: str, after: str) -> list[str]:
        """Return the paths that differ between two commits; a rename is both its paths."""
        pair = (self.resolve(before), self.resolve(after))
        return split_nul(self.git.run("diff-tree", "-r", "-z", "--name-only", "--no-renames", *pair).stdout)


def read_ref(git: Git, ref: str) -> str | None:
    """Return the object id of a full ref name, None if there is no such ref."""
    _demand_full(ref)
    lines = git.run("for-each-ref", "--format=%(objectname) %(refname)", ref).stdout.splitlines()
    return next((line.partition(" ")[0] for line in lines if line.partition(" ")[2] == ref), None)


def update_ref(git: Git, ref: str, new: str, old: str | None, *, message: str) -> None:
    """Compare-and-swap a full ref name; see Repository.update_ref."""
    _demand_full(ref)
    expected = "0" * len(new) if old is None else old
    command = ("update-ref", "--no-deref", "-m", message or "overnight", ref, new, expected)
    result = git.run(*command, check=False)
    if result.code != 0:
        _raise_lost(git, ref, old, command, result)


def split_nul(text: str) -> list[str]:
    """Return the parts of NUL-terminated output."""
    return [part for part in text.split("\0") if part]


def _raise_lost(git: Git, ref: str, old: str | None, command: tuple[str, ...], result: GitResult) -> None:
    """Raise what really happened: by looking again, not by reading git's words."""
    found = read_ref(git, ref)
    if found != old:
        raise RefMoved(ref, old, found)
    raise GitError(command, result.code, result.stderr)


def _demand_full(ref: str) -> None:
    if not ref.startswith("refs/"):
        message = f"{ref!r} is not a full ref name (refs/…)"
        raise ValueError(message)


def _ask(path: Path, *question: str) -> str:
    words = ("rev-parse", *question)
    result = run_git(path, list(words), words, check=False)
    if result.code == 0:
        return result.stdout.removesuffix("\n")
    raise RepositoryError(_why_not(path, result.stderr), path)


def _why_not(path: Path, stderr: str) -> str:
    if "dubious ownership" in stderr:
        return (
            f"{path} belongs to another user and git refuses it. If you trust it: "
            f"git config --global --add safe.directory {path}"
        )
    if "bare repository" in stderr:
        return f"{path} is a bare repository. Run in a checkout of it instead."
    if "not a git repository" in stderr:
        return f"{path} is not in a git repository. Run in a checkout, or make one with `git init`."
    return f"{path} cannot be used as a git repository: {stderr.strip()}"


def _demand_git(path: Path) -> None:
    result = run_git(Path("/"), ["version"], ("version",), check=False)
    if result.code != 0:
        message = f"git does not run: {result.stderr.strip()}. Install git {_dotted(OLDEST_GIT)} or newer."
        raise RepositoryError(message, path)
    found = re.search(r"(\d+)\.(\d+)", result.stdout)
    if found is None or (int(found[1]), int(found[2])) < OLDEST_GIT:
        message = f"{result.stdout.strip()} is too old. Install git {_dotted(OLDEST_GIT)} or newer."
        raise RepositoryError(message, path)


def _dotted(version: tuple[int, int]) -> str:
    return ".".join(map(str, version))
