"""`--confirm`: what both runs decide together, on made-up machines and by simulation;
what is measured again, and what is refused.
"""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from fake_machine import FakeLaunch, KnownProber
from gate_world import edited, machine, measured, saved, timed
from repositories import TARGET, git, two_sides

import ffnbench
from ffnbench.messages import Open, TakeSample
from ffnbench.plan import CONTROL
from ffnbench.stats.interval import Mean
from ffnbench.stats.machines import mean_over_machines

TYPED = 0.0075, 3  # the prior as docs/methodology-details.md states it
SMALL = ("--d-model", "16", "--seq-len", "32", "--threads", "1", "-q")


def by_dersimonian_and_laird(values: list[float], errors: list[float]):
    """Their estimate (1986) of the variance between studies, from Cochran's Q; the mean
    and its variance with that variance drawn towards the prior.
    """
    y, w = np.array(values), 1 / np.square(errors)
    q = np.sum(w * (y - np.sum(w * y) / np.sum(w)) ** 2)
    moment = (q - (len(y) - 1)) / (np.sum(w) - np.sum(w**2) / np.sum(w))
    sd, freedom = TYPED
    between = (freedom * sd**2 + max(0.0, moment)) / (freedom + 1)
    weights = 1 / (between + np.square(errors))
    return np.sum(weights * y) / np.sum(weights), 1 / np.sum(weights)


@pytest.mark.parametrize("error", [0.004, 0.015])
@pytest.mark.parametrize("second", [0.06, 0.081, 0.13])
def test_two_runs_are_pooled_as_two_studies_are(second: float, error: float) -> None:
    both = mean_over_machines(Mean(0.08, 0.006, 9.0), Mean(second, error, 5.0))
    mean, variance = by_dersimonian_and_laird([0.08, second], [0.006, error])
    assert both.mean == pytest.approx(mean)
    assert both.error**2 == pytest.approx(variance)


def test_the_prior_widens_two_runs_that_agree() -> None:
    """By hand: without scatter the variance between is 3/4 of the prior's, and half of
    that is in the mean of two; four degrees of freedom know it.
    """
    both = mean_over_machines(Mean(0.08, 1e-6, 9.0), Mean(0.08, 1e-6, 9.0))
    sd, freedom = TYPED
    assert both.error == pytest.approx(sd * math.sqrt(3 / 8), rel=1e-4)
    assert both.freedom == pytest.approx(freedom + 1, rel=1e-4)


@pytest.mark.parametrize(("moves", "at_most"), [(0.005, 0.012), (0.01, 0.025)])
def test_code_on_the_limit_is_accused_no_more_often_than_an_interval_allows(
    moves: float, at_most: float
) -> None:
    """Both steps: a first run that says so, at the 98 % and more that interim analyses
    take, and both together that say so too. The runs are sharp ones; then machines
    matter most.
    """
    from scipy.stats import t

    dice = np.random.default_rng(5)
    error, freedom, limit = 0.005, 8, math.log1p(0.05)
    accused = 0
    for _ in range(20_000):
        means = dice.normal(limit, math.hypot(moves, error), 2)
        errors = error * np.sqrt(dice.chisquare(freedom, 2) / freedom)
        if means[0] - t.ppf(0.99, freedom) * errors[0] < limit:
            continue
        runs = [Mean(m, e, freedom) for m, e in zip(means, errors, strict=True)]
        accused += mean_over_machines(*runs).interval(0.95)[0] > limit
    assert accused / 20_000 <= at_most


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository as current folder."""
    monkeypatch.chdir(tmp_path)
    two_sides(tmp_path)
    return tmp_path


@pytest.fixture
def ab(own: Path, on_fakes):
    """`ffnbench ab` against v1.0, head so many times slower."""

    def run(*arguments: object, factor: float = 1.0, seed: int = 0, **more: object):
        launch = more.pop("launch", None) or machine({"SwiGLU": factor}, seed=seed)
        target = more.pop("target", TARGET)
        return on_fakes("ab", target, "v1.0", *arguments, *SMALL, launch=launch, **more)

    return run


@pytest.fixture
def first(ab, own: Path) -> Path:
    """An answer in which latency regressed, by 10 %."""
    assert ab("-o first.json", factor=1.1)[0] == 1
    return own / "first.json"


def test_a_machine_that_says_the_same_confirms(ab, first: Path) -> None:
    code, out, _ = ab("--confirm first.json -o both.json", factor=1.1, seed=7)
    assert code == 1
    assert "confirms first.json" in out
    for title in ("first run", "this run", "both together", "status"):
        assert title in out
    answer = json.loads(Path("both.json").read_text())
    (row,) = answer["findings"]
    assert (row["metric"], row["status"]) == ("latency", "REGRESSED")
    before = json.loads(first.read_text())["findings"][0]
    assert row["first_run"] == pytest.approx(before["change"], rel=1e-6)
    assert row["this_run"] == pytest.approx(1.1, rel=0.01)
    between = sorted((row["first_run"], row["this_run"]))
    assert between[0] <= row["change"] <= between[1]
    # wider than either run: what moves between machines is in it
    width = row["change_high"] - row["change_low"]
    assert width > row["this_run_high"] - row["this_run_low"]


@pytest.mark.parametrize(
    ("factor", "status"), [(1.0, ("UNCLEAR", "OK")), (1.045, ("UNCLEAR",))]
)
def test_a_machine_that_says_otherwise_does_not(
    ab, first: Path, factor: float, status: tuple[str, ...]
) -> None:
    code, _, _ = ab("--confirm first.json -o both.json --budget 10", factor=factor)
    assert code == 0
    (row,) = json.loads(Path("both.json").read_text())["findings"]
    assert row["status"] in status


def test_an_annotation_says_that_both_runs_do(ab, first: Path) -> None:
    out = ab("--confirm first.json --format github", factor=1.1)[1]
    assert "::error title=ffnbench REGRESSED::SwiGLU latency: REGRESSED" in out
    assert "by both runs together" in out


def test_where_nothing_regressed_nothing_is_measured(ab, own: Path) -> None:
    assert ab("-o first.json")[0] == 0
    for how in ("", "-f csv", "-f json", "-f md", "-f github", "-o again.json"):
        launch = FakeLaunch()
        words = f"--confirm first.json {how}".strip()
        code, out, err = ab(words, launch=launch)
        assert (code, launch.log) == (0, []), err
        if not how:
            assert "nothing regressed in first.json" in out
    assert json.loads((own / "again.json").read_text())["findings"] == []


def test_a_busy_second_machine_can_not_tell(ab, first: Path) -> None:
    busy = machine({"SwiGLU": 1.1})
    busy.waited = 0.9
    words = "--confirm first.json --budget 10"
    code, out, _ = ab(words, launch=busy)
    assert (code, "SwiGLU latency +10" in out, "can't tell" in out) == (0, True, True)
    busy.workers.clear()
    assert ab(f"{words} --on-unclear fail", launch=busy)[0] == 4


def test_a_head_that_fails_on_the_second_machine_is_missing(ab, first: Path) -> None:
    failing = machine()
    failing.trouble = {(Open, "SwiGLU"): "crash"}
    assert ab("--confirm first.json", launch=failing)[0] == 3


def test_a_base_unlike_itself_in_the_first_run_counts_in_both(ab, first: Path) -> None:
    """Its control is made 8 % slower afterwards."""

    def disturb(data: dict) -> None:
        for sample in data["now"]["samples"]:
            if sample["case"] == CONTROL:
                sample["value"] *= 1.08

    edited(first, disturb)
    assert ab("--confirm first.json --budget 10", factor=1.1)[0] == 0


class CountsMore(KnownProber):
    """Head has more parameters than base."""

    def within(self, arm):
        kind = CountsMore if arm.name == "head" else KnownProber
        return kind(1.0, arm)

    def count(self, spec, workload):
        from dataclasses import replace

        cost = super().count(spec, workload)
        if self._arm.name == "head":
            return replace(cost, params=cost.params + 1)
        return cost


def test_exact_metrics_that_differ_regress_at_once(ab, own: Path) -> None:
    assert ab("-o first.json", prober=CountsMore)[0] == 1
    launch = machine()
    code, out, _ = ab("--confirm first.json", prober=CountsMore, launch=launch)
    assert (code, "SwiGLU params" in out, timed(launch)) == (1, True, False)
    code, out, _ = ab("--confirm first.json -o again.json", launch=machine())
    assert code == 0
    (row,) = json.loads((own / "again.json").read_text())["findings"]
    assert (row["metric"], row["status"]) == ("params", "OK")


@pytest.mark.parametrize(
    ("words", "target", "says"),
    [
        ("--tolerance 3%", TARGET, "latency tolerance 5.0% then, 3.0% now"),
        ("--d-ff 128", TARGET, "d_ff 64 then, 128 now"),
        ("--batch 2", TARGET, "batch 1 then, 2 now"),
        ("", "SwiGLU=mlp.py:SwiGLU", "target mypkg.mlp:SwiGLU then, mlp.py:SwiGLU now"),
        ("", f"other={TARGET}", "there is no row 'SwiGLU' now"),
        ("--exact-only", TARGET, "and --exact-only measures none"),
    ],
)
def test_another_plan_is_refused_before_it_is_measured(
    ab, first: Path, words: str, target: str, says: str
) -> None:
    launch = machine()
    words = f"--confirm first.json {words}".strip()
    code, out, err = ab(words, target=target, launch=launch)
    assert (code, out, timed(launch)) == (2, "", False)
    error, hint = err.splitlines()
    assert error.startswith("error: ")
    assert says in error
    assert hint.startswith("hint: ")


def test_a_file_that_is_no_answer_is_refused(ab, own: Path, first: Path) -> None:
    run = saved(own / "run.json")
    (own / "broken.json").write_text('{"findings": [{}], "now": {}}')
    edited_answer = json.loads(first.read_text())
    edited_answer["findings"][0]["before"] = "a word"
    (own / "edited.json").write_text(json.dumps(edited_answer))
    for path, says in (
        (run, "is no answer of `check` or `ab`"),
        (own / "edited.json", "is no answer of `check` or `ab`"),
        (own / "broken.json", "is no answer of `check` or `ab`"),
        (own / "nowhere.json", "cannot read"),
    ):
        launch = FakeLaunch()
        code, out, err = ab("--confirm", path, launch=launch)
        assert (code, out, launch.log) == (2, "", [])
        assert says in err.splitlines()[0]
        assert err.splitlines()[1].startswith("hint: ")


def test_other_commits_are_refused_before_they_are_measured(
    ab, own: Path, first: Path
) -> None:
    """The base has moved on between the two jobs."""
    (own / "mypkg" / "more.py").touch()
    git(own, "add", "mypkg")
    git(own, "commit", "-qm", "two")
    git(own, "tag", "-f", "v1.0")
    launch = machine()
    code, out, err = ab("--confirm first.json", launch=launch)
    assert (code, out, timed(launch)) == (2, "", False)
    assert err.startswith("error: 'first.json' compared another commit: base v1.0 (")


def test_an_answer_that_could_not_finish_confirms_nothing(ab, own: Path) -> None:
    """Nothing regressed in it, since nothing was measured."""
    failing = machine()
    failing.trouble = {(Open, "SwiGLU"): "crash"}
    assert ab("-o first.json", launch=failing)[0] == 3
    for change in (dict, lambda data: data | {"findings": []}):
        data = change(json.loads((own / "first.json").read_text()))
        (own / "first.json").write_text(json.dumps(data))
        code, out, err = ab("--confirm first.json")
        assert (code, out) == (2, "")
        assert err.startswith("error: 'first.json' has no answer: its run could not")


def test_a_confirmation_is_not_confirmed(ab, first: Path) -> None:
    """Its file has the samples of the second run alone."""
    assert ab("--confirm first.json -o both.json", factor=1.1, seed=7)[0] == 1
    code, out, err = ab("--confirm both.json", factor=1.1)
    assert (code, out) == (2, "")
    assert "hint: confirm 'first.json' itself" in err


@pytest.fixture
def check(on_fakes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """`ffnbench check` of a baseline of relu, gelu and swiglu."""
    monkeypatch.chdir(tmp_path)
    saved(tmp_path / "baseline.json")

    def run(words: str, launch: FakeLaunch | None = None, **factors: float):
        launch = launch or machine(factors, seed=3)
        return on_fakes("check", "baseline.json", *words.split(), "-q", launch=launch)

    return run


def test_a_check_measures_again_the_rows_that_regressed_and_their_reference(
    check,
) -> None:
    assert check("-o first.json", swiglu=1.2)[0] == 1
    launch = machine({"swiglu": 1.2, "gelu": 1.5}, seed=4)
    code, out, _ = check("--confirm first.json -o both.json", launch=launch)
    assert code == 1
    assert {label for _, job, label in launch.log if job is TakeSample} == {
        "relu",
        "swiglu",
        CONTROL,
    }
    (row,) = json.loads(Path("both.json").read_text())["findings"]
    assert (row["case"], row["metric"]) == ("swiglu", "latency")
    assert "confirms first.json" in out
    assert check("--confirm first.json")[0] == 0


def test_another_baseline_is_refused_before_it_is_measured(check) -> None:
    assert check("-o first.json", swiglu=1.2)[0] == 1
    saved(Path("baseline.json"), measured(machine({"swiglu": 1.15}), precision=0.5))
    launch = machine()
    code, out, err = check("--confirm first.json", launch=launch)
    assert (code, out, timed(launch)) == (2, "", False)
    assert "'first.json' is of another baseline: before is 1" in err
    assert "there for swiglu latency, and 1.15" in err


def test_a_check_confirms_no_answer_of_ab_and_becomes_no_baseline(
    check, first: Path
) -> None:
    """`first` is in the same folder."""
    for words, says in (
        ("--confirm first.json", "it answers about sides, not compare"),
        ("--confirm first.json --update", "a baseline needs them all"),
        ("baseline.json --confirm first.json", "--confirm measures again"),
    ):
        code, _, err = check(words)
        assert (code, says in err.splitlines()[0]) == (2, True), err
        assert err.splitlines()[1].startswith("hint: ")


def test_python_confirms_as_well(check, on_machine, made_up_clock) -> None:
    for launch in (machine({"swiglu": 1.2}), machine({"swiglu": 1.2}, seed=8)):
        on_machine(launch, KnownProber)
        if not Path("first.json").exists():
            found = ffnbench.check("baseline.json", quiet=True)
            found.save("first.json")
    both = ffnbench.check("baseline.json", confirm="first.json", quiet=True)
    assert (both.status, both.ok) == ("REGRESSED", False)
    (row,) = both.rows()
    assert row["first_run"] == pytest.approx(1.2, rel=0.02)
    assert "first run" in str(both)


def test_python_confirms_two_sides(ab, first: Path, on_machine, made_up_clock) -> None:
    on_machine(machine({"SwiGLU": 1.1}, seed=5), KnownProber)
    asked = {"d_model": 16, "seq_len": 32, "threads": 1, "quiet": True}
    both = ffnbench.ab(TARGET, "v1.0", confirm=first, **asked)
    assert both.status == "REGRESSED"
