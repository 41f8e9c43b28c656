"""`ffnbench ab`: real repositories, real worktrees, real looks at the code; only the timing is scripted."""

from __future__ import annotations

import json
import math
import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import ROOT, FakeLaunch, KnownProber, listen

from ffnbench import cli, jsonable
from ffnbench.errors import FfnbenchError
from ffnbench.gate.regression import Status, output_finding
from ffnbench.gate.repository import PREFIX, Repository
from ffnbench.plan import CONTROL, OWN, Arm, Case
from ffnbench.planning.compare import plan_compare
from ffnbench.request import CompareRequest
from ffnbench.result import Agreement
from ffnbench.run.prober import Prober
from ffnbench.worker.agreement import hold, keep

MODULE = """
import time
import torch
from torch import nn

SECONDS = {seconds}

class SwiGLU(nn.Module):
    def __init__(self, dim, hidden_dim):
        super().__init__()
        self.gate, self.up = (nn.Linear(dim, hidden_dim, bias=False) for _ in range(2))
        self.down = nn.Linear(hidden_dim, dim, bias=False)

    def forward(self, x):
        if x.device.type == "cpu":
            time.sleep(SECONDS)  # as long whatever else runs
        return self.down(torch.nn.functional.{act}(self.gate(x)) * self.up(x))
"""
TARGET = "mypkg.mlp:SwiGLU"
SMALL = ("--d-model", "16", "--seq-len", "32", "--threads", "1", "-q")


def git(folder: Path, *arguments: str) -> str:
    who = ("-c", "user.name=n", "-c", "user.email=e@x", "-c", "init.defaultBranch=main")
    clean = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    done = subprocess.run(
        ["git", *who, *arguments], cwd=folder, check=True, capture_output=True, text=True, env=clean
    )  # fmt: skip
    return done.stdout.strip()


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tags: before (empty), old, slow (by 10 %), same, changed (its activation), renamed (a weight), broken, absent."""
    folder = tmp_path_factory.mktemp("repository")
    git(folder, "init", "-q")
    git(folder, "commit", "-qm", "before", "--allow-empty")
    git(folder, "tag", "before")
    file = folder / "mypkg" / "mlp.py"
    file.parent.mkdir()
    (folder / "mypkg" / "__init__.py").touch()
    old = MODULE.format(seconds=0.004, act="silu")
    versions = {
        "old": old, "slow": MODULE.format(seconds=0.0044, act="silu"), "same": old + "\n# a comment\n",
        "changed": MODULE.format(seconds=0.004, act="gelu"), "renamed": old.replace("gate", "wide"),
        "broken": old + "\nimport not_there\n",
    }  # fmt: skip
    for tag, text in versions.items():
        file.write_text(text)
        git(folder, "add", ".")
        git(folder, "commit", "-qm", tag)
        git(folder, "tag", tag)
    git(folder, "rm", "-q", "mypkg/mlp.py")
    git(folder, "commit", "-qm", "absent")
    git(folder, "tag", "absent")
    git(folder, "reset", "-q", "--hard", "old")
    return folder


@pytest.fixture
def repository(made: Path, monkeypatch: pytest.MonkeyPatch):
    """The repository as current folder, its working tree that of `old`."""
    monkeypatch.chdir(made)
    git(made, "checkout", "-q", "-f", "--detach", "old")
    return made


def machine(factor: float = 1.0, seed: int = 0, scatter: float = 0.002) -> FakeLaunch:
    """Workers of 10 ms a call, head's a multiple of it."""
    dice = random.Random(seed)
    layouts: dict[int, float] = {}

    def seconds(label: str, worker: int, number: int) -> float:
        layout = layouts.setdefault(worker, dice.gauss(0, scatter))
        head = label not in ("base", CONTROL)
        return 0.01 * (factor if head else 1.0) * math.exp(layout + dice.gauss(0, scatter))

    return FakeLaunch(seconds)


@pytest.fixture
def call(on_machine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """`ffnbench ab` in this process, only the workers that time are faked; gives exit code, stdout, stderr."""

    def run(*arguments: str, launch: FakeLaunch | None = None, prober: type[Prober] = Prober) -> tuple[int, str, str]:
        on_machine(launch or machine(), prober)
        monkeypatch.setattr(sys, "argv", ["ffnbench", "ab", *arguments, *SMALL])
        monkeypatch.setenv("COLUMNS", "100")
        with pytest.raises(SystemExit) as caught:
            cli.main()
        out, err = capsys.readouterr()
        return caught.value.code or 0, out, err

    return run


def rows(out: str) -> dict[str, str]:
    """metric -> status of the table's rows."""
    lines = [line.split() for line in out.splitlines() if re.match(r"SwiGLU +[a-z_]+ ", line)]
    return {words[1]: words[2].rstrip("¹²³") for words in lines}


def test_the_same_code_passes_and_the_sides_are_named(call, repository: Path) -> None:
    (repository / "mypkg" / "__init__.py").write_text("# a change\n")
    code, out, err = call(TARGET, "--base-rev", "same", prober=KnownProber)
    assert code == 0, err
    words = " ".join(out.split())
    base, head = git(repository, "rev-parse", "--short", "same"), git(repository, "rev-parse", "--short", "HEAD")
    assert f"FFN A/B of {TARGET}: base same ({base}); head the working tree ({head}" in words
    assert "with changes that are not committed" in words
    assert rows(out) == {"latency": "OK", "output": "OK"}
    assert "latency is the ratio to base" in out
    assert "exact rows are equal" in out


def test_a_slower_head_fails(call, repository: Path, tmp_path: Path) -> None:
    arguments = (TARGET, "--base-rev", "same", "-o", str(tmp_path / "ab.json"), "-o", str(tmp_path / "ab.xml"))
    code, out, _ = call(*arguments, "--format", "github", launch=machine(1.1), prober=KnownProber)
    assert code == 1
    assert rows(out) == {"latency": "REGRESSED", "output": "OK"}
    assert "::error title=ffnbench REGRESSED::SwiGLU latency: REGRESSED, +" in out
    saved = json.loads((tmp_path / "ab.json").read_text())
    arms = {case["label"]: case["arm"] for case in saved["now"]["plan"]["cases"]}
    assert [arm["name"] for arm in arms.values()] == ["base", "head", CONTROL]
    assert arms[CONTROL]["source"] == arms["base"]["source"]
    assert arms["SwiGLU"]["source"] == str(repository)
    assert "REGRESSED" in (tmp_path / "ab.xml").read_text()


def test_the_tolerance_is_fail_aboves(call, repository: Path) -> None:
    assert call(TARGET, "--base-rev", "same", "--fail-above", "20%", launch=machine(1.1), prober=KnownProber)[0] == 0
    arguments = (TARGET, "--base-rev", "same", "--on-unclear", "fail", "--budget", "5")
    code, out, _ = call(*arguments, launch=machine(1.05, scatter=0.3), prober=KnownProber)
    assert (code, rows(out)) == (4, {"latency": "UNCLEAR", "output": "OK"})


def test_a_changed_result_is_a_finding_of_its_own(call, repository: Path) -> None:
    launch = machine()
    code, out, _ = call(TARGET, "--base-rev", "changed", launch=launch)
    assert (code, rows(out), launch.log) == (1, {"output": "REGRESSED"}, [])
    assert "head's output differs from base's by" in out

    class Differs(KnownProber):
        def within(self, arm: Arm) -> KnownProber:
            return self if arm == OWN else Differs(1.0, arm)

        def hold(self, case: Case, seed: int, folder: str) -> Agreement:
            return agreement(error=0.4)

    code, out, _ = call(TARGET, "--base-rev", "changed", "--allow-mismatch", prober=Differs)
    assert (code, rows(out)) == (0, {"latency": "OK", "output": "OK"})
    assert "allowed by --allow-mismatch" in out


def held(made: Path, folder: Path, base: str, head: str, **options: object) -> Agreement:
    """The two jobs, in this process, on two tags of the module."""
    for tag in (base, head):
        (folder / f"{tag}.py").write_text(git(made, "show", f"{tag}:mypkg/mlp.py"))
    variants = ",".join(f"{tag}={folder}/{tag}.py:SwiGLU" for tag in dict.fromkeys((base, head)))
    plan = plan_compare(CompareRequest(variants=variants, d_model=16, d_ff=32, match="none", **options), KnownProber())
    keep(jsonable.encode(plan.cases[0]), 0, str(folder))
    return jsonable.decode(Agreement, hold(jsonable.encode(plan.cases[-1]), 1, str(folder)))


def test_outputs_are_held_against_each_other_and_against_float64(made: Path, tmp_path: Path) -> None:
    """The base's weights are carried over: the seeds differ here."""
    same = held(made, tmp_path, "old", "same")
    assert (same.error, same.exact_error, same.apart) == (0.0, 0.0, "")
    assert 0 < same.base_error == same.head_error < 1e-6
    changed = held(made, tmp_path, "old", "changed")
    assert changed.error > 0.01
    assert changed.exact_error == pytest.approx(changed.error, rel=1e-3)
    renamed = held(made, tmp_path, "old", "renamed")
    assert renamed.apart == "only base has gate.weight"
    assert renamed.error > 0.1
    half = held(made, tmp_path, "old", "changed", dtype="bfloat16")
    assert half.tolerance == 0.05
    assert half.base_error > 1e-4


@pytest.mark.parametrize(
    ("arguments", "error", "hint"),
    [
        ([TARGET, "--base-rev", "nope"], "no revision is called 'nope'", "git tag"),
        ([TARGET, "--base-rev", "broken"], "base: cannot import 'mypkg.mlp': ModuleNotFoundError", "installed"),
        (["mypkg/mlp.py:SwiGLU", "--head-rev", "absent", "--base-rev", "old"], "head: there is no file", ""),
        pytest.param([TARGET, "--base-rev", "absent"], "base: cannot import 'mypkg.mlp'", "", marks=pytest.mark.slow),
        pytest.param(["mypkg.mlp:Mlp", "--base-rev", "same"], "'mypkg.mlp' has no 'Mlp'", "", marks=pytest.mark.slow),
        (["torch.nn:Linear", "--base-rev", "same"], "which is no part of it", "--base-source"),
        ([TARGET], "base and head are the same", "--base-rev"),
        (["swiglu", "--base-rev", "same"], "'swiglu' is ffnbench's own", "package.module:Attr"),
        ([f"{TARGET},relu", "--base-rev", "same"], "ab measures one variant, not 2", "compare"),
        ([f"{TARGET}@python=x", "--base-rev", "same"], "not told by @python=x", "--base-python"),
        ([TARGET, "--base-python", "nowhere/python"], "there is no interpreter 'nowhere/python'", ""),
        ([TARGET, "--base-source", "nowhere"], "there is no folder 'nowhere'", ""),
        ([TARGET, "--base-rev", "old", "--base-source", "."], "both say where the code is", ""),
        ([TARGET, "--base-env", "A=1"], "cannot read the variable 'A=1'", "NAME:VALUE"),
        (
            [TARGET, "--base-rev", "old", "--fail-above", "5"],
            "--fail-above '5' could mean 5% or 500%",
            "'5%' or '500%'",
        ),
        ([TARGET, "--base-rev", "old", "--fail-above", "5%", "--tolerance", "latency=3%"], "both speak of", ""),
        ([TARGET, "--base-rev", "old", "--tolerance", "seconds=3%"], "not seconds", ""),
        ([TARGET, "--base-rev", "old", "--budget", "1"], "--budget 1 is too short", ""),
        ([f"base={TARGET}", "--base-rev", "old"], "'base' is what the other side is called", ""),
    ],
)
def test_mistakes_are_found_before_measuring(call, repository: Path, arguments, error: str, hint: str) -> None:
    launch = machine()
    code, out, err = call(*arguments, launch=launch)
    assert (code, out, launch.log) == (2, "", [])
    assert error in err.splitlines()[0]
    assert hint in err.splitlines()[1]


def test_a_place_below_the_top_and_a_hooks_variables(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a hook git says where its index is: that must not be taken for the checkout's."""
    monkeypatch.setenv("GIT_INDEX_FILE", str(repository / ".git" / "index"))
    monkeypatch.setenv("GIT_DIR", "/nowhere")
    with Repository(repository / "mypkg") as found:
        place = found.checkout(found.commit("slow"))
        assert place.name == "mypkg"
        assert "0.0044" in (place / "mlp.py").read_text()
        assert not found.dirty
        with pytest.raises(FfnbenchError, match="has no folder 'mypkg/'"):
            found.checkout(found.commit("before"))
    assert not place.exists()


def test_a_checkout_writes_nothing_into_the_repository(repository: Path) -> None:
    """So a killed run leaves nothing there. Filters of the user's git apply, as in every checkout of his."""
    git(repository, "config", "filter.louder.smudge", "tr a-z A-Z")
    (repository / ".git" / "info" / "attributes").write_text("__init__.py filter=louder\nmlp.py filter=louder\n")

    def everything() -> dict[Path, tuple[int, int]]:
        return {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in repository.rglob("*")}

    before = everything()
    with Repository(repository) as found, Repository(repository) as other:
        places = [found.checkout(found.commit("slow")), other.checkout(other.commit("old"))]
        assert ["SECONDS = 0.0044" in (place / "mypkg" / "mlp.py").read_text() for place in places] == [True, False]
        assert "CLASS SWIGLU" in (places[0] / "mypkg" / "mlp.py").read_text()
        assert everything() == before
    assert not any(place.exists() for place in places)
    git(repository, "config", "--remove-section", "filter.louder")
    (repository / ".git" / "info" / "attributes").unlink()


@pytest.mark.parametrize("how", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)])
def test_an_interruption_leaves_no_checkout(repository: Path, tmp_path: Path, how: signal.Signals) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "ffnbench", "ab", TARGET, "--base-rev", "same", *SMALL],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=repository,
        env={**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path)}, preexec_fn=listen,
    )  # fmt: skip
    until = time.monotonic() + 30
    while not list(tmp_path.glob(f"{PREFIX}*/tree/mypkg/mlp.py")) and time.monotonic() < until:
        time.sleep(0.02)
    process.send_signal(how)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "interrupted" in err + out
    assert not list(tmp_path.glob(f"{PREFIX}*"))


def agreement(**given: object) -> Agreement:
    return Agreement(**{"error": 1e-7, "tolerance": 1e-4, "exact_error": 1e-16, **given})


@pytest.mark.parametrize(
    ("found", "status"),
    [
        (agreement(), Status.OK),
        (agreement(error=2e-4), Status.REGRESSED),
        (agreement(error=None), Status.REGRESSED),
        (agreement(tolerance=5e-2, error=1e-2, exact_error=1e-3), Status.REGRESSED),  # rounding hides it, float64 shows
        (agreement(tolerance=5e-2, error=1e-2, exact_error=None), Status.OK),
        (agreement(error=1.4, apart="only head has gate.weight"), Status.UNCLEAR),
        (agreement(apart="only head has gate.weight"), Status.OK),
    ],
)
def test_what_follows_from_two_outputs(found: Agreement, status: Status) -> None:
    finding = output_finding("x", found, allowed=False)
    assert finding.status is status
    assert bool(finding.reason) == (status is not Status.OK or bool(found.apart))
    assert output_finding("x", found, allowed=True).status is Status.OK


def test_the_control_speaks_for_an_ab_too(call, repository: Path) -> None:
    """Head 10 % slower, and base 10 % slower than itself: nothing is decided."""
    launch = machine(1.1)
    real = launch.seconds
    launch.seconds = lambda label, worker, number: real(label, worker, number) * (1.1 if label == CONTROL else 1.0)
    code, out, _ = call(TARGET, "--base-rev", "same", "--budget", "5", launch=launch, prober=KnownProber)
    assert (code, rows(out)) == (0, {"latency": "UNCLEAR", "output": "OK"})


def test_a_head_that_fails_never_passes(call, repository: Path) -> None:
    launch = machine()
    launch.trouble = {("open", "SwiGLU"): "crash"}
    code, out, _ = call(TARGET, "--base-rev", "same", launch=launch, prober=KnownProber)
    assert (code, rows(out)["latency"]) == (3, "MISSING")
    assert "SwiGLU said no" in out


def measured(repository: Path, *arguments: str) -> subprocess.CompletedProcess:
    """The real command with real workers."""
    return subprocess.run(
        [sys.executable, "-m", "ffnbench", "ab", *arguments, *SMALL], capture_output=True, text=True, timeout=600,
        cwd=repository, env={**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "100"},
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(
    ("base", "head", "code", "status"),
    [("old", "slow", 1, "REGRESSED"), ("slow", "old", 0, "IMPROVED"), ("old", "same", 0, "OK")],
)
def test_ten_percent_are_found_and_nothing_is_not(
    repository: Path, base: str, head: str, code: int, status: str
) -> None:
    """Calls that take 4 ms and 4.4 ms."""
    done = measured(repository, TARGET, "--base-rev", base, "--head-rev", head, "--budget", "90")
    assert (done.returncode, rows(done.stdout)) == (code, {"latency": status, "output": "OK"}), (
        done.stdout + done.stderr
    )
