"""Files and streams: nothing is written over what is read, or half; what becomes of
stdout changes no code.
"""

from __future__ import annotations

import errno
import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from fake_machine import FakeLaunch, measure, prepare

from ffnbench.report import files as written
from ffnbench.report.files import replace_file
from ffnbench.report.store import report_text

ROOT = Path(__file__).parents[2]
COST = ["cost", "--variants", "relu,gelu,swiglu", "--d-model", "64"]


def shell(
    command: str, folder: Path, **environment: str
) -> subprocess.CompletedProcess[str]:
    """A command of a shell, `ffnbench` being the one of this tree."""
    words = command.replace("ffnbench ", f"{sys.executable} -m ffnbench ")
    known = os.environ | {"PYTHONPATH": str(ROOT)} | environment
    return subprocess.run(
        ["bash", "-c", words], cwd=folder, env=known, capture_output=True, text=True, timeout=60, check=False,
        errors="replace",
    )  # fmt: skip


@pytest.fixture
def measured(tmp_path: Path) -> Path:
    """A baseline of faked workers whose swiglu is 1.0 of the reference."""
    request = dict(
        variants="relu,swiglu", d_model=64, threads=1, metrics="latency", precision=0.5
    )
    path = tmp_path / "base.json"
    path.write_text(report_text(measure(prepare(**request), launch=FakeLaunch())))
    return path


@pytest.fixture
def call(on_machine, in_process):
    """A command in this process, workers faked; gives exit code, stdout, stderr."""

    def run(*arguments: object, slow: float = 1.0) -> tuple[int, str, str]:
        on_machine(
            FakeLaunch(
                lambda label, worker, number: (
                    0.01 * (slow if label == "swiglu" else 1.0)
                )
            )
        )
        return in_process(*arguments)

    return run


def test_a_reader_that_goes_away_changes_nothing(tmp_path: Path) -> None:
    done = shell(
        "ffnbench cost -o a.csv -o a.json | true; echo ${PIPESTATUS[0]}", tmp_path
    )
    assert done.stdout.strip().splitlines()[-1] == "0"
    assert "error" not in done.stderr
    assert len(json.loads((tmp_path / "a.json").read_text())["costs"]) == 3
    assert (tmp_path / "a.csv").read_text().count("\n") == 4


def test_who_reads_a_file_while_it_is_written_anew_reads_all_of_the_old_one(
    tmp_path: Path,
) -> None:
    path = tmp_path / "run.json"
    path.write_bytes(b"old" * 1000)
    with path.open("rb") as reader:
        assert reader.read(3) == b"old"
        replace_file(path, b"new" * 10)
        assert reader.read() == b"old" * 999
    assert path.read_bytes() == b"new" * 10
    assert list(tmp_path.iterdir()) == [path]


def test_a_full_stdout_is_told_and_the_files_are_written(tmp_path: Path) -> None:
    done = shell("ffnbench cost -o a.csv >/dev/full; echo $? >code", tmp_path)
    assert (tmp_path / "code").read_text() == "3\n"
    assert done.stderr.splitlines()[0] == "wrote a.csv"
    assert "error: cannot write to stdout: No space left on device" in done.stderr
    assert (tmp_path / "a.csv").stat().st_size > 500


@pytest.mark.parametrize("trouble", ["broken", "full"])
def test_a_regression_stays_one_whatever_becomes_of_the_rest(
    measured: Path, tmp_path: Path, call, monkeypatch: pytest.MonkeyPatch, trouble: str
) -> None:
    """Exit code 1 where the reader has gone, the file fails and the summary is a
    folder.
    """

    class Bad:
        encoding = "utf-8"

        def write(self, text: str) -> int:
            raise (
                BrokenPipeError
                if trouble == "broken"
                else OSError(errno.ENOSPC, "No space left on device")
            )

        def flush(self) -> None:
            pass

        def isatty(self) -> bool:
            return False

    monkeypatch.setattr("ffnbench.report.destination.hush", lambda: None)
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path))

    def failing(path: Path, content: bytes) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(written, "replace_file", failing)
    monkeypatch.setattr(sys, "stdout", Bad())
    code, _, err = call(
        "check",
        measured,
        "-q",
        "--format",
        "github",
        "-o",
        tmp_path / "x.xml",
        slow=1.5,
    )
    assert code == 1
    assert "No space left on device" in err


@pytest.mark.parametrize(
    ("what", "why"),
    [
        ("folder", "Is a directory"),
        ("none.json", "No such file or directory"),
        ("/dev/zero", "it has more than 1.00 KiB"),
    ],
)
def test_what_is_named_is_read_to_a_size_that_is_said(
    tmp_path: Path, call, monkeypatch: pytest.MonkeyPatch, what: str, why: str
) -> None:
    """By every command that reads a file of the user's."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("ffnbench.common.files.MOST_FILE_BYTES", 1024)
    Path("folder").mkdir()
    for command in ("report", "check", "block --preset", "cost relu --preset"):
        code, out, err = call(*command.split(), what)
        assert (code, out, err.count("\n")) == (2, "", 2), command
        said = why
        if command.endswith("--preset"):  # a name, or a folder with a config.json
            said = {
                "folder": "No such file or directory",
                "none.json": "neither a preset nor a file",
            }.get(what, why)
        assert said in err.splitlines()[0], command


def test_an_input_is_no_output(measured: Path, tmp_path: Path, call) -> None:
    text = measured.read_text()
    link = tmp_path / "link.json"
    link.symlink_to(measured)
    hard = tmp_path / "hard.json"
    hard.hardlink_to(measured)
    for arguments in (
        ["check", measured, "--exact-only", "-o", measured],
        ["check", link, "--exact-only", "-o", hard],
        ["check", measured, link, "-o", hard],
        ["report", measured, "-o", link],
    ):
        code, out, err = call(*arguments)
        assert (code, out) == (2, "")
        assert "is read by this command and would be overwritten" in err
    assert measured.read_text() == text
    config = tmp_path / "config.json"
    config.write_text(
        '{"model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2}'
    )
    for arguments in (["cost", "--preset"], ["cost", "relu"], ["block", "--preset"]):
        assert call(*arguments, config, "-o", config)[0] == 2
    assert "llama" in config.read_text()


def test_mode_and_link_stay(tmp_path: Path, call) -> None:
    target, link = tmp_path / "real.csv", tmp_path / "link.csv"
    target.write_text("old")
    target.chmod(0o600)
    link.symlink_to(target)
    assert call(*COST, "-o", link)[0] == 0
    assert link.is_symlink()
    assert target.read_text().startswith("label,")
    assert stat.S_IMODE(target.stat().st_mode) == 0o600


def test_a_new_file_has_the_mode_of_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        replace_file(tmp_path / "a", b"x")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o640


def test_no_folder_is_made_for_nothing(call, tmp_path: Path) -> None:
    assert call("compare", "swigul", "-o", f"{tmp_path}/new/deeper/")[0] == 2
    assert list(tmp_path.iterdir()) == []
    assert call(*COST, "-o", f"{tmp_path}/new/deeper/")[0] == 0
    assert (tmp_path / "new" / "deeper" / "cost.csv").is_file()
