"""`compose.yaml` says nothing that the code does not hold: no Docker is at hand, so the document is read."""

import re
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner
from flower.options import options

from dispatcher.cli import overnight
from workers import app as worker_app

ROOT = Path(__file__).parent.parent
TEXT = (ROOT / "compose.yaml").read_text(encoding="utf-8")
COMPOSE = yaml.safe_load(TEXT)
SERVICES = COMPOSE["services"]
OURS = ("dispatcher", "worker", "flower")


def sources():
    """The Python sources of the three packages, as one text."""
    return "\n".join(
        path.read_text(encoding="utf-8")
        for package in ("dispatcher", "workers", "worktrees")
        for path in (ROOT / package).rglob("*.py")
    )


def test_the_services_are_the_four_of_the_design():
    """Redis, dispatcher, workers and Flower, and nothing else."""
    assert set(SERVICES) == {"redis", "dispatcher", "worker", "flower"}


@pytest.mark.parametrize("service", ["dispatcher", "worker"])
def test_a_command_exists_with_its_options(service):
    """What a service of ours runs is a command of `overnight` that accepts these options."""
    command = [*SERVICES[service]["command"], "--help"]
    done = CliRunner().invoke(overnight, command)
    assert done.exit_code == 0, done.output


def test_flower_runs_in_the_application_that_the_workers_serve():
    """Flower is Celery's own subcommand over `workers.app`, with options that this Flower has."""
    service = SERVICES["flower"]
    assert service["entrypoint"][-2:] == ["-A", worker_app.__name__]
    assert service["command"][0] == "flower"
    known = {name.replace("_", "-") for name in options.as_dict()}
    assert {part.removeprefix("--").partition("=")[0] for part in service["command"][1:]} <= known
    assert "basic-auth" in known


def test_the_variables_are_read_by_somebody():
    """Every variable that a service of ours is given is one that our code, the SDK or Flower reads."""
    code = sources()
    for service in OURS:
        for name in SERVICES[service]["environment"]:
            assert f'"{name}"' in code or name.removeprefix("FLOWER_").lower() in options.as_dict(), name
    dockerfile = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    assert "ENV OVERNIGHT_HOME=" in dockerfile
    assert '"OVERNIGHT_HOME"' in code


def test_the_broker_is_read_from_the_environment_alone():
    """No secret is written down: every password and key comes from the environment, and must be there."""
    secrets = re.findall(r"\$\{([A-Z_]+)(:\?)?", TEXT)
    assert {name for name, _ in secrets} == {"REDIS_PASSWORD", "FLOWER_PASSWORD", "ANTHROPIC_API_KEY", "REPOSITORY"}
    assert all(must for _, must in secrets)
    assert SERVICES["dispatcher"]["environment"][worker_app.BROKER].startswith("redis://:${REDIS_PASSWORD")


def test_redis_keeps_what_it_is_given():
    """Append-only, nothing evicted, behind a password, and not on any port of the host."""
    words = SERVICES["redis"]["command"].split()
    assert words[words.index("--appendonly") + 1] == "yes"
    assert words[words.index("--maxmemory-policy") + 1] == "noeviction"
    assert "--requirepass" in words
    assert "ports" not in SERVICES["redis"]


def test_only_flower_is_reachable_and_from_this_machine_alone():
    """Flower listens on the host's loopback; no other service has a port."""
    assert {name: service["ports"] for name, service in SERVICES.items() if "ports" in service} == {
        "flower": ["127.0.0.1:5555:5555"]
    }


def test_dispatcher_and_workers_see_the_same_paths():
    """Orders name the repository and the home by path: both are mounted alike, home where OVERNIGHT_HOME points."""
    mounts = SERVICES["dispatcher"]["volumes"]
    assert SERVICES["worker"]["volumes"] == mounts
    targets = [mount.rpartition(":")[2] for mount in mounts]
    assert targets == ["/repository", "/overnight"]
    dockerfile = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    assert "ENV OVERNIGHT_HOME=/overnight" in dockerfile
    assert "WORKDIR /repository" in dockerfile


def test_all_of_ours_are_one_image():
    """Dispatcher, workers and Flower are built from the one Dockerfile, with git and util-linux in it."""
    assert {(SERVICES[name]["build"], SERVICES[name]["image"]) for name in OURS} == {(".", "overnight")}
    dockerfile = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    assert " git util-linux" in dockerfile
