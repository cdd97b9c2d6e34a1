"""The home: where it is, what is in it, who may enter, and that it is never inside a checkout."""

import os
import socket
import stat
import subprocess
from pathlib import Path

import pytest

from dispatcher.errors import BadInput, EngineError
from dispatcher.home import SOCKET_PATH_LIMIT, Home


@pytest.fixture
def common_dir(tmp_path: Path) -> Path:
    """Make a real repository and return its git common directory."""
    subprocess.run(["git", "init", "-q", tmp_path / "My Project"], check=True)
    return tmp_path / "My Project" / ".git"


def test_where_the_home_is(common_dir: Path, tmp_path: Path) -> None:
    """$OVERNIGHT_HOME, else $XDG_STATE_HOME/overnight, else ~/.local/state/overnight; a relative XDG is ignored."""
    person = str(tmp_path / "person")
    both = {"HOME": person, "XDG_STATE_HOME": str(tmp_path / "state")}
    chosen = {**both, "OVERNIGHT_HOME": str(tmp_path / "chosen")}
    assert Home.for_repository(common_dir, chosen).root.parent == tmp_path / "chosen"
    assert Home.for_repository(common_dir, both).root.parent == tmp_path / "state" / "overnight"
    relative = {"HOME": person, "XDG_STATE_HOME": "state", "OVERNIGHT_HOME": ""}
    expected = tmp_path / "person" / ".local" / "state" / "overnight"
    assert Home.for_repository(common_dir, relative).root.parent == expected


def test_one_folder_per_repository(common_dir: Path, tmp_path: Path) -> None:
    """Readable, the same through a symbolic link, different for another repository of the same name."""
    environ = {"OVERNIGHT_HOME": str(tmp_path / "home")}
    home = Home.for_repository(common_dir, environ)
    assert home.root.name.startswith("my-project-")
    assert len(home.root.name) == len("my-project-") + 8
    (tmp_path / "link").symlink_to(common_dir.parent)
    assert Home.for_repository(tmp_path / "link" / ".git", environ) == home
    other = tmp_path / "elsewhere" / "My Project" / ".git"
    assert Home.for_repository(other, environ).root.name.startswith("my-project-")
    assert Home.for_repository(other, environ).root != home.root
    assert Home.for_repository(tmp_path / "bare.git", environ).root.name.startswith("bare-")


def test_a_home_inside_the_repository_is_refused(common_dir: Path, tmp_path: Path) -> None:
    """In the checkout, in .git, in a linked checkout, through a link, or relative: named, with what to do."""
    inside = [common_dir.parent, common_dir.parent / "state", common_dir / "state"]
    (tmp_path / "link").symlink_to(common_dir.parent)
    for folder in (*inside, tmp_path / "link" / "state"):
        with pytest.raises(BadInput, match="choose a folder outside it"):
            Home.for_repository(common_dir, {"OVERNIGHT_HOME": str(folder)})
    linked = tmp_path / "linked"
    with pytest.raises(BadInput, match="choose a folder outside it"):
        Home.for_repository(common_dir, {"OVERNIGHT_HOME": str(linked / "x")}, checkout=linked)
    with pytest.raises(BadInput, match="absolute"):
        Home.for_repository(common_dir, {"OVERNIGHT_HOME": "state"})


def test_a_repository_inside_the_homes_parent_is_fine(common_dir: Path, tmp_path: Path) -> None:
    """A checkout somewhere below the person's own home directory is the ordinary case."""
    assert Home.for_repository(common_dir, {"HOME": str(tmp_path)}).root.is_relative_to(tmp_path)


def test_the_layout() -> None:
    """Every path of the design, below the root."""
    home = Home(Path("/h/x"))
    paths = {
        home.worktrees: "worktrees",
        home.outbox: "outbox",
        home.dropbox: "dropbox",
        home.engine_lock: "engine/engine.lock",
        home.aof: "engine/aof",
        home.socket: "engine/redis.sock",
        home.journal("1130-k3v"): "nights/1130-k3v/journal.jsonl",
        home.places("1130-k3v", "a").lock: "nights/1130-k3v/units/a/unit.lock",
        home.places("1130-k3v", "a").scratch: "nights/1130-k3v/units/a/scratch",
        home.places("1130-k3v", "a").worktrees: "worktrees/1130-k3v",
        home.session("1130-k3v", "a", 2): "nights/1130-k3v/units/a/2/session.jsonl",
    }
    assert {str(path.relative_to("/h/x")) for path in paths} == set(paths.values())
    assert all(str(path.relative_to("/h/x")) == name for path, name in paths.items())


@pytest.mark.parametrize("name", ["../x", "", "a/b", "/etc", "A", "."])
def test_a_name_that_could_lead_elsewhere_is_refused(name: str) -> None:
    """Nights and units are ids before they are paths."""
    home = Home(Path("/h"))
    with pytest.raises(ValueError, match="cannot be"):
        home.journal(name)
    with pytest.raises(ValueError, match="cannot be"):
        home.session("1130-k3v", name, 1)
    with pytest.raises(ValueError, match="count from 1"):
        home.session("1130-k3v", "a", 0)


def test_the_writers_lock_belongs_to_the_repository(common_dir: Path, tmp_path: Path) -> None:
    """Two homes for one repository still have one writer's lock; without a repository it is in the root."""
    homes = [Home.for_repository(common_dir, {"OVERNIGHT_HOME": str(tmp_path / name)}) for name in "ab"]
    assert homes[0].root != homes[1].root
    assert {home.writer_lock for home in homes} == {common_dir / "overnight-writer.lock"}
    assert Home(tmp_path).writer_lock.parent == tmp_path


def test_making_is_private_and_repeatable(tmp_path: Path) -> None:
    """All folders are 0700 whatever the umask, parents that we made too; loosened ones are tightened again."""
    home = Home(tmp_path / "state" / "overnight" / "x", runtime=tmp_path)
    before = os.umask(0)
    try:
        home.make()
        home.engine.chmod(0o755)
        home.make()
    finally:
        os.umask(before)
    made = [home.root, home.root.parent, home.worktrees, home.nights, home.outbox, home.dropbox, home.engine, home.aof]
    assert {stat.S_IMODE(path.stat().st_mode) for path in (*made, home.socket.parent)} == {0o700}


def test_folders_that_cannot_be_ours_are_refused(tmp_path: Path) -> None:
    """A link or a file in the place of a folder is an engine error that names it, and nothing is followed."""
    home = Home(tmp_path / "x", runtime=tmp_path)
    home.root.mkdir()
    (tmp_path / "elsewhere").mkdir(mode=0o755)
    home.dropbox.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(EngineError, match="is not a folder of yours"):
        home.make()
    home.dropbox.unlink()
    home.dropbox.write_text("")
    with pytest.raises(EngineError, match="cannot be made") as caught:
        home.make()
    assert (caught.value.component, caught.value.exit_code) == ("home", 4)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_folder_of_somebody_else_is_refused(tmp_path: Path) -> None:
    """A folder that another owner could read or replace is not used, whatever its mode."""
    home = Home(tmp_path / "x", runtime=tmp_path)
    home.make()
    os.chown(home.engine, 12345, -1)
    with pytest.raises(EngineError, match="another owner's"):
        home.make()


def test_a_socket_always_has_a_path_that_can_be_bound(tmp_path: Path) -> None:
    """Too long a home: the socket is in a short private folder that follows from the home, and can be bound."""
    runtime = tmp_path / "r"
    runtime.mkdir()
    home = Home(tmp_path / ("d" * 100) / "x", runtime=runtime)
    same = Home(tmp_path / ("d" * 100) / "x", runtime=runtime)
    other = Home(tmp_path / ("d" * 100) / "y", runtime=runtime)
    assert home.socket == same.socket
    assert home.socket.parent != other.socket.parent
    assert len(os.fsencode(home.socket)) <= SOCKET_PATH_LIMIT
    home.make()
    assert stat.S_IMODE(home.socket.parent.stat().st_mode) == 0o700
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(home.socket))


def test_the_limit_of_a_socket_path_is_the_kernels(tmp_path: Path) -> None:
    """107 bytes can be bound, 108 cannot: the limit is neither too small nor too large."""
    stem = str(tmp_path) + "/"
    for length, fits in ((SOCKET_PATH_LIMIT, True), (SOCKET_PATH_LIMIT + 1, False)):
        path = stem + "s" * (length - len(stem))
        with socket.socket(socket.AF_UNIX) as server:
            if fits:
                server.bind(path)
            else:
                with pytest.raises(OSError, match="too long"):
                    server.bind(path)


def test_a_short_folder_laid_as_a_trap_is_refused(tmp_path: Path) -> None:
    """Somebody else's link in the place of the short folder is not followed."""
    runtime = tmp_path / "r"
    runtime.mkdir()
    home = Home(tmp_path / ("d" * 100) / "x", runtime=runtime)
    (tmp_path / "trap").mkdir()
    home.socket.parent.symlink_to(tmp_path / "trap")
    with pytest.raises(EngineError, match="is not a folder of yours"):
        home.make()


def test_the_short_folder_is_in_the_runtime_directory(common_dir: Path, tmp_path: Path) -> None:
    """$XDG_RUNTIME_DIR where it exists; a missing or endless one falls back to a place that is short enough."""
    environ = {"OVERNIGHT_HOME": str(tmp_path / ("h" * 100)), "XDG_RUNTIME_DIR": str(tmp_path)}
    assert Home.for_repository(common_dir, environ).socket.parent.parent == tmp_path
    gone = Home.for_repository(common_dir, {**environ, "XDG_RUNTIME_DIR": str(tmp_path / "gone")})
    assert gone.socket.parent.parent != tmp_path / "gone"
    endless = Home(tmp_path / ("h" * 100), runtime=tmp_path / ("r" * 100))
    assert len(os.fsencode(endless.socket)) <= SOCKET_PATH_LIMIT
