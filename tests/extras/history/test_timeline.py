"""`ffnbench history`: which runs are one row, where it has stepped and by how much, and
how that reads.
"""

from __future__ import annotations

import csv
import math
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from fake_machine import prepare
from gate_world import machine, measured
from paths import ROOT
from shell import ffnbench

from ffnbench.extras.history.table import history_view
from ffnbench.extras.history.timeline import (
    LevelStep,
    Timeline,
    change_since_first,
    scatter_of_runs,
    steps_of,
    timeline_of,
)
from ffnbench.report.files.store import report_text
from ffnbench.report.terminal import plain
from ffnbench.request import CompareRequest
from ffnbench.result import CaseCost, Estimate, Report
from ffnbench.stats.figures import with_figures
from ffnbench.stats.history import history_of
from ffnbench.stats.interval import Mean

Factors = Callable[[int], dict[str, float]]


def series(
    dice: np.random.Generator, runs: int, step: float = 0.0, at: int = 0
) -> list[Mean]:
    """Runs of a scatter of 0.5 % with Student's tails, each known to 0.15 %."""
    logs = 0.005 * dice.standard_t(4, runs) / math.sqrt(2) + math.log1p(step) * (
        np.arange(runs) >= at
    )
    return [
        Mean(float(log), 0.0015, 6.0) for log in logs + dice.normal(0, 0.0015, runs)
    ]


def test_a_step_of_five_percent_is_found_at_its_place_and_unchanged_code_has_none() -> (
    None
):
    dice, held, right = np.random.default_rng(7), 0, 0
    for _ in range(20):
        at = int(dice.integers(10, 21))
        told = steps_of(series(dice, 30, 0.05, at))
        right += len(told) == 1 and abs(told[0].at - at) <= 1
        held += any(one.change.low <= 1.05 <= one.change.high for one in told)
    assert right >= 19
    assert held >= 16  # 19 expected; fewer than 16 once in four hundred times
    assert (
        sum(bool(steps_of(series(dice, int(dice.integers(10, 41))))) for _ in range(40))
        <= 3
    )


def test_three_runs_have_no_step() -> None:
    """One run by itself is none, and neither two nor three have two levels of two."""
    runs = [Mean(value, 1e-4, 6.0) for value in (0.0, 0.0, 0.5)]
    assert [steps_of(runs[:number]) for number in (1, 2, 3)] == [[]] * 3


@pytest.mark.parametrize("after", [2, 3])
def test_two_runs_on_either_side_show_a_step_that_is_large(after: int) -> None:
    runs = [Mean(value, 1e-4, 6.0) for value in (0.0, 1e-4, *[0.5] * after)]
    [found] = steps_of(runs)
    assert found.at == 2
    assert found.change.low < math.exp(0.5) < found.change.high


def test_the_place_is_where_absolute_deviations_are_least() -> None:
    """Every split is tried here; one odd run, six scatters off, is no level."""
    dice = np.random.default_rng(5)
    runs = series(dice, 14, 0.04, 6)
    runs[10] = replace(runs[10], mean=runs[10].mean + 0.03)
    logs = np.array([run.mean for run in runs])
    left = {
        k: sum(np.abs(part - np.median(part)).sum() for part in np.split(logs, [k]))
        for k in range(2, 13)
    }
    [found] = steps_of(runs)
    assert found.at == min(left, key=left.__getitem__) == 6
    assert steps_of(runs[6:]) == []
    assert steps_of(runs[:3]) == []


def test_the_scatter_of_many_runs_is_their_standard_deviation() -> None:
    """Of normal values, whatever level a step takes them to."""
    dice = np.random.default_rng(6)
    runs = [
        Mean(float(dice.normal(0.1 * (number > 200), 0.02)), 1e-4, 6.0)
        for number in range(400)
    ]
    assert scatter_of_runs(runs) == pytest.approx(0.02, rel=0.1)


def test_the_change_since_the_first_run_knows_what_moves_between_runs() -> None:
    """By hand: errors of 0.1 % by 6 degrees of freedom each, and for both runs what
    moves between them.
    """
    steady = [Mean(0.0, 0.001, 6.0), Mean(0.05, 0.001, 6.0)]
    change = change_since_first(steady).difference
    variances = {
        2 * 0.004**2: 3,
        0.001**2: 6.0,
    }  # one run before the last: the prior of docs/methodology-details.md
    assert change.mean == pytest.approx(0.05)
    assert change.error == pytest.approx(math.sqrt(sum(variances) + 0.001**2))
    rising = [Mean(0.01 * k, 0.001, 6.0) for k in range(7)]
    over_all = change_since_first(rising)
    assert over_all.difference.mean == pytest.approx(0.06)
    assert (
        over_all.difference.error
        > history_of(rising[:-1]).change(rising[-1]).difference.error
    )


@pytest.fixture(scope="module")
def first() -> Report:
    return measured(machine({"gelu": 1.3, "swiglu": 1.2}), workers=5, rounds=4)


def days(
    first: Report, number: int, factors: Factors = lambda day: {}, start: int = 1
) -> list[Report]:
    """A run a day of a commit each, whose rows take so many times what they did, and
    half a percent about that.
    """
    dice, found = np.random.default_rng(4), []
    for day in range(start, start + number):
        times = {
            c.label: math.exp(dice.normal(0, 0.005)) * factors(day).get(c.label, 1)
            for c in first.plan.cases
        }
        samples = tuple(
            replace(s, value=s.value * times.get(s.case, 1)) for s in first.samples
        )
        here = replace(first.environment, git_commit=f"{day:02}" * 20, git_dirty=False)
        made = replace(
            first,
            samples=samples,
            created=f"2026-11-{day:02}T03:00:00+00:00",
            environment=here,
        )
        found.append(with_figures(made))
    return found


def slower(day: int) -> dict[str, float]:
    """swiglu is 8 % slower from the ninth on."""
    return {"swiglu": 1.08 if day >= 9 else 1.0}


@pytest.fixture(scope="module")
def found(first: Report) -> Timeline:
    return timeline_of(days(first, 16, slower))


def test_rows_are_ratios_and_the_seconds_of_what_has_none(
    found: Timeline, first: Report
) -> None:
    assert {(row.case.label, row.metric) for row in found.rows} == {
        ("relu", "latency"), ("gelu", "ratio"), ("swiglu", "ratio"),
    }  # fmt: skip
    [(row, step)] = found.steps
    assert (row.case.label, step.at) == ("swiglu", 8)
    assert step.change.low < 1.08 < step.change.high
    assert found.rows[0] is row
    in_seconds = timeline_of(days(first, 16, slower), "latency")
    assert {(row.case.label, row.metric) for row in in_seconds.rows} == {
        (n, "latency") for n in ("relu", "gelu", "swiglu")
    }


def test_what_is_another_row_another_machine_or_a_copy(first: Report) -> None:
    runs = days(first, 4)
    elsewhere = [
        replace(
            run, environment=replace(run.environment, fingerprint="other", cpu="Z80")
        )
        for run in runs
    ]
    wide = [
        c if c.label != "gelu" else replace(c, ffn=replace(c.ffn, d_ff=128))
        for c in first.plan.cases
    ]
    apart = days(
        replace(first, plan=replace(first.plan, cases=tuple(wide))), 3, start=10
    )
    found = timeline_of([*runs, *elsewhere, *apart, *runs[:3]])
    assert found.runs == 11
    counts = sorted(
        (row.case.label, row.machine.cpu == "Z80", len(row.points))
        for row in found.rows
    )
    assert counts == [
        ("gelu", False, 3), ("gelu", False, 4), ("gelu", True, 4), ("relu", False, 7), ("relu", True, 4),
        ("swiglu", False, 7), ("swiglu", True, 4),
    ]  # fmt: skip
    text = " ".join(plain(history_view(found).table, 120).split())
    assert "gelu (d_ff 128" in text
    assert "Z80, othe" in text
    alone = timeline_of([*runs, *apart[:1]])
    assert alone.in_one_run == (
        "gelu d_ff 128",
    )  # gelu has a history, its wide form is one run
    lines = plain(history_view(alone).table, 120).splitlines()
    assert lines[0] == "history of 5 runs, 4 to 5 a row, 2026-11-01 to 2026-11-10"
    assert plain(
        history_view(timeline_of([*runs[:2], *elsewhere[:1]])).table, 120
    ).startswith("history of 2 of 3 runs")
    assert timeline_of([*runs[:1], *apart[:1]]).in_one_run == ("gelu",)


def test_what_was_never_timed_is_followed_though_nothing_has_changed() -> None:
    counted = prepare(
        CompareRequest(variants="relu,gelu", d_model=64, device="cpu")
    ).cost_report()
    runs = [
        replace(counted, created=f"2026-11-{day:02}T03:00:00+00:00") for day in (1, 2)
    ]
    rows = timeline_of(runs).rows
    assert {row.case.label for row in rows if row.metric == "params"} == {
        "relu",
        "gelu",
    }
    assert {row.change.value for row in rows} == {1.0}


def test_what_is_exact_steps_without_statistics(first: Report) -> None:
    runs = days(first, 3)
    more = tuple(
        CaseCost(case=c.case, cost=replace(c.cost, params=1000))
        for c in first.costs
        if c.case == "gelu"
    )
    less = tuple(c for c in first.costs if c.case != "gelu")
    found = timeline_of([*runs[:2], replace(runs[2], costs=less + more)])
    [(row, step)] = found.steps
    assert (row.case.label, row.metric, step.at, step.change.low) == (
        "gelu",
        "params",
        2,
        None,
    )
    assert step.change.value == pytest.approx(1000 / first.cost("gelu").params)
    assert "params 32.8 k before, 1.00 k from 0303030 (2026-11-03), of 3 runs" in plain(
        history_view(found).table, 120
    )


def saved(folder: Path, runs: list[Report]) -> Path:
    folder.mkdir()
    for number, run in enumerate(runs):
        (folder / f"{number}.json").write_text(report_text(run))
    return folder


def test_a_folder_becomes_every_file_that_is_asked_for(
    first: Report, tmp_path: Path, in_process
) -> None:
    folder = saved(tmp_path / "runs", days(first, 12, slower))
    (folder / "other.json").write_text("{}")
    outs = [tmp_path / f"h.{end}" for end in ("csv", "svg", "md")]
    code, out, err = in_process(
        "history",
        folder,
        "--format",
        "github",
        *(w for one in outs for w in ("-o", one)),
    )
    assert code == 0
    assert "note: left out, as they are no runs: other.json" in err
    assert "\n::warning title=ffnbench history::swiglu has become " in out
    rows = list(csv.DictReader(outs[0].read_text().splitlines()))
    assert len(rows) == 3 * 12
    [step] = [row for row in rows if row["change"]]
    assert (step["label"], step["created"][:10], step["git_commit"][:6]) == (
        "swiglu",
        "2026-11-09",
        "090909",
    )
    assert "0909090" in outs[1].read_text()
    assert "slower against relu at 0909090" in outs[2].read_text()


def test_a_history_waits_for_no_pipe(tmp_path: Path) -> None:
    """Beside two runs of one row on one machine: a pipe, a link to one, a folder, a
    broken link, a device.
    """
    runs = tmp_path / "runs"
    runs.mkdir()
    for name in ("compare.json", "compare-again.json"):
        shutil.copy(ROOT / "results" / "amd-epyc-2cpu" / name, runs)
    os.mkfifo(runs / "pipe.json")
    (runs / "link.json").symlink_to("pipe.json")
    (runs / "folder.json").mkdir()
    (runs / "broken.json").symlink_to("nowhere")
    (runs / "zero.json").symlink_to("/dev/zero")
    done = ffnbench("history", "runs", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (
        "left out, as they are no runs: broken.json, folder.json, link.json, pipe.json, zero.json"
        in done.stderr
    )


def test_bad_input_is_one_line_and_a_hint(
    first: Report, tmp_path: Path, in_process, monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)
    runs = days(first, 2)
    elsewhere = replace(
        runs[1], environment=replace(runs[1].environment, fingerprint="other")
    )
    saved(tmp_path / "copies", runs[:1])
    shutil.copy("copies/0.json", "copies/again.json")
    saved(tmp_path / "apart", [runs[0], elsewhere])
    saved(tmp_path / "two", runs)
    (tmp_path / "none").mkdir()
    for words, says in (
        (["copies"], "one run alone has no history"),
        (["none"], "no run of ffnbench is in 'none'"),
        (
            ["apart"],
            "no two of these 2 runs have the same row on the same kind of machine",
        ),
        (["two", "--metric", "peak"], "no two of these 2 runs have a peak"),
    ):
        code, out, err = in_process("history", *words)
        assert (code, out, err.count("\n")) == (2, "", 2), words
        assert says in err.splitlines()[0]
        assert err.splitlines()[1].startswith("hint: ")
    monkeypatch.setattr("ffnbench.extras.history.timeline.find_spec", lambda name: None)
    code, _, err = in_process("history", "two")
    assert (code, "ruptures" in err, "pip install 'ffnbench[history]'" in err) == (
        2,
        True,
        True,
    )


def test_what_has_grown_most_is_told_first() -> None:
    steps = [
        tuple(LevelStep(at=1, change=Estimate(value=value)) for value in values)
        for values in ((0.9, 1.3), (1.1,))
    ]
    rows = tuple(SimpleNamespace(steps=of) for of in steps)
    assert [
        step.change.value
        for _, step in Timeline(runs=2, rows=rows, in_one_run=()).steps
    ] == [1.3, 1.1, 0.9]
