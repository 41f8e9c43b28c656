"""What a run has measured is kept beside its output while it runs, and read where the
run was killed.
"""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from fake_machine import FakeLaunch
from hypothesis import given, settings
from hypothesis import strategies as st
from paths import ROOT

from ffnbench.common.errors import FfnbenchError
from ffnbench.report.files.store import read_report

COMPARE = [
    "compare",
    "--variants",
    "relu,swiglu",
    "--d-model",
    "32",
    "--threads",
    "1",
    "--metrics",
    "latency",
]


@pytest.fixture
def call(on_machine, in_process, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """A command in this process and this folder, workers faked; gives exit code,
    stdout, stderr.
    """
    monkeypatch.chdir(tmp_path)

    def run(
        *arguments: object, launch: FakeLaunch | None = None
    ) -> tuple[int, str, str]:
        on_machine(launch or FakeLaunch())
        return in_process(*arguments)

    return run


def seen_while_measuring(found: list, at: int = 40) -> FakeLaunch:
    """Workers that look around in the folder when they are asked for their sample
    number `at`.
    """
    asked = []

    def seconds(label: str, worker: int, number: int) -> float:
        asked.append(label)
        if len(asked) == at:
            found.extend(
                (p.name, stat.S_IMODE(p.stat().st_mode), p.read_bytes())
                for p in Path.cwd().glob("*.journal")
            )
        return 0.01

    return FakeLaunch(seconds)


def test_samples_stand_beside_the_output_while_it_is_measured_and_not_after(
    call, tmp_path: Path
) -> None:
    found: list = []
    assert (
        call(
            *COMPARE,
            "--workers",
            3,
            "--rounds",
            10,
            "-o",
            "a.json",
            launch=seen_while_measuring(found),
        )[0]
        == 0
    )
    [(name, mode, content)] = found
    assert (name, mode) == ("a.json.journal", 0o600)
    samples = [
        json.loads(line)["Sample"]
        for line in content.splitlines()[1:]
        if b'"Sample"' in line
    ]
    assert len(samples) >= 35  # of 40 that were asked for, those of practice left out
    assert {p.name for p in tmp_path.iterdir()} == {"a.json"}
    kept = json.loads((tmp_path / "a.json").read_text())["samples"]
    assert samples == [
        {name: value for name, value in one.items()} for one in kept[: len(samples)]
    ]


def test_without_an_output_or_beside_a_device_nothing_is_kept(call) -> None:
    found: list = []
    assert call(*COMPARE, "--quick", launch=seen_while_measuring(found))[0] == 0
    os.symlink(os.devnull, "null.json")
    assert (
        call(
            *COMPARE, "--quick", "-o", "null.json", launch=seen_while_measuring(found)
        )[0]
        == 0
    )
    assert not found


def killed_at(sample: int, *more: str, folder: Path) -> None:
    """A real process with faked workers that is killed by signal 9 at that sample."""
    code = f"""
import os, signal, sys
sys.path[:0] = [{str(ROOT)!r}, {str(ROOT / "tests")!r}]
from fake_machine import FakeLaunch
from ffnbench.app import main as cli
from ffnbench.run import world
asked = []
def seconds(label, worker, number):
    asked.append(label)
    if len(asked) == {sample}:
        os.kill(os.getpid(), signal.SIGKILL)
    return 0.01 * (1.0 + 0.001 * (len(asked) % 7)) * (1.3 if label == "swiglu" else 1)
world.this_machine = lambda wait=False: world.World(launch=FakeLaunch(seconds))
sys.argv = ["ffnbench", *{[*COMPARE, *more]!r}]
cli.main()
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The journal of a run that was killed at its sample 150."""
    folder = tmp_path_factory.mktemp("killed")
    killed_at(150, "-o", "a.json", "--workers", "5", "--rounds", "20", folder=folder)
    assert [path.name for path in folder.iterdir()] == ["a.json.journal"]
    return (folder / "a.json.journal").read_bytes()


def test_a_killed_run_is_shown_by_report(call, killed: bytes, tmp_path: Path) -> None:
    (tmp_path / "a.json.journal").write_bytes(killed)
    code, out, _ = call("report", "a.json.journal", "-o", "b.json")
    assert code == 0
    assert "killed" in " ".join(out.split())
    assert "1.3" in out
    assert len(read_report("b.json").samples) >= 140


@given(share=st.floats(0, 1))
@settings(max_examples=30)
def test_a_journal_that_is_cut_anywhere_has_the_samples_that_are_whole(
    killed: bytes, share: float
) -> None:
    cut = killed[: round(share * len(killed))]
    samples = sum(b'"Sample"' in line for line in cut.rpartition(b"\n")[0].splitlines())
    with tempfile.NamedTemporaryFile(suffix=".journal") as file:
        Path(file.name).write_bytes(cut)
        if samples:
            assert len(read_report(file.name).samples) == samples
        else:
            with pytest.raises(FfnbenchError):
                read_report(file.name)


@pytest.mark.parametrize(
    "bad", [b"{\n", b'{"Sample": 1}\n', b'{"Evil": {}}\n', b"\xff\n", b"[]\n"]
)
def test_a_line_that_fits_not_is_told(
    call, killed: bytes, tmp_path: Path, bad: bytes
) -> None:
    lines = killed.splitlines(keepends=True)
    (tmp_path / "bad.journal").write_bytes(b"".join([*lines[:10], bad, *lines[11:]]))
    code, out, err = call("report", "bad.journal")
    assert (code, out) == (2, "")
    assert "line 11" in err


def test_several_runs_are_several_again(call, tmp_path: Path) -> None:
    killed_at(
        500,
        "-o",
        "a.json",
        "--workers",
        "3",
        "--rounds",
        "10",
        "--runs",
        "20",
        "--pause",
        "0",
        folder=tmp_path,
    )
    report = read_report(tmp_path / "a.json.journal")
    assert 5 <= len(report.runs) <= 9  # of some 66 samples each
    assert sum(len(run.samples) for run in report.runs) > 400


def test_a_planted_link_is_never_written_through(call, tmp_path: Path) -> None:
    (tmp_path / "victim").write_text("mine")
    (tmp_path / "a.json.journal").symlink_to("victim")
    assert call(*COMPARE, "--quick", "-o", "a.json")[0] == 0
    assert (tmp_path / "victim").read_text() == "mine"


def test_a_journal_that_cant_be_kept_costs_no_run(call, tmp_path: Path) -> None:
    name = "n" * 245 + ".json"  # fits by itself, and not with what is added
    code, _, err = call(*COMPARE, "--quick", "-o", name)
    assert code == 0
    assert "no journal is kept" in err
    assert (tmp_path / name).stat().st_size > 1000


def test_what_could_not_be_written_stays_in_the_journal(
    call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("ffnbench.report.files.outputs.replace_file", full)
    monkeypatch.setattr(
        "ffnbench.report.files.outputs._rescue", lambda content: None
    )  # nowhere else either
    code, _, err = call(*COMPARE, "--quick", "-o", "a.json")
    assert code == 3
    assert "what was measured is in a.json.journal" in err
    assert len(read_report("a.json.journal").samples) == 2 * 5 * 4
