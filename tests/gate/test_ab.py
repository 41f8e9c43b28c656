"""`ffnbench ab`: real repositories, real worktrees, real looks at the code; only the
timing is scripted.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from fake_machine import KnownProber, planned
from repositories import MODULE, TARGET, git
from shell import ffnbench

from ffnbench.common.errors import FfnbenchError
from ffnbench.gate.decision import Status, output_finding
from ffnbench.gate.sides import checkout
from ffnbench.record.result import Agreement
from ffnbench.worker.agreement import compare_output, save_output

SMALL = ("--d-model", "16", "--seq-len", "32", "--threads", "1", "-q")


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tags: before (empty), old, slow (by 10 %), same, changed (its activation),
    renamed (a weight).
    """
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
    }  # fmt: skip
    for tag, text in versions.items():
        file.write_text(text)
        git(folder, "add", ".")
        git(folder, "commit", "-qm", tag)
        git(folder, "tag", tag)
    git(folder, "reset", "-q", "--hard", "old")
    return folder


@pytest.fixture
def repository(made: Path, monkeypatch: pytest.MonkeyPatch):
    """The repository as current folder, its working tree that of `old`."""
    monkeypatch.chdir(made)
    git(made, "checkout", "-q", "-f", "--detach", "old")
    return made


def rows(out: str) -> dict[str, str]:
    """metric -> status of the table's rows."""
    return {
        metric: status.rstrip("¹²³")
        for metric, status in re.findall(
            r"SwiGLU ([a-z_]+) ([A-Z¹²³]+|can't tell) ", out
        )
    }


def held(
    made: Path, folder: Path, base: str, head: str, **options: object
) -> Agreement:
    """The two jobs, in this process, on two tags of the module."""
    for tag in (base, head):
        (folder / f"{tag}.py").write_text(git(made, "show", f"{tag}:mypkg/mlp.py"))
    variants = ",".join(
        f"{tag}={folder}/{tag}.py:SwiGLU" for tag in dict.fromkeys((base, head))
    )
    plan = planned(
        variants=variants,
        d_model=16,
        d_ff=32,
        match="none",
        **options,
        probe=KnownProber(),
    )
    save_output(case=plan.cases[0], seed=0, folder=str(folder))
    return compare_output(case=plan.cases[-1], seed=1, folder=str(folder))


def test_outputs_are_held_against_each_other_and_against_float64(
    made: Path, tmp_path: Path
) -> None:
    """The base's weights are carried over: the seeds differ here."""
    same = held(made, tmp_path, "old", "same")
    assert (same.error, same.exact_error, same.own_weights) == (0.0, 0.0, "")
    changed = held(made, tmp_path, "old", "changed")
    assert changed.error > 0.01
    assert changed.exact_error == pytest.approx(changed.error, rel=1e-3)
    renamed = held(made, tmp_path, "old", "renamed")
    assert renamed.own_weights == "only base has gate.weight"
    assert renamed.error > 0.1
    half = held(made, tmp_path, "old", "changed", dtype="bfloat16")
    assert half.tolerance == 0.05


def everything(folder: Path) -> dict[Path, tuple[int, int]]:
    return {
        path: (path.stat().st_mtime_ns, path.stat().st_size)
        for path in folder.rglob("*")
    }


def test_a_checkout_of_a_place_below_the_top_writes_nothing_into_the_repository(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So a killed run leaves nothing there. In a hook git says where its index is: that
    must not be taken for the checkout's. Filters of the user's git apply, as in every
    checkout of his.
    """
    monkeypatch.setenv("GIT_INDEX_FILE", str(repository / ".git" / "index"))
    monkeypatch.setenv("GIT_DIR", "/nowhere")
    git(repository, "config", "filter.louder.smudge", "tr a-z A-Z")
    attributes = repository / ".git" / "info" / "attributes"
    attributes.write_text("mlp.py filter=louder\n")
    before = everything(repository)
    here = repository / "mypkg"
    place, _ = checkout(here, "slow", tmp_path / "slow")
    assert "SECONDS = 0.0044" in (place / "mlp.py").read_text()
    assert "CLASS SWIGLU" in (place / "mlp.py").read_text()
    other, short = checkout(repository, "old", tmp_path / "old")
    assert "SECONDS = 0.0044" not in (other / "mypkg" / "mlp.py").read_text()
    assert git(repository, "rev-parse", "old").startswith(short)
    with pytest.raises(FfnbenchError, match="has no folder 'mypkg/'"):
        checkout(here, "before", tmp_path / "before")
    assert everything(repository) == before
    git(repository, "config", "--remove-section", "filter.louder")
    attributes.unlink()


def test_a_class_that_base_lacks_is_new(repository: Path) -> None:
    with (repository / "mypkg" / "mlp.py").open("a") as file:
        file.write("class New(SwiGLU): pass\n")
    done = ffnbench("ab", "mypkg.mlp:New", "old", *SMALL, cwd=repository)
    assert done.returncode == 3
    assert "old has no mypkg.mlp:New: it is new" in done.stderr


def agreement(**given: object) -> Agreement:
    return Agreement(
        **{"error": 1e-7, "tolerance": 1e-4, "exact_error": 1e-16, **given}
    )


@pytest.mark.parametrize(
    ("found", "status"),
    [
        (agreement(), Status.OK),
        (agreement(error=2e-4), Status.REGRESSED),
        (agreement(error=None), Status.REGRESSED),
        # rounding hides it, float64 shows
        (agreement(tolerance=5e-2, error=1e-2, exact_error=1e-3), Status.REGRESSED),
        (agreement(tolerance=5e-2, error=1e-2, exact_error=None), Status.OK),
        (agreement(error=1.4, own_weights="only head has gate.weight"), Status.UNCLEAR),
        (agreement(own_weights="only head has gate.weight"), Status.OK),
    ],
)
def test_what_follows_from_two_outputs(found: Agreement, status: Status) -> None:
    finding = output_finding("x", found, allowed=False)
    assert finding.status is status
    assert bool(finding.reason) == (status is not Status.OK or bool(found.own_weights))
    assert output_finding("x", found, allowed=True).status is Status.OK


@pytest.mark.slow
@pytest.mark.parametrize(
    ("base", "head", "code", "status"),
    [
        ("old", "slow", 1, "REGRESSED"),
        ("slow", "old", 0, "IMPROVED"),
        ("old", "same", 0, "OK"),
    ],
)
def test_ten_percent_are_found_and_nothing_is_not(
    repository: Path, base: str, head: str, code: int, status: str
) -> None:
    """Calls that take 4 ms and 4.4 ms."""
    asked = (
        "ab",
        TARGET,
        "--base-rev",
        base,
        "--head-rev",
        head,
        "--budget",
        "90",
        *SMALL,
    )
    done = ffnbench(*asked, cwd=repository, columns=100)
    found = rows(" ".join(done.stdout.split()))
    assert (done.returncode, found) == (code, {"latency": status, "output": "OK"}), (
        done.stdout + done.stderr
    )
