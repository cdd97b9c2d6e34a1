"""`[state] commit = true`: state file and archive go onto the merged branch, with the work they tell of (spec S13).

By plumbing alone: no checkout is touched. The branch moves by compare-and-swap, and the journal has the intent first.
"""

from collections.abc import Mapping
from pathlib import Path

from dispatcher.archive import ARCHIVE_PATH
from dispatcher.book import Book
from dispatcher.journal import StateCommitted
from dispatcher.opening import STATE_PATH
from dispatcher.train import merged_ref
from worktrees.errors import RefMoved
from worktrees.merge import advance, commit_merge
from worktrees.repository import Repository

__all__ = ["commit_state", "recover"]


def commit_state(repository: Repository, book: Book) -> str | None:
    """Commit both as they are in the checkout, and return the commit; None where that would change nothing.

    Without a merged branch there is nothing to go with. Raises GitError, RepositoryError, EngineError, DiskError.
    """
    ref = merged_ref(book.ledger.night)
    tip = repository.read_ref(ref)
    if tip is None:
        return None
    tree = _grafted(repository, repository.tree(tip), _files(repository.root))
    if tree == repository.tree(tip):
        return None
    new = commit_merge(repository, tree=tree, parents=[tip], message=_message(book))
    intent = StateCommitted(ref=ref, old=tip, new=new, is_done=False)
    book.note(intent)
    try:
        advance(repository, ref, new=new, old=tip, message="overnight: state")
    except RefMoved:  # somebody else is faster: the next run commits it
        return None
    book.note(intent.model_copy(update={"is_done": True}))
    return new


def recover(repository: Repository, book: Book) -> None:
    """Note that a commit that a crash cut off is on the branch; where it is not, the end of a run makes another."""
    intent = book.ledger.committing
    if intent is not None and repository.read_ref(intent.ref) == intent.new:
        book.note(intent.model_copy(update={"is_done": True}))


def _message(book: Book) -> str:
    return f"State of night {book.ledger.night}, rev {book.ledger.rev}"


def _files(root: Path) -> dict[tuple[str, ...], str]:
    paths = [STATE_PATH, *(path.relative_to(root) for path in sorted((root / ARCHIVE_PATH).glob("*.md")))]
    return {path.parts: (root / path).read_text(encoding="utf-8") for path in paths if (root / path).exists()}


def _grafted(repository: Repository, tree: str | None, files: Mapping[tuple[str, ...], str]) -> str:
    """Return the id of `tree` with these files in it, folder by folder."""
    entries = _entries(repository, tree) if tree is not None else {}
    for name in dict.fromkeys(path[0] for path in files):
        if (name,) in files:
            blob = repository.git.run("hash-object", "-w", "--stdin", stdin=files[name,]).stdout.strip()
            entries[name] = f"100644 blob {blob}\t{name}"
            continue
        below = {path[1:]: text for path, text in files.items() if path[0] == name}
        kind, old = entries[name].split("\t")[0].split()[1:] if name in entries else ("tree", None)
        sub = _grafted(repository, old if kind == "tree" else None, below)
        entries[name] = f"040000 tree {sub}\t{name}"
    lines = "".join(f"{line}\0" for line in entries.values())
    return repository.git.run("mktree", "-z", stdin=lines).stdout.strip()


def _entries(repository: Repository, tree: str) -> dict[str, str]:
    listed = repository.git.run("ls-tree", "-z", tree).stdout.split("\0")
    return {line.partition("\t")[2]: line for line in listed if line}
