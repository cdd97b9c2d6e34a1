"""The run's log: what a run says, kept in the home as plain lines, so that a run outlives its terminal.

Whoever attaches reads it. A terminal that is gone is no reason to end a night: from then on the log is all there is.
"""

import os
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TextIO

from dispatcher.shown.display import Display, PlainDisplay, Snapshot

__all__ = ["LoggedDisplay", "begin"]


def begin(path: Path) -> TextIO:
    """Open an empty log for a run; the one before it stays beside it as `.old`. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with suppress(FileNotFoundError):
        path.replace(path.with_name(f"{path.name}.old"))
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "a", encoding="utf-8", buffering=1)


class LoggedDisplay:
    """Shows a run where it was shown anyway, and writes what it says into the log at `path`.

    The log begins with the first word, which only the one writer of a repository says: a run that is refused leaves the
    log of the running one alone. A disk without room costs the log, never the run.
    """

    def __init__(self, shown: Display, path: Path) -> None:
        self._shown: Display | None = shown
        self._path = path
        self._log: TextIO | None = None
        self._plain: PlainDisplay | None = None
        self._has_begun = False

    def note(self, line: str) -> None:
        """Say something that happened, once."""
        self._write(lambda plain: plain.note(line))
        self._show(lambda shown: shown.note(line))

    def status(self, line: str) -> None:
        """Say what is going on; the next one replaces it."""
        self._write(lambda plain: plain.status(line))
        self._show(lambda shown: shown.status(line))

    def update(self, snapshot: Snapshot) -> None:
        """Show how the run stands now."""
        self._show(lambda shown: shown.update(snapshot))

    def close(self) -> None:
        """Leave the terminal as it was; what is said after it is only said."""
        self._show(lambda shown: shown.close())

    def say(self, text: str, *, logged: str | None = None) -> None:
        """Print last words as they are; `logged` is what the log gets instead."""
        self._write(lambda _: self._append(text if logged is None else logged))
        self.close()
        self._show(lambda _: _print(text))

    def end(self) -> None:
        """Close the display and the log: nothing more is said."""
        self.close()
        if self._log is not None:
            with suppress(OSError):
                self._log.close()
            self._log = self._plain = None

    def fail(self, text: str) -> None:
        """Leave in the log why the run could not go on; whoever called it says so to people."""
        if self._has_begun and self._shown is not None:
            self._write(lambda plain: plain.note(f"ended       {text}"))

    def _append(self, text: str) -> None:
        if self._log is not None:
            self._log.write(f"{text}\n")

    def _write(self, say: Callable[[PlainDisplay], None]) -> None:
        try:
            if not self._has_begun:
                self._begin()
            if self._plain is not None:
                say(self._plain)
        except OSError:
            self._log = self._plain = None

    def _begin(self) -> None:
        self._has_begun = True
        if not _is_open_as(sys.stdout, self._path):  # a detached run writes nowhere else
            self._log = begin(self._path)
            self._plain = PlainDisplay(self._log)

    def _show(self, show: Callable[[Display], None]) -> None:
        if self._shown is None:
            return
        try:
            show(self._shown)
        except OSError:
            self._hang_up()

    def _hang_up(self) -> None:
        """Take leave of a terminal, or a pipe, that is gone: standard output and error go to the log from now on."""
        shown, self._shown = self._shown, None
        with Path(os.devnull).open("w", encoding="utf-8") as nowhere:
            _redirect(nowhere)
            if shown is not None:
                with suppress(OSError):
                    shown.close()
            if self._log is not None:
                _redirect(self._log)
        self._write(lambda plain: plain.note("terminal    is gone; the run goes on, and this is its log"))


def _print(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _redirect(target: TextIO) -> None:
    for stream, number in ((sys.stdout, 1), (sys.stderr, 2)):
        os.dup2(target.fileno(), number)
        with suppress(OSError, ValueError):  # what could not be written before goes where it can be
            stream.flush()


def _is_open_as(stream: TextIO, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(stream.fileno()), path.stat())
    except (OSError, ValueError):
        return False
