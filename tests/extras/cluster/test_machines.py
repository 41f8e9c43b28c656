"""Jobs on two kinds of machine: a report of each, and no row of one is compared or measured by what is of the other."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import FakeLaunch
from test_jobs import Jobs

import ffnbench
from ffnbench.cli.commands import command_names
from ffnbench.report.files.store import load
from ffnbench.result import Report
from ffnbench.stats.curves import crossings_of

TOKENS = tuple(2**k for k in range(8))
SWEEP = ["compare", "relu", "swiglu", "--d-model", "64", "--seq-len", "1..128", "--threads", "1"]
HOW = ["--workers", "5", "--rounds", "6", "--on", "local", "-o", "all.json"]


class Nodes:
    """Jobs by turns on a node with torch 2.0, where swiglu is slower, and on one with 3.0, where it is faster and a
    ceiling takes half the time. `becomes` is what else happens to a job, by its number.
    """

    def __init__(self) -> None:
        self.launch = FakeLaunch(self._seconds)
        self.launch.roofs = lambda roofs: [{"roof": one, "seconds": 0.001, "calls": 1} for one in roofs[:1]]
        self.launch.roof = lambda name, worker: {"value": 0.001 if self.swiglu > 1 else 0.0005, "waited": 0.0}
        self.swiglu = 1.2
        self.becomes: Callable[[int], str] = lambda number: "done"

    def _seconds(self, label: str, worker: int, number: int) -> float:
        return (self.swiglu if "swiglu" in label else 1) * (0.01 + worker * 1e-6)

    def __call__(self, number: int) -> str:
        first = number % 2 == 1
        self.swiglu = 1.2 if first else 0.8
        self.launch.facts = {"version": "2.0" if first else "3.0"}
        return self.becomes(number)


@pytest.fixture
def nodes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Nodes:
    monkeypatch.chdir(tmp_path)
    made = Nodes()
    Jobs(made).stand_in(monkeypatch)
    return made


def tokens_of(found: Report) -> list[int]:
    return [int(case.label.rpartition("=")[2]) for case in found.plan.cases if case.label.startswith("relu")]


def verdicts(found: Report) -> set[str]:
    return {one.verdict.value for one in found.comparisons if one.case.startswith("swiglu")}


def test_each_kind_has_a_report_that_names_the_other(on_fakes, nodes: Nodes) -> None:
    code, out, err = on_fakes(*SWEEP, *HOW, "-v", launch=nodes.launch)
    assert code == 0, err
    first, second = load("all.json"), load("all.m2.json")
    assert (first.environment.torch, second.environment.torch) == ("2.0", "3.0")
    assert tokens_of(first) == list(TOKENS[::2])
    assert tokens_of(second) == list(TOKENS[1::2])
    assert (verdicts(first), verdicts(second)) == ({"slower"}, {"faster"})
    assert "torch 3.0 stands in all.m2.json" in out
    assert "all.m2.json" in err
    assert [note.text for note in second.warnings if "torch 2.0 stands in all.json" in note.text]
    assert not Path("all.json.jobs").exists()
    for path in ("all.json", "all.m2.json"):
        assert on_fakes(f"report {path}")[0] == 0
    assert on_fakes("report all.json -o all.csv -o all.svg -o all.html")[0] == 0


def test_no_crossing_is_of_two_kinds(on_fakes, nodes: Nodes) -> None:
    assert on_fakes(*SWEEP, *HOW, launch=nodes.launch)[0] == 0
    for path in ("all.json", "all.m2.json"):
        told = crossings_of(ffnbench.load(path))
        assert told is not None
        assert told.places == ()


def test_the_first_group_may_stand_in_a_file_of_its_own(on_fakes, nodes: Nodes) -> None:
    """What the file of -o holds goes on with the kind that it has, whatever group comes first."""
    first = nodes.becomes
    nodes.becomes = lambda number: "dies" if number == 1 else first(number)
    assert on_fakes(*SWEEP, *HOW, launch=nodes.launch)[0] == 3
    nodes.becomes = first
    code, _, err = on_fakes(*SWEEP, *HOW, "--resume", launch=nodes.launch)
    assert code == 0, err
    found = [load("all.json"), load("all.m2.json")]
    assert sorted(tokens for one in found for tokens in tokens_of(one)) == list(TOKENS)
    assert all({failure.case for failure in one.failures} == set() for one in found)


@pytest.mark.skipif("train" not in command_names(), reason="nothing trains")
def test_what_is_learnt_on_several_kinds_is_one_report(on_fakes, nodes: Nodes) -> None:
    """A loss is the machine's in its last digits alone, and runs are paired by seed."""
    Path("text").write_bytes(bytes(range(32, 120)) * 600)
    nodes.launch.trouble = {
        ("train", f"{variant}@of=run@lr=0.003@seed={seed}"): {
            "step": 20, "step_s": 0.01, "diverged": None, "curve": [], "held_out": loss + seed / 100, "choosing": loss,
        }
        for variant, loss in (("relu", 1.9), ("swiglu", 1.8))
        for seed in range(3)
    }  # fmt: skip
    words = "train relu swiglu --text text --steps 20 --d-model 32 --layers 2 --context 16 --batch 4 --threads 1"
    code, out, err = on_fakes(words, "--seeds 3 --on local -o all.json -v", launch=nodes.launch)
    assert code == 0, err
    assert "swiglu -0.100" in out
    assert "several machines" in out
    assert not Path("all.m2.json").exists()
