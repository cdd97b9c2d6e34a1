from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from night_stand import Project, project_with

MakeNight = Callable[..., Project]


@pytest.fixture
def night(tmp_path: Path) -> Iterator[MakeNight]:
    """Make a project whose model's part is played from a script: `night(plays({...}), config="…", name="…")`."""
    with ExitStack() as opened:

        def make(script: dict[str, Any], **options: Any) -> Project:
            return opened.enter_context(project_with(tmp_path, script, **options))

        yield make


@pytest.fixture(scope="module")
def module_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for one night that many tests look at."""
    return tmp_path_factory.mktemp("night")
