"""Folders of the tests' own, and fixtures: the command line in this process, on a fake
machine.
"""

from __future__ import annotations

import functools
import itertools
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from fake_machine import FakeLaunch, KnownProber
from hypothesis import settings
from paths import ROOT

from ffnbench.app import main as cli
from ffnbench.common import git
from ffnbench.models import published
from ffnbench.models.model import ModelSpec
from ffnbench.run import world
from ffnbench.run.prober import Prober
from ffnbench.run.worker import Worker


def pytest_addoption(parser: pytest.Parser) -> None:
    """Of tests/test_goldens.py alone."""
    parser.addoption(
        "--regenerate",
        action="store_true",
        help="write tests/golden anew; then read its diff",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Folders for temporary files and for state of these tests alone, and a terminal of
    80 columns.
    """
    # paths of the tests stay as short as they were
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", tempfile.gettempdir())
    folder = tempfile.mkdtemp(prefix="ffnbench-tests-")
    os.environ["TMPDIR"], tempfile.tempdir = folder, None
    os.environ["XDG_STATE_HOME"] = f"{folder}/state"
    os.environ["XDG_CACHE_HOME"] = f"{folder}/cache"
    os.environ["COLUMNS"] = (
        "80"  # where a test says nothing else, whatever the terminal is
    )
    os.environ["HYPOTHESIS_STORAGE_DIRECTORY"] = f"{folder}/hypothesis"
    settings.register_profile(
        "the same each time", derandomize=True, deadline=None, database=None
    )
    settings.load_profile("the same each time")
    config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """One thread for torch in this process: on a shared machine the threads of small
    operations wait for each other.
    """
    if torch := sys.modules.get("torch"):
        torch.set_num_threads(1)


@pytest.fixture(scope="session", autouse=True)
def commit_asked_once() -> Iterator[None]:
    """Ask git once for the commit of this repository, which no test changes: three
    processes a measured run otherwise.
    """
    real = git.head
    here = functools.cache(real)

    def head(folder: Path) -> tuple[str | None, bool | None]:
        return here(ROOT) if Path.cwd() == ROOT else real(folder)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(git, "head", head)
        yield


@pytest.fixture(scope="session", autouse=True)
def each_config_read_here_once() -> Iterator[None]:
    """Ask transformers in this process, and once for a model, whatever the folder of
    its config.json is: each process that imports it takes six seconds.
    """

    @functools.cache
    def model(content: str) -> ModelSpec:
        from ffnbench.models.read import read_model

        return read_model(json.loads(content), "config.json")

    def read(path: str) -> ModelSpec:
        data, file = published.read_file(path)
        return replace(model(json.dumps(data)), source=file)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(published, "read_published", read)
        yield


@pytest.fixture
def clock() -> list[Callable[[], float]]:
    """The clock of the fake machine, which a test may replace."""
    return [time.monotonic]


@pytest.fixture
def made_up_clock(clock: list) -> None:
    """A clock of what is measured: each look at it is 5 ms later, so that no budget is
    waited for.
    """
    ticks = itertools.count(step=0.005)
    clock[0] = lambda: next(ticks)


@pytest.fixture
def on_machine(monkeypatch: pytest.MonkeyPatch, clock: list):
    """Put workers and probers that are not real where every command finds them: the one
    seam.
    """

    def put(launch: object = Worker, prober: object = Prober) -> None:
        fake = world.World(launch=launch, prober=prober, now=clock[0])

        monkeypatch.setattr(world, "this_machine", lambda: fake)

    return put


@pytest.fixture
def in_process(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """A command in this process: exit code, stdout, stderr."""

    def run(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["ffnbench", *map(str, arguments)])
        with pytest.raises(SystemExit) as caught:
            cli.main()
        out, err = capsys.readouterr()
        return caught.value.code or 0, out, err

    return run


@pytest.fixture
def call(on_machine, in_process):
    """A command in this process, workers faked; gives exit code, stdout, stderr."""

    def run(*arguments: str, launch: FakeLaunch | None = None) -> tuple[int, str, str]:
        on_machine(launch or FakeLaunch())
        return in_process(*arguments)

    return run


@pytest.fixture
def on_fakes(on_machine, in_process, made_up_clock):
    """A command in this process, workers faked; gives exit code, stdout in one line,
    stderr. Text is cut into words at spaces, a path is one. Its clock is made up.
    """

    def run(
        *arguments: object, launch: object = None, prober: object = KnownProber
    ) -> tuple[int, str, str]:
        on_machine(launch or FakeLaunch(), prober)
        words: list[str] = []
        for argument in arguments:
            words += (
                [str(argument)]
                if isinstance(argument, Path)
                else str(argument).split(" ")
            )
        code, out, err = in_process(*words)
        return code, " ".join(out.split()), err

    return run
