"""The simulated exam: its worlds are what their file says, it is deterministic, and it can fail."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from conftest import ROOT, listen
from scipy import stats
from test_cli import (
    call,  # noqa: F401 - a fixture
    processes_of,
)

from ffnbench.report.selftest import covered_table, tally_table
from ffnbench.report.text import plain
from ffnbench.request import SelftestRequest
from ffnbench.selftest import tallies as counted
from ffnbench.selftest.draws import ALIKE, FORM, HEAD, Drawn, draw
from ffnbench.selftest.exam import seed_of
from ffnbench.selftest.promises import broken_by_checks, broken_by_intervals, not_of_all_runs
from ffnbench.selftest.simulated import FILE, Forms, Simulated, SimulatedWorld, parse, simulated
from ffnbench.selftest.tallies import Covered, Tally, check_all, cover_all, simulate_draws
from ffnbench.stats import history
from ffnbench.stats.history import Part

WORLDS = {world.name: world for world in simulated().worlds}
TEXT = FILE.read_text(encoding="utf-8")


def drawn(name: str, runs: int = 400, workers: int = 16, neighbours: float = 0.0) -> list[Drawn]:
    dice = np.random.default_rng(5)
    rows = (FORM, ALIKE, HEAD)
    return draw(WORLDS[name], simulated().machine, dice, runs=runs, workers=workers, rows=rows, neighbours=neighbours)


def logs(runs: list[Drawn], row: str) -> np.ndarray:
    """By run, worker, placement, round."""
    return np.array([run.logs[row] for run in runs])


def between(runs: list[Drawn], row: str) -> float:
    """sd of runs beyond what their workers explain."""
    workers = logs(runs, row).mean(axis=(2, 3))
    explained = workers.var(axis=1, ddof=1).mean() / workers.shape[1]
    return float(np.sqrt(max(0.0, workers.mean(axis=1).var(ddof=1) - explained)))


@pytest.mark.parametrize(
    ("world", "other", "alike"), [("runs 0.3%", 0.003, 0.001), ("runs 0.6%", 0.006, 0.002), ("runs 1%", 0.01, 0.003)]
)
def test_runs_move_by_what_the_name_says(world: str, other: float, alike: float) -> None:
    runs = drawn(world)
    assert between(runs, FORM) == pytest.approx(other, rel=0.15)
    assert between(runs, ALIKE) == pytest.approx(alike, rel=0.2)
    assert between(runs, HEAD) < 0.0004  # old and new code of one form in the same run
    assert between(drawn("still"), FORM) < 0.0004


def test_rounds_placements_and_workers_scatter_as_they_should() -> None:
    found = logs(drawn("placements"), FORM)
    assert found.std(axis=3, ddof=1).mean() == pytest.approx(0.007 * 0.8862, rel=0.05)  # c4 of three rounds
    placements = found.mean(axis=3)
    assert placements.var(axis=2, ddof=1).mean() == pytest.approx(0.007**2 + 0.007**2 / 3, rel=0.05)
    workers = logs(drawn("still"), FORM).mean(axis=(2, 3))
    expected = 0.002**2 + 0.002**2 / 4 + 0.007**2 / 12
    assert workers.var() == pytest.approx(expected, rel=0.05)


def test_workers_have_the_shapes_of_their_names() -> None:
    def workers(name: str) -> np.ndarray:
        return logs(drawn(name, runs=800), FORM).mean(axis=(2, 3)).ravel()

    noise = 0.002**2 / 4 + 0.007**2 / 12
    heavy, skewed, layouts = workers("heavy tails"), workers("skewed"), workers("two layouts")
    assert stats.kurtosis(heavy) > 1.0 > abs(stats.kurtosis(workers("still")))
    assert abs(stats.skew(skewed) - 2 * 0.003**3 / (0.003**2 + noise) ** 1.5) < 0.15  # an exponential's is 2
    for found, sd in ((skewed, 0.003), (layouts, 0.005)):
        assert found.mean() == pytest.approx(0, abs=3e-4)
        assert found.std() == pytest.approx(np.sqrt(sd**2 + noise), rel=0.05)
    apart = layouts[layouts > 0.0037].mean() - layouts[layouts < 0.0037].mean()
    assert apart == pytest.approx(0.0125, abs=0.001)
    assert (layouts > 0.0037).mean() == pytest.approx(0.2, abs=0.03)


def test_a_neighbour_stays_for_a_run_and_adds_1_percent() -> None:
    beside, alone = drawn("neighbour", neighbours=1.0), drawn("neighbour")
    assert logs(beside, FORM).mean() - logs(alone, FORM).mean() == pytest.approx(0.01, abs=0.0005)
    assert logs(beside, HEAD).mean() == pytest.approx(0, abs=0.0005)
    mixed = logs(drawn("neighbours", neighbours=0.5), FORM).mean()
    assert mixed == pytest.approx(0.005, abs=0.0008)
    assert (WORLDS["neighbour"].in_baseline, WORLDS["neighbour"].in_check) == (0.0, 1.0)


def test_a_ratio_wanders_within_30_seconds() -> None:
    """Workers 7 s apart are alike, those two minutes apart are not."""
    workers = logs(drawn("wandering", runs=2000), FORM).mean(axis=(2, 3))
    own = 0.002**2 * 1.25 + 0.007**2 / 12

    def alike(steps: int) -> float:
        return float(np.mean(workers[:, 0] * workers[:, steps]) / (workers.var() - own))

    assert workers.var() - own == pytest.approx(0.005**2, rel=0.1)
    assert alike(1) == pytest.approx(np.exp(-7.1 / 30), abs=0.06)
    assert alike(15) == pytest.approx(np.exp(-106.5 / 30), abs=0.08)


def test_a_frequency_step_hits_two_forms_unequally() -> None:
    runs = drawn("frequency step", runs=1000)
    ends = {
        row: logs(runs, row).mean(axis=(2, 3))[:, -1] - logs(runs, row).mean(axis=(2, 3))[:, 0] for row in (FORM, ALIKE)
    }
    noise = 2 * (0.002**2 * 1.25 + 0.007**2 / 12)
    within = 113.6 / 120 - 7.1 / 120  # of the budget, between the ends of the first and of the last worker
    for row, size in ((FORM, 0.01), (ALIKE, 0.003)):
        assert ends[row].var() == pytest.approx(0.5 * within * size**2 + noise, rel=0.15)
    assert np.corrcoef(ends[FORM], ends[ALIKE])[0, 1] > 0.3
    truth = runs[0].truth(FORM, 16)
    assert truth == pytest.approx(np.mean(runs[0].state[FORM]))


def few(names: list[str], **changes: object) -> Simulated:
    given = simulated()
    return replace(given, worlds=tuple(replace(WORLDS[name], **changes) for name in names))


def test_the_counts_are_those_of_the_seed_however_many_processes_share_them() -> None:
    given = few(["still", "runs 1%"])
    alone = simulate_draws(cover_all, given, 60, seed=3, processes=1)
    assert alone == simulate_draws(cover_all, given, 60, seed=3, processes=2)
    assert alone != simulate_draws(cover_all, given, 60, seed=4, processes=1)
    checks = simulate_draws(check_all, few(["still"]), 5, seed=3, processes=1)
    assert [tally.checks for tally in checks] == [5] * 30
    assert checks == simulate_draws(check_all, few(["still"]), 5, seed=3, processes=1)


def test_a_world_that_moves_far_more_breaks_promises() -> None:
    """One run can't know that the others are 8 % off: what the exam would say of a gate that promised it."""
    given = few(["runs 0.3%"], between_sd=Forms(other=0.05, alike=0.05), name="restless")
    tallies = simulate_draws(check_all, given, 40, seed=1, processes=1)
    broken = broken_by_checks(tallies, [replace(WORLDS["runs 0.3%"], name="restless")])
    assert any(
        re.match(r"restless, check at 5%, baseline of 1: false alarms in \d+ of 40 \(at most 1%\)", b) for b in broken
    )
    assert any("unclear in" in text for text in broken)


def test_a_gate_that_ignores_what_moves_between_runs_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "_between", lambda runs: Part(0.0, 1.0))
    given = few(["runs 1%"])
    broken = broken_by_checks(simulate_draws(check_all, given, 25, seed=1, processes=1), given.worlds)
    assert any("check at 1%" in text and "false alarms" in text for text in broken)
    assert any("refused in 0 of 25 (at least 50%)" in text for text in broken)


def test_an_interval_that_is_too_narrow_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    given = few(["still"])
    assert broken_by_intervals(simulate_draws(cover_all, given, 100, seed=2, processes=1), given.worlds) == []
    monkeypatch.setattr(counted, "holds", lambda mean, protocol, truth: abs(mean.mean - truth) < mean.error)
    broken = broken_by_intervals(simulate_draws(cover_all, given, 100, seed=2, processes=1), given.worlds)
    assert len(broken) == 2


def covered(**facts: object) -> Covered:
    settings = {"world": "still", "how": "fixed", "runs": 2000, "workers": 10_000, "in_run": 1900, "in_world": 1900}
    return Covered(**(settings | facts))  # type: ignore[arg-type]


def test_worlds_that_no_interval_of_one_run_covers_are_named() -> None:
    found = [covered(), covered(world="runs 1%", in_world=500), covered(world="wandering", in_world=1970)]
    assert not_of_all_runs(found) == ["runs 1%", "wandering"]
    assert "covers what all runs come to in: runs 1%, wandering" in plain(covered_table(found), 200)
    assert broken_by_intervals([covered(in_run=1850)], [WORLDS["still"]]) == [
        "still: intervals of fixed runs hold 1850 of 2000"
    ]
    known = replace(WORLDS["still"], missed="two values are no normal distribution")
    assert broken_by_intervals([covered(in_run=1800)], [known]) == []


def tally(**facts: object) -> Tally:
    settings = {
        "world": "still", "command": "check", "baseline": 5, "tolerance": 0.05, "slowed": 0.0, "checks": 2000,
    }  # fmt: skip
    return Tally(**(settings | facts))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({"false_alarms": 20}, ""),
        ({"false_alarms": 21}, "still, check at 5%, baseline of 5: false alarms in 21 of 2000 (at most 1%)"),
        ({"false_alarms": 2, "refused": 1900}, ""),  # of few, chance
        ({"false_alarms": 9, "refused": 1900}, "false alarms in 9 of 100"),
        ({"unclear": 101}, "still, check at 5%, baseline of 5: unclear in 101 of 2000 (at most 5%)"),
        (
            {"slowed": 0.1, "found": 1979},
            "still, check at 5%, baseline of 5, +10%: found in 1979 of 2000 (at least 99%)",
        ),
        ({"slowed": 0.1, "found": 1980}, ""),
        ({"tolerance": 0.01, "unclear": 1900}, ""),  # promised where runs move by 0.3 %
        ({"world": "runs 0.3%", "tolerance": 0.01, "unclear": 1001}, "unclear in 1001 of 2000 (at most 50%)"),
        ({"world": "runs 0.3%", "tolerance": 0.01, "baseline": 20, "unclear": 601}, "(at most 30%)"),
        ({"world": "runs 0.3%", "tolerance": 0.01, "slowed": 0.03, "found": 1899}, "(at least 95%)"),
        ({"world": "runs 1%", "tolerance": 0.01, "refused": 900}, "refused in 900 of 2000 (at least 50%)"),
        (
            {"command": "ab", "baseline": 0, "tolerance": 0.01, "unclear": 201},
            "still, ab at 1%: unclear in 201 of 2000",
        ),
        ({"command": "ab", "baseline": 0, "tolerance": 0.01, "slowed": 0.02, "found": 1899}, "(at least 95%)"),
        ({"command": "ab", "baseline": 0, "tolerance": 0.01, "slowed": 0.03, "found": 1979}, "(at least 99%)"),
    ],
)
def test_promises(facts: dict[str, object], said: str) -> None:
    broken = broken_by_checks([tally(**facts)], simulated().worlds)
    assert len(broken) == bool(said)
    assert said in "".join(broken)


@pytest.mark.parametrize(
    ("was", "now", "said"),
    [
        ("between_sd = { other = 0.003", "between = { other = 0.003", r"world 'runs 0.3%'.*unknown field 'between'"),
        ("other = 0.006", "other = -0.006", r"world 'runs 0.6%': between_sd.other: below 0"),
        ("in_check = 1.0", "in_check = 1.5", r"world 'neighbour': in_check: 1.5 is no share"),
        ('"student3"', '"student"', r"world 'heavy tails'.*workers: expected one of normal, .*found 'student'"),
        ("slow_share = 0.2", "slow_share = 0.0", r"world 'two layouts': slow_share: "),
        ("wander_s = 30.0", "", r"world 'wandering': wander_s: "),
        ('name = "skewed"', 'name = "still"', r"world 'still' stands there twice"),
        ("budget_s = 120.0", 'budget_s = "two minutes"', r"machine: budget_s: expected float"),
        ("publishing = 77130259", "publishing = 20260301", r"seeds: publishing is the seed of development"),
        ("[usual]", "[usually]", r"unknown key 'usually'"),
    ],
)
def test_a_mistake_in_the_file_names_its_place(was: str, now: str, said: str) -> None:
    assert was in TEXT
    with pytest.raises(ValueError, match=said):
        parse(TEXT.replace(was, now, 1))


def test_the_help_names_the_seeds_of_the_file() -> None:
    text = SelftestRequest.__dataclass_fields__["seed"].metadata["flag"].help
    seeds = simulated().seeds
    assert f"made with {seeds.publishing}" in text
    assert f"default: {seeds.development} for development" in text
    assert seed_of(SelftestRequest()) == seed_of(SelftestRequest(checks=True)) == seeds.development
    assert (seed_of(SelftestRequest(live=True)), seed_of(SelftestRequest(seed=7))) == (0, 7)


def some(world: SimulatedWorld = WORLDS["still"]) -> list[Tally]:
    return simulate_draws(check_all, replace(simulated(), worlds=(world,)), 3, seed=1, processes=1)


@pytest.mark.parametrize("width", [60, 80, 120])
def test_the_tables_fit(width: int) -> None:
    one = [replace(t, world="frequency step") for t in some()]
    ways = [covered(how=how) for how in ("fixed", "stopped")]
    for table in (tally_table(one), covered_table(ways)):
        assert max(map(len, plain(table, width).splitlines())) <= width


def test_the_command(call, tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    from ffnbench.selftest import exam

    asked = []

    def fake(work, given, runs, *, seed, counting):
        asked.append((work, runs, seed))
        counting(1, 1)
        return [tally(false_alarms=30), tally(command="ab", baseline=0, tolerance=0.01)]

    monkeypatch.setattr(exam, "simulate_draws", fake)
    monkeypatch.setattr(counted, "BASELINES", (5,))
    path = tmp_path / "gate.json"
    code, out, err = call("selftest", "--gate", "--runs", "20", "--seed", "3", "-q", "-o", str(path))
    assert asked == [(check_all, 20, 3)]
    assert (code, "30 of 2000" in out) == (3, True)
    assert "false alarms in 30 of 2000 (at most 1%)" in err
    assert json.loads(path.read_text())[0]["false_alarms"] == 30


def test_an_interruption_leaves_no_process_behind(tmp_path: Path) -> None:
    run = subprocess.Popen(
        [sys.executable, "-m", "ffnbench", "selftest", "--gate", "--runs", "2000"], preexec_fn=listen, cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "FFNBENCH_TEST": str(tmp_path)}, stderr=subprocess.PIPE,
        stdout=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip
    until = time.monotonic() + 60
    while len(processes_of(tmp_path)) < 3 and time.monotonic() < until:  # itself, what tracks resources, and workers
        time.sleep(0.2)
    time.sleep(1.0)
    os.killpg(run.pid, signal.SIGINT)  # as a terminal does
    _, err = run.communicate(timeout=60)
    assert run.returncode == 130, err
    assert b"Traceback" not in err
    assert processes_of(tmp_path) == []
