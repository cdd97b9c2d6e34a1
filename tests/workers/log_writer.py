"""Real writers of a log, in processes of their own that a test may kill: `python log_writer.py WHAT …`."""

import os
import sys
from pathlib import Path

from workers.errors import LogAlreadyOwned, LogWriteFailed
from workers.log import Log


def text(seq: int, size: int) -> str:
    """What the record with that number says: known beforehand, and different in every line."""
    words = f"{seq}-\u00e9-{seq * 7919 % 10007} "
    return (words * (size // len(words) + 1))[:size]


def say(words: str) -> None:
    """Tell the test."""
    sys.stdout.write(words + "\n")
    sys.stdout.flush()


def write(path: Path, size: int, told: int) -> None:
    """Write for ever, three appends a flush, and tell of each number once its flush returned."""
    log = Log.open(path)
    while True:
        for _ in range(3):
            seq = len(log.records)
            log.append([("x", {"n": seq, "text": text(seq, size)})])
        log.flush()
        os.write(told, b"%d\n" % seq)


def nursery() -> None:
    """For each line (folder, size) fork a writer and print its process id; a line `-` reaps the last one."""
    child = 0
    for line in sys.stdin:
        if line == "-\n":
            os.waitpid(child, 0)
            say("reaped")
            continue
        folder, size = line.split()
        told = os.open(Path(folder) / "told", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        child = os.fork()
        if child == 0:
            write(Path(folder) / "session.jsonl", int(size), told)
        os.close(told)
        say(str(child))


def fails_twice(path: Path) -> None:
    """Flush until the disk says no, and then once more, and print what was raised each time."""
    log = Log.open(path)
    for seq in range(3):
        try:
            log.append([("x", {"n": seq})])
            log.flush()
            say("flushed")
        except LogWriteFailed as error:
            say(f"failed: {error}")


def forks(path: Path) -> None:
    """Hold the right to write, fork a child that tries to use and keep it, and print what each of them can do."""
    log = Log.open(path, note="parent")
    log.append([("x", {})])
    log.flush()
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            log.append([("y", {})])
        except LogWriteFailed as error:
            say(f"child: {error}")
        log.close()
        os.close(theirs)
        os.read(ours, 1)  # stay, until the parent's last descriptor is gone
        os._exit(0)
    os.close(ours)
    sys.stdin.readline()
    log.append([("z", {})])
    log.flush()
    say("parent wrote")
    sys.stdin.readline()
    log.close()
    say("parent closed")
    sys.stdin.readline()
    os.close(theirs)
    os.waitpid(child, 0)


def contender() -> None:
    """For each path try to become the writer, say so, and let go at the next line."""
    for line in sys.stdin:
        try:
            log = Log.open(Path(line.rstrip("\n")), note="contender")
            say("won")
        except LogAlreadyOwned as error:
            log = None
            say(f"owned {error.pid} {error.host} {error.since}")
        sys.stdin.readline()
        if log is not None:
            log.close()
        say("let go")


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["nursery"]:
            nursery()
        case ["contender"]:
            contender()
        case ["fails", at]:
            fails_twice(Path(at))
        case ["forks", at]:
            forks(Path(at))
