"""Git as a command: the one module that imports GitPython, and only to run lists of arguments.

GitPython's object model stays unused: a shared `Repo` hangs under threads and leaks processes. Every call
has an explicit git directory, an environment without strangers, and hooks and other programs switched off.
System and user configuration stay in force: people keep LFS filters, line endings and `safe.directory`
there, an agent cannot write them, and what could run code or get in the way is overridden by `-c`.
"""

from __future__ import annotations

import errno
import os
import re
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from worktrees.errors import DiskError, GitError
from worktrees.process import base_environment

IDENTITY = {
    "GIT_AUTHOR_NAME": "overnight",
    "GIT_AUTHOR_EMAIL": "overnight@localhost",
    "GIT_COMMITTER_NAME": "overnight",
    "GIT_COMMITTER_EMAIL": "overnight@localhost",
}

SETTINGS = (
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "core.pager=cat",
    "core.quotePath=false",
    "core.fsync=loose-object,reference",  # git's default leaves both to luck: a journal could outlive its commit
    "core.filesRefLockTimeout=5000",
    "core.untrackedCache=false",
    "core.sparseCheckout=false",
    "core.ignoreStat=false",
    "submodule.recurse=false",
    "safe.bareRepository=explicit",
    "gc.auto=0",
    "maintenance.auto=false",
    "commit.gpgSign=false",
    "log.showSignature=false",
    "i18n.commitEncoding=UTF-8",
    "i18n.logOutputEncoding=UTF-8",
    "color.ui=false",
    "advice.detachedHead=false",
    "worktree.useRelativePaths=false",
)
FIXED_ENVIRONMENT = {
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_LITERAL_PATHSPECS": "1",
    "GIT_NO_REPLACE_OBJECTS": "1",  # a commit id must mean what was committed
    "GIT_EDITOR": "false",
    "GIT_ASKPASS": "false",
    **IDENTITY,
}
# Another process is halfway through `worktree add` or `remove`; a moment later it is over.
RACE = re.compile(r"bad object worktrees/|failed to read \S*(commondir|gitdir)|unable to read \S*worktrees/")
RACE_ATTEMPTS = 8
RACE_PAUSE_SECONDS = 0.02
DISK = {
    "No space left on device": errno.ENOSPC,
    "Disk quota exceeded": errno.EDQUOT,
    "Read-only file system": errno.EROFS,
    "Input/output error": errno.EIO,
}
NOT_FOUND = 127


@dataclass(frozen=True)
class GitResult:
    """How a git command ended. Text keeps undecodable bytes as surrogates, so paths survive a round trip."""

    code: int
    stdout: str
    stderr: str


class Git:
    """Git on one explicit git directory and, where files matter, one explicit work tree. Thread-safe."""

    def __init__(self, git_dir: Path, work_tree: Path | None = None, *, common_dir: Path | None = None) -> None:
        self.git_dir = git_dir
        self.work_tree = work_tree
        self.common_dir = common_dir

    def run(
        self,
        *args: str,
        check: bool = True,
        env: Mapping[str, str] | None = None,
        stdin: str | None = None,
    ) -> GitResult:
        """Run `git args…`, feeding `stdin`; `env` is added to a clean environment.

        Raises GitError on a non-zero exit unless `check` is off, and DiskError when git names a disk fault.
        """
        place = [f"--git-dir={self.git_dir}"]
        if self.work_tree is not None:
            place.append(f"--work-tree={self.work_tree}")
        more = dict(env or {})
        if self.common_dir is not None:
            more["GIT_COMMON_DIR"] = str(self.common_dir)
        return run_git(self.work_tree or self.git_dir, [*place, *args], args, check=check, env=more, stdin=stdin)


def run_git(
    directory: Path,
    arguments: list[str],
    shown: tuple[str, ...],
    *,
    check: bool = True,
    env: Mapping[str, str] | None = None,
    stdin: str | None = None,
) -> GitResult:
    """Run git in `directory`; `shown` are the arguments that an error names. Errors as for Git.run."""
    settings = [word for setting in SETTINGS for word in ("-c", setting)]
    command = ["-C", str(directory), "--no-pager", *settings, *arguments]
    result = _execute(command, env or {}, stdin)
    for attempt in range(1, RACE_ATTEMPTS):
        if result.code == 0 or not RACE.search(result.stderr):
            break
        time.sleep(RACE_PAUSE_SECONDS * attempt)
        result = _execute(command, env or {}, stdin)
    if result.code != 0:
        _raise_disk_fault(directory, shown, result)
        if check:
            raise GitError(shown, result.code, result.stderr)
    return result


def _execute(arguments: list[str], env: Mapping[str, str], stdin: str | None) -> GitResult:
    try:
        from git import Git as GitCommand  # noqa: PLC0415 - importing it fails where git is not installed
        from git import GitCommandNotFound  # noqa: PLC0415
    except ImportError as error:
        return GitResult(NOT_FOUND, "", f"git cannot be used: {error}")
    clean = {**base_environment(), **FIXED_ENVIRONMENT, **env}
    try:
        with _feed(stdin) as feed:
            answer = GitCommand("/").execute(
                [*_forget(clean), "git", *arguments],
                istream=feed,
                with_extended_output=True,
                with_exceptions=False,
                strip_newline_in_stdout=False,
                env=clean,
                process_group=0,  # a Ctrl-C meant for us must not cut git off in the middle
            )
    except GitCommandNotFound as error:
        return GitResult(NOT_FOUND, "", f"git is not installed: {error}")
    except OSError as error:
        return GitResult(NOT_FOUND, "", f"git could not be started: {error}")
    code, out, err = answer
    return GitResult(code, out, err)


def _forget(clean: Mapping[str, str]) -> list[str]:
    """Words that take everything else out of the environment: GitPython only ever adds to ours."""
    strangers = sorted(set(os.environ) - set(clean) - {"LANGUAGE", "LC_ALL"})
    return ["env", *(word for name in strangers for word in ("-u", name))]


def _feed(stdin: str | None) -> AbstractContextManager[BinaryIO | None]:
    if stdin is None:
        return nullcontext()
    feed = os.fdopen(os.memfd_create("stdin"), "w+b")  # in memory: works on a full disk, never blocks
    feed.write(stdin.encode(errors="surrogateescape"))
    feed.seek(0)
    return feed


def _raise_disk_fault(directory: Path, shown: tuple[str, ...], result: GitResult) -> None:
    for words, number in DISK.items():
        if words in result.stderr:
            cause = OSError(number, words, str(directory))
            message = f"`git {' '.join(shown)}` in {directory}: {words}. Free space or repair the disk."
            raise DiskError(message, directory) from cause
