"""Faults provoked for real: real processes and signals, and afterwards a look at what
lives and at what is left behind.

What is promised is written down here a second time, by hand. Most take long: `pytest -m
slow tests/run/test_faults.py`.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from paths import ROOT
from repositories import git

slow = pytest.mark.slow
# in the environment of every process of a fault: so those that outlive it are found
MARK = "FFNBENCH_FAULT"
SMALL = ["--d-model", "32", "--seq-len", "16", "--threads", "1"]
QUICK = ["compare", "relu,gelu", *SMALL, *["--workers", "3", "--rounds", "2"]]
MIDDLE = [*QUICK, "--rounds", "40"]  # long enough for something to happen in the middle
MIDDLE_SAMPLES = 2 * 3 * 40
ENDLESS = ["--workers", "3", "--rounds", "5000"]
LONG = ["compare", "relu,gelu", *SMALL, *ENDLESS]
OLD = b"precious"
PATIENCE_S = 90.0
GONE_S = 2.0  # then no process of a fault may live any more
PR_CAPBSET_DROP, CAP_DAC_OVERRIDE = 24, 1
NET = """
import os
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


class Running:
    """A command that was started; what it says goes to files, so that nothing can be
    blocked by a pipe.
    """

    def __init__(self, process: subprocess.Popen[bytes], out: Path, err: Path) -> None:
        self.process, self.files, self.began = process, (out, err), time.monotonic()
        self.code: int | None = None
        self.out = self.err = ""

    def until(self, text: str) -> None:
        """Wait until it has said this."""
        end = time.monotonic() + PATIENCE_S
        while text.encode() not in b"".join(file.read_bytes() for file in self.files):
            assert time.monotonic() < end, f"it never said {text!r}"
            assert self.process.poll() is None, f"it ended, and never said {text!r}"
            time.sleep(0.02)

    def wait_for(self, found: Callable[[], object]) -> None:
        """Wait until this gives something."""
        while not found():
            assert self.process.poll() is None, "it ended before"
            time.sleep(0.02)

    def measuring(self) -> None:
        """Wait until it is in the middle of its rounds."""
        self.until("process 1/")
        time.sleep(1.0)

    def send(self, number: signal.Signals) -> None:
        """Send a signal to this process alone, if it is still there."""
        if self.process.poll() is None:
            self.process.send_signal(number)

    def end(self, *codes: int, seconds: float = PATIENCE_S) -> Running:
        """Wait for its end with one of these codes, without a traceback."""
        self.code = self.process.wait(seconds)
        self.out, self.err = (
            file.read_bytes().decode("utf-8", "surrogateescape") for file in self.files
        )
        assert self.code in codes, self.err[-2000:]
        assert "Traceback (most recent call last)" not in self.out + self.err
        return self

    def says(self, *texts: str) -> None:
        """Both streams hold these, lines that were broken put together again."""
        said = " ".join((self.out + self.err).split())
        assert [text for text in texts if text not in said] == [], said


class Scene:
    """The folder of one fault, and the commands that run in it."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self.folder, self.temporary, self.home, self.logs = (
            base / name for name in ("work", "tmp", "home", "logs")
        )
        for folder in (self.folder, self.temporary, self.home, self.logs):
            folder.mkdir(parents=True)
        self.environment = {
            "PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "COLUMNS": "100", "TMPDIR": str(self.temporary),
            "HOME": str(self.home), "LANG": "C.UTF-8", MARK: str(base),
            "PYTHONPYCACHEPREFIX": os.environ.get("PYTHONPYCACHEPREFIX", ""),
        }  # fmt: skip

    def start(self, *arguments: object, **how: Any) -> Running:
        """Start `ffnbench ARGUMENTS`."""
        return self.spawn(
            [sys.executable, "-m", "ffnbench", *map(str, arguments)], **how
        )

    def spawn(
        self,
        command: list[str],
        *,
        env: dict[str, str] | None = None,
        before: Callable[[], object] | None = None,
    ) -> Running:
        """Start any command; `before` runs in the child before it."""
        number = len(list(self.logs.iterdir()))
        out, err = (self.logs / f"{number}.{name}" for name in ("out", "err"))

        def prepare() -> None:
            for one in (
                signal.SIGINT,
                signal.SIGHUP,
            ):  # heard even where the tests run in the background
                signal.signal(one, signal.SIG_DFL)
            if before is not None:
                before()

        with out.open("ab") as stdout, err.open("ab") as stderr:
            process = subprocess.Popen(
                command, cwd=self.folder, env={**self.environment, **(env or {})}, stdin=subprocess.DEVNULL,
                stdout=stdout, stderr=stderr, preexec_fn=prepare, start_new_session=True,
            )  # fmt: skip
        return Running(process, out, err)

    def in_the_middle(self) -> Running:
        """A long run in its rounds, its output there already with another content."""
        (self.folder / "a.json").write_bytes(OLD)
        running = self.start(*LONG, "-o", "a.json")
        running.measuring()
        return running

    def whole(self, path: str | Path, samples: int | None = None) -> dict[str, Any]:
        """A saved run, read with the standard library."""
        data: dict[str, Any] = json.loads(
            (self.folder / path).read_text(encoding="utf-8")
        )
        times = [sample for sample in data["samples"] if sample["metric"] == "latency"]
        assert data["plan"]["cases"]
        assert all(sample["value"] > 0 for sample in times)
        assert samples in (None, len(times))
        return data

    def samples(self) -> int:
        """How many a.json has."""
        file = self.folder / "a.json"
        return len(json.loads(file.read_text())["samples"]) if file.exists() else 0

    def living(self) -> dict[int, str]:
        """The processes of this fault, with their command lines."""
        found, wanted = {}, f"{MARK}={self.base}".encode()
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if wanted in (folder / "environ").read_bytes().split(b"\0"):
                    words = (folder / "cmdline").read_bytes().replace(b"\0", b" ")
                    found[int(folder.name)] = words.decode("utf-8", "replace").strip()
        return found

    def workers(self) -> list[int]:
        """The workers that live now: they are forked by processes of the same name."""
        boots = [one for one, command in self.living().items() if "boot.py" in command]
        found = []
        for number in boots:
            with suppress(OSError):  # one may end meanwhile
                stat = Path(f"/proc/{number}/stat").read_text()
                if int(stat.rpartition(")")[2].split()[1]) in boots:
                    found.append(number)
        return found

    def nobody(self) -> None:
        """No process of this fault lives any more; one that does is ended, by its
        number.
        """
        end = time.monotonic() + GONE_S
        while (left := self.living()) and time.monotonic() < end:
            time.sleep(0.05)
        for number in left:
            with suppress(ProcessLookupError):
                os.kill(number, signal.SIGKILL)
        assert not left

    def nothing_left(self) -> None:
        """Nothing of ours stays beside the outputs, or among the temporary files."""
        ours = (".ffnbench-*", "ffnbench-*")
        assert not [
            p
            for place in (self.folder, self.temporary)
            for each in ours
            for p in place.rglob(each)
        ]


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    """A place to provoke a fault in; whatever that was, no process of it lives on."""
    made = Scene(tmp_path / "fault")
    yield made
    made.nobody()


# Files


def ordinary() -> None:
    """In a child: what root may do to files that are read-only is given up, and does
    not come back.
    """
    if os.geteuid() == 0 and ctypes.CDLL(None).prctl(
        PR_CAPBSET_DROP, CAP_DAC_OVERRIDE, 0, 0, 0
    ):
        raise OSError("no capability can be given up")


def test_what_may_not_be_read_or_written_is_told_before_anything_is_measured(
    scene: Scene,
) -> None:
    try:
        subprocess.run(["true"], preexec_fn=ordinary, check=True)
    except subprocess.SubprocessError:
        pytest.skip("root")
    (scene.folder / "locked").mkdir(mode=0o555)
    for name, mode in (("secret.json", 0o000), ("kept.csv", 0o444)):
        (scene.folder / name).write_bytes(OLD)
        (scene.folder / name).chmod(mode)
    for command in (
        ("report", "secret.json"),
        (*QUICK, "-o", "locked/a.csv"),
        (*QUICK, "-o", "kept.csv"),
    ):
        done = scene.start(*command, before=ordinary).end(2)
        assert done.err.count("error:") == 1
        assert "starting workers" not in done.err
    assert (scene.folder / "kept.csv").read_bytes() == OLD
    scene.nothing_left()


# Signals


@slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interruption_in_the_middle_keeps_what_was_measured(
    scene: Scene, number: signal.Signals
) -> None:
    running = scene.in_the_middle()
    running.send(number)
    running.end(130, seconds=20)
    run = scene.whole("a.json")
    assert run["interrupted"]
    assert run["samples"]
    scene.nothing_left()


@slow
def test_interrupted_twice_it_ends_at_once_and_no_file_is_half(scene: Scene) -> None:
    running = scene.in_the_middle()
    running.send(signal.SIGINT)
    time.sleep(0.05)
    began = time.monotonic()
    running.send(signal.SIGINT)
    running.end(130, seconds=20)
    assert (
        time.monotonic() - began < 5.0
    )  # of saving, which takes longer, nothing is waited for
    if (scene.folder / "a.json").read_bytes() != OLD:
        scene.whole("a.json")


@slow
def test_a_run_goes_on_under_nohup_and_after_a_stop(scene: Scene) -> None:
    running = scene.start(
        *MIDDLE,
        "-o",
        "a.json",
        before=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN) and None,
    )
    running.until("process 1/")
    running.send(signal.SIGHUP)
    running.send(signal.SIGSTOP)
    time.sleep(2)
    running.send(signal.SIGCONT)
    running.end(0)
    scene.whole("a.json", MIDDLE_SAMPLES)
    scene.nothing_left()


def test_a_worker_that_is_killed_is_told_and_replaced_and_ctrl_c_keeps_the_samples(
    scene: Scene,
) -> None:
    running = scene.start(*LONG, "-o", "a.json")
    running.measuring()
    killed = {*scene.workers()}
    for number in killed:
        os.kill(number, signal.SIGKILL)
    running.wait_for(scene.samples)
    before = scene.samples()
    running.wait_for(lambda: {*scene.workers()} - killed)
    time.sleep(1.0)
    running.send(signal.SIGINT)
    running.end(130).says("was lost: the process was killed (signal 9)")
    run = scene.whole("a.json")
    assert run["interrupted"]
    assert "failures" not in run
    assert len(run["samples"]) > before
    scene.nothing_left()


@slow
@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGKILL, -9)]
)
def test_a_module_that_hears_no_signal_ends_with_the_run(
    scene: Scene, number: signal.Signals, code: int
) -> None:
    (scene.folder / "mine.py").write_text(DEAF + NET)
    running = scene.start("compare", *SMALL, "--variants", "relu,mine.py:Net", *ENDLESS)
    running.measuring()
    running.send(number)
    running.end(code, seconds=20)
    scene.nobody()


@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGINT, 130), pytest.param(signal.SIGKILL, -9, marks=slow)],
)
def test_checkouts_of_a_killed_ab_leave_the_repository_as_it_was(
    scene: Scene, number: signal.Signals, code: int
) -> None:
    (scene.folder / "mypkg").mkdir()
    for text, name in (("", "__init__"), (NET, "mlp")):
        (scene.folder / "mypkg" / f"{name}.py").write_text(text)
    for line in ("init -q", "add .", "commit -qm old", "tag old"):
        git(scene.folder, *line.split())
    (scene.folder / "mypkg" / "mlp.py").write_text(NET + "# a comment\n")
    git(scene.folder, "commit", "-qam", "new")
    running = scene.start("ab", "mypkg.mlp:Net", "--base-rev", "old", *SMALL)
    running.wait_for(lambda: list(scene.temporary.rglob("tree/mypkg/mlp.py")))
    running.send(number)
    running.end(code, seconds=30)
    scene.nobody()
    assert len(git(scene.folder, "worktree", "list").splitlines()) == 1
    assert not list((scene.folder / ".git").glob("*.lock"))
