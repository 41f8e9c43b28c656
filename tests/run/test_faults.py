"""Faults provoked for real: real processes and signals, and afterwards a look at what
lives and at what is left behind. Some take long: `pytest -m slow tests/run`.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from paths import ROOT
from repositories import git

slow = pytest.mark.slow
# in the environment of every process of a fault: so those that outlive it are found
MARK = "FFNBENCH_FAULT"
SMALL = ["--d-model", "32", "--seq-len", "16", "--threads", "1"]
ENDLESS = ["--workers", "3", "--rounds", "5000"]
LONG = ["compare", "relu,gelu", *SMALL, *ENDLESS, "-o", "a.json"]
PATIENCE_S = 90.0
GONE_S = 2.0  # then no process of a fault may live any more
NET = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self, dim, hidden_dim):
        super().__init__()
        self.up, self.down = nn.Linear(dim, hidden_dim, bias=False), nn.Linear(hidden_dim, dim, bias=False)

    def forward(self, x):
        return self.down(torch.relu(self.up(x)))
"""
DEAF = """
import signal
for one in range(1, 32):
    try:
        signal.signal(one, signal.SIG_IGN)
    except (OSError, ValueError):
        pass
"""


class Scene:
    """The folder of one fault, and the command that runs in it; what it says goes to a
    file, so that nothing can be blocked by a pipe.
    """

    def __init__(self, base: Path) -> None:
        self.base, self.folder, self.temporary = base, base / "work", base / "tmp"
        for folder in (self.folder, self.temporary):
            folder.mkdir(parents=True)
        self.said = base / "said"

    def start(self, *arguments: str) -> None:
        """Start `ffnbench ARGUMENTS`."""
        environment = os.environ | {
            "PYTHONPATH": str(ROOT), "TMPDIR": str(self.temporary),
            "XDG_STATE_HOME": str(self.base), MARK: str(self.base),
        }  # fmt: skip
        with self.said.open("wb") as said:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "ffnbench", *arguments],
                cwd=self.folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                preexec_fn=heard,
                start_new_session=True,
            )

    def wait_for(self, found: Callable[[], object]) -> None:
        """Wait until this gives something."""
        end = time.monotonic() + PATIENCE_S
        while not found():
            assert time.monotonic() < end, self.said.read_text()
            assert self.process.poll() is None, self.said.read_text()
            time.sleep(0.02)

    def start_long(self, *arguments: str) -> None:
        """Start a long run, and wait until it is in the middle of its rounds."""
        self.start(*arguments)
        self.wait_for(lambda: "process 1/" in self.said.read_text())
        time.sleep(1.0)

    def send(self, number: signal.Signals, code: int) -> str:
        """Send a signal to the command alone; it ends with this code, without a
        traceback, and no process of it lives on. Gives what it said.
        """
        self.process.send_signal(number)
        assert self.process.wait(PATIENCE_S) == code
        self.nobody()
        text = " ".join(self.said.read_text().split())
        assert "Traceback (most recent call last)" not in text
        return text

    def run(self) -> dict:
        """What a.json holds; nothing where it is not there yet."""
        file = self.folder / "a.json"
        return json.loads(file.read_text()) if file.exists() else {"samples": []}

    def living(self) -> dict[int, str]:
        """The processes of this fault, with their command lines."""
        found, wanted = {}, f"{MARK}={self.base}".encode()
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if wanted in (folder / "environ").read_bytes().split(b"\0"):
                    found[int(folder.name)] = (folder / "cmdline").read_text()
        return found

    def workers(self) -> set[int]:
        """The workers that live now: they are forked by processes of the same name."""
        boots = [one for one, command in self.living().items() if "boot.py" in command]
        found = set()
        for number in boots:
            with suppress(OSError):  # one may end meanwhile
                stat = Path(f"/proc/{number}/stat").read_text()
                if int(stat.rpartition(")")[2].split()[1]) in boots:
                    found.add(number)
        return found

    def nobody(self) -> None:
        """No process of this fault lives any more; one that does is ended, by its
        number. Nothing of ours stays beside the outputs, or among the temporary files.
        """
        end = time.monotonic() + GONE_S
        while (left := self.living()) and time.monotonic() < end:
            time.sleep(0.05)
        for number in left:
            with suppress(ProcessLookupError):
                os.kill(number, signal.SIGKILL)
        assert not left
        if self.process.returncode != -signal.SIGKILL:
            assert not list(self.folder.rglob(".ffnbench-*"))
            assert not list(self.temporary.rglob("*ffnbench-*"))


def heard() -> None:
    """In a child: signals are heard even where the tests run in the background."""
    for one in (signal.SIGINT, signal.SIGHUP):
        signal.signal(one, signal.SIG_DFL)


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    """A place to provoke a fault in; whatever that was, no process of it lives on."""
    made = Scene(tmp_path / "fault")
    yield made
    made.nobody()


@slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interruption_in_the_middle_keeps_what_was_measured(
    scene: Scene, number: signal.Signals
) -> None:
    scene.start_long(*LONG)
    scene.send(number, 130)
    assert scene.run()["interrupted"]
    assert scene.run()["samples"]


def test_a_worker_that_is_killed_is_told_and_replaced_and_ctrl_c_keeps_the_samples(
    scene: Scene,
) -> None:
    scene.start_long(*LONG)
    killed = scene.workers()
    for number in killed:
        os.kill(number, signal.SIGKILL)
    scene.wait_for(lambda: scene.run()["samples"])
    before = len(scene.run()["samples"])
    scene.wait_for(lambda: scene.workers() - killed)
    time.sleep(1.0)
    told = scene.send(signal.SIGINT, 130)
    assert "was lost: the process was killed (signal 9)" in told
    assert scene.run()["interrupted"]
    assert "failures" not in scene.run()
    assert len(scene.run()["samples"]) > before


@slow
@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGKILL, -9)]
)
def test_a_module_that_hears_no_signal_ends_with_the_run(
    scene: Scene, number: signal.Signals, code: int
) -> None:
    (scene.folder / "mine.py").write_text(DEAF + NET)
    scene.start_long("compare", "relu", "mine.py:Net", *SMALL, *ENDLESS)
    scene.send(number, code)


@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGINT, 130), pytest.param(signal.SIGKILL, -9, marks=slow)],
)
def test_checkouts_of_a_killed_ab_leave_the_repository_as_it_was(
    scene: Scene, number: signal.Signals, code: int
) -> None:
    module = scene.folder / "mypkg" / "mlp.py"
    module.parent.mkdir()
    module.write_text(NET)
    for line in ("init -q", "add .", "commit -qm old", "tag old"):
        git(scene.folder, *line.split())
    module.write_text(NET + "# a comment\n")
    git(scene.folder, "commit", "-qam", "new")
    scene.start("ab", "mypkg.mlp:Net", "--base-rev", "old", *SMALL)
    scene.wait_for(lambda: list(scene.temporary.rglob("tree/mypkg/mlp.py")))
    scene.send(number, code)
    assert len(git(scene.folder, "worktree", "list").splitlines()) == 1
    assert not list((scene.folder / ".git").glob("*.lock"))
