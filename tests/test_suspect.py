"""A row that is SUSPECT: it has no verdict anywhere, has regressed in a check and in ab, and is kept in no baseline."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import FakeLaunch, KnownProber
from rich.cells import cell_len

from ffnbench import api
from ffnbench.api import measuring
from ffnbench.errors import FfnbenchError
from ffnbench.gate.regression import Finding, Policy, Status, past_of, without_gain
from ffnbench.metrics import ERROR
from ffnbench.plan import CONTROL
from ffnbench.report.files.exports import bencher, github_action_benchmark, go_bench
from ffnbench.report.files.journal import Journal
from ffnbench.report.files.store import load, report_text
from ffnbench.report.rows import case_records
from ffnbench.report.shown_report import ShownReport, as_shown, recompute
from ffnbench.report.tables.compare import compare_table
from ffnbench.report.tables.text import markdown, plain
from ffnbench.report.views import report_view
from ffnbench.request import BlockRequest, CompareRequest, TimingRequest
from ffnbench.result import (
    Against,
    Bound,
    Estimate,
    Failure,
    FailureKind,
    Inputs,
    Judged,
    Measured,
    Report,
    Share,
    Verdict,
)
from ffnbench.stats.fastest import fastest
from ffnbench.stats.verdict import with_suspects

GOLDEN = Path(__file__).parent / "golden"
WHY = "its output of a timed call is off by 0.9 (tolerance 1e-4)"
FACTORS = {"gelu": 0.5, "swiglu": 1.3}


def machine(seed: int = 0, suspects: tuple[str, ...] = (), since: int = 0, factors: dict | None = None) -> FakeLaunch:
    """Workers of 10 ms a call, gelu twice as fast; from worker `since` on, samples of `suspects` are found out."""
    dice, factors = random.Random(seed), FACTORS if factors is None else factors

    def seconds(label: str, worker: int, number: int) -> float:
        if worker >= since:
            launch.trouble |= {("sample", one): "suspect" for one in suspects}
        return 0.01 * factors.get(label, 1.0) * math.exp(dice.gauss(0, 0.002))

    launch = FakeLaunch(seconds)
    if not since:
        launch.trouble = {("sample", one): "suspect" for one in suspects}
    return launch


def measured(launch: FakeLaunch, asked: type = CompareRequest, **options: object) -> ShownReport:
    flags = {"variants": "relu,gelu,swiglu", "d_model": 64, "metrics": "latency"} if asked is CompareRequest else {}
    return api.measure(api.prepare(asked(**{"threads": 1, **flags, **options})), launch=launch)


@pytest.fixture
def call(on_machine, in_process, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """A command in this process and this folder, workers faked; gives exit code, stdout in one line, stderr."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "160")

    def run(*arguments: object, launch: FakeLaunch | None = None, prober: type = KnownProber) -> tuple[int, str, str]:
        on_machine(launch or machine(seed=1), prober)
        code, out, err = in_process(*arguments)
        return code, " ".join(out.split()), err

    return run


@pytest.fixture
def baseline(tmp_path: Path) -> Path:
    path = tmp_path / "base.json"
    path.write_text(report_text(measured(machine(), precision=0.5)))
    return path


def saved(path: Path, report: Report) -> Path:
    path.write_text(report_text(report))
    return path


def accused(report: Report, *labels: str) -> Report:
    failures = tuple(Failure(case=label, kind=FailureKind.SUSPECT, message=WHY) for label in labels)
    return replace(report, failures=(*report.failures, *failures))


# compare, report, and what is written


@pytest.mark.parametrize("since", [0, 3], ids=["at once", "in the fourth worker"])
def test_it_is_a_red_cell_with_its_reason_and_no_figure(since: int) -> None:
    """gelu would be twice as fast; what it took before it was found out is no figure of it either."""
    report = measured(machine(suspects=("gelu",), since=since), workers=6, rounds=6)
    assert any(s.case == "gelu" for s in report.samples) == bool(since)
    table = compare_table(report)
    row = {column.title: cell for column, cell in zip(table.columns, table.rows[1], strict=True)}
    assert (row["latency"].text, row["latency"].style) == ("suspect", "red")
    assert row["vs relu"].text == "-"
    number = next(note for note in table.footnotes if note.endswith("gelu said no"))[0]
    assert row["variant"].text.startswith("gelu")
    assert number in row["variant"].text
    assert "suspect, and without a verdict: gelu" in table.summary
    assert report.comparison("gelu") is None
    assert not any("faster" in line for line in table.summary)
    record = case_records(report)[1]
    assert record["failure"] == "suspect: gelu said no"
    assert not any(record[key] for key in ("latency_s", "ratio", "verdict", "tokens_per_s", "peak_bytes"))
    assert "suspect" in markdown(table)
    assert "gelu" not in go_bench(report)
    assert "latency" not in json.loads(bencher(report))["gelu"]
    assert "gelu latency" not in github_action_benchmark(report)
    assert report_view(report).code == 0


def test_a_file_is_read_as_strictly_as_it_was_made(tmp_path: Path) -> None:
    """A verdict that stands in the file beside the failure is not shown again."""
    report = accused(measured(machine(), workers=5, rounds=6), "gelu")
    assert report.comparison("gelu").verdict is Verdict.FASTER
    shown = recompute(load_shown(saved(tmp_path / "a.json", report)))
    assert shown.comparison("gelu") is None
    assert shown.failure("gelu").kind is FailureKind.SUSPECT


def load_shown(path: Path) -> ShownReport:
    return api.load(str(path))


def test_nothing_is_held_against_a_suspect_reference() -> None:
    report = measured(machine(suspects=("relu",)), workers=5, rounds=6)
    for label in ("gelu", "swiglu"):
        found = report.comparison(label)
        assert (found.verdict, found.ratio, found.reason) == (Verdict.UNCLEAR, None, "the reference relu is suspect")
    assert "suspect, and without a verdict: relu" in compare_table(report).summary


def test_a_suspect_control_is_said_with_its_reason() -> None:
    """It is the reference a second time, and has no row of its own."""
    report = accused(measured(machine(), workers=5, rounds=6, control=True), CONTROL)
    assert report.suspect("relu") == WHY
    assert report.suspect("gelu") == ""
    assert f"suspect, and without a verdict: relu ({WHY})" in compare_table(recompute(report)).summary


def test_what_was_found_last_is_told_first() -> None:
    """A case that has failed otherwise as well is suspect above all."""
    report = measured(machine(), workers=5, rounds=6)
    crash = Failure(case="gelu", kind=FailureKind.CRASH, message="gone")
    for failures in ((crash,), (crash, replace(crash, kind=FailureKind.SUSPECT, message=WHY))):
        both = replace(report, failures=failures)
        assert both.failure("gelu") == failures[-1]
        assert both.suspect("gelu") == (WHY if len(failures) == 2 else "")
    silent = replace(crash, kind=FailureKind.SUSPECT, message="")
    assert replace(report, failures=(silent,)).suspect("gelu") == "no reason is given"


def test_it_is_not_among_the_fastest() -> None:
    """packed takes half the time, and is found out."""
    rows = {"variants": "swiglu", "backend": "eager,packed,onednn"}
    factors = {"swiglu@backend=packed": 0.5, "swiglu@backend=onednn": 0.8}
    honest = measured(machine(factors=factors), workers=5, rounds=8, **rows)
    assert fastest(honest)[0].first == ("swiglu@backend=packed",)
    report = accused(honest, "swiglu@backend=packed")
    assert fastest(report)[0].first == ("swiglu@backend=onednn",)
    text = plain(compare_table(recompute(report)), 120)
    assert "fastest of swiglu: onednn" in text


def test_in_the_tables_of_activations_and_of_a_block(on_machine) -> None:
    request = TimingRequest(activations="relu,silu", workers=4, rounds=6, threads=1)
    plan = api.prepare(request).plan
    label = next(case.label for case in plan.shown if case.variant == "silu")
    timed = measured(machine(suspects=(label,)), TimingRequest, activations="relu,silu", workers=4, rounds=6)
    text = plain(timed.table, 120)
    assert "suspect" in text
    assert f"{label} said no" in text
    assert f"suspect, and without a verdict: {label}" in text
    assert next(row for row in timed.rows() if row["failure"])["failure"] == f"suspect: {label} said no"
    block = {"d_model": 64, "seq_len": "16,32", "workers": 4, "rounds": 6}
    found = measured(machine(suspects=("attention@16",)), BlockRequest, **block)
    text = plain(found.table, 120)
    assert "suspect¹" in text
    assert "suspect, and without a verdict: attention@16" in text


def test_in_a_picture() -> None:
    from ffnbench.report.pictures.ratios import ratio_figure

    figure = ratio_figure(measured(machine(suspects=("gelu",)), workers=4, rounds=6))
    assert "failed: suspect" in [text.get_text() for axes in figure.axes for text in axes.texts]


# What was judged


def judged_report(**options: object) -> Report:
    report = measured(machine(), workers=5, rounds=30, d_model=768, threads=2, **options)
    judged = (
        Judged(case="relu", against=Against.FORM, name="relu", outputs=150, gradients=0, error=3e-7),
        Judged(case="gelu", against=Against.ITSELF, outputs=1150, error=2e-7),
        Judged(case="swiglu", against=Against.ITSELF, why="it can't be made twice"),
    )
    inputs = (
        Inputs(case="relu", count=40, bytes=60 << 20, level="memory", one_level="L3"),
        Inputs(case="gelu", count=64, bytes=96 << 20, level="memory", one_level="L3"),
        Inputs(case="swiglu", count=1, bytes=3 << 19, level="L3", one_level="L3"),
    )
    return replace(report, judged=judged, inputs=inputs, judging_s=1.5, wall_s=20.0)


def test_a_row_that_could_not_be_judged_has_no_verdict(baseline: Path, tmp_path: Path, call) -> None:
    """It takes 1.3 times as long, and is called nothing; neither is a row whose reference could not be judged."""
    why = "outputs of swiglu could not be judged: it can't be made twice"
    report = recompute(judged_report())
    found = report.comparison("swiglu")
    assert (found.verdict, found.ratio, found.reason) == (Verdict.UNCLEAR, None, why)
    assert report.comparison("gelu").verdict is Verdict.FASTER
    nobody = replace(report.judged[0], outputs=0, error=None, why="no memory")
    lost = recompute(replace(report, judged=(nobody, *report.judged[1:])))
    assert {lost.comparison(label).verdict for label in ("gelu", "swiglu")} == {Verdict.UNCLEAR}
    now = replace(measured(machine(seed=3), workers=6, rounds=20), judged=report.judged[2:])
    code, out, _ = call("check", baseline, saved(tmp_path / "run.json", now))
    assert code == 0
    assert "swiglu latency UNCLEAR" in out
    assert why in out
    assert "gelu latency OK" in out


@pytest.mark.parametrize("width", [60, 80, 120])
def test_golden_tables_of_what_was_judged(width: int) -> None:
    """Delete a golden file and run the tests to write it anew, then read it."""
    report = recompute(as_shown(accused(judged_report(variants="relu,gelu,swiglu,fast=silu"), "fast")))
    lines = [line.rstrip() for line in plain(compare_table(report), width).splitlines()]
    assert max(cell_len(line) for line in lines) <= width
    golden = GOLDEN / f"judged-{width}.txt"
    if not golden.exists():
        golden.write_text("\n".join(lines) + "\n", encoding="utf-8")
        pytest.fail(f"{golden.name} was missing and is written anew: read it, then run again")
    assert lines == golden.read_text(encoding="utf-8").splitlines()


def test_the_line_of_what_was_judged() -> None:
    """The largest error of each dtype, of rows that passed; gradients where there are some; the other side in `ab`."""
    report = judged_report()
    [line] = [line for line in compare_table(report).summary if "timed calls" in line]
    assert line == "outputs of 1,300 timed calls were held against float64: largest error 3e-7"
    more = replace(report.judged[0], gradients=7), replace(report.judged[1], error=0.5)
    [line] = [
        line
        for line in compare_table(accused(replace(report, judged=more), "gelu")).summary
        if "timed calls" in line
    ]  # fmt: skip
    assert line == "outputs of 1,300 timed calls, and gradients of 7, were held against float64: largest error 3e-7"
    side = (replace(more[0], gradients=0, against=Against.SIDE, name="base"),)
    text = plain(compare_table(replace(report, judged=side)), 120)
    assert "outputs of 150 timed calls were held against the other side's: largest error 3e-7" in text
    assert "timed calls" not in plain(compare_table(replace(report, judged=())), 120)
    halves = measured(machine(), variants="relu,b=relu@dtype=bfloat16", workers=4, rounds=6)
    pair = (replace(more[0], gradients=0), replace(more[0], gradients=0, case="b", error=4e-3))
    text = plain(compare_table(replace(halves, judged=pair)), 120)
    assert "largest error 3e-7 (float32), 4e-3 (bfloat16)" in text


def test_footnotes_of_a_function_that_nobody_checked() -> None:
    notes = compare_table(judged_report()).footnotes
    assert sum("function not checked: @like=NAME" in note for note in notes) == 1
    assert any(note.endswith("outputs of swiglu could not be judged: it can't be made twice") for note in notes)
    two = replace(judged_report(), judged=tuple(replace(one, error=1e-7, outputs=3) for one in judged_report().judged))
    table = compare_table(two)
    assert sum("@like=NAME" in note for note in table.footnotes) == 1  # one text for both rows
    failed = compare_table(accused(replace(judged_report(), judged=judged_report().judged[:2]), "gelu"))
    assert not any("@like=NAME" in note for note in failed.footnotes)  # its reason is said in place of it
    number = next(note for note in table.footnotes if "@like=NAME" in note)[0]
    assert [number in row[0].text for row in table.rows] == [False, True, True]


def test_footnotes_of_inputs_that_no_cache_holds() -> None:
    """One text for all rows of which it is true; none where the pool is as near as one input."""
    notes = [note for note in compare_table(judged_report()).footnotes if "input of its own" in note]
    assert len(notes) == 1
    assert notes[0].endswith("40 to 64 of them take 60.0 MiB to 96.0 MiB and are read from memory (one alone: from L3)")
    alone = replace(judged_report(), inputs=judged_report().inputs[:1])
    assert any("40 of them take 60.0 MiB and" in note for note in compare_table(alone).footnotes)
    unknown = replace(alone, inputs=(replace(alone.inputs[0], level=""),))
    assert not any("input of its own" in note for note in compare_table(unknown).footnotes)


def test_records_of_what_was_judged() -> None:
    """The error is the largest that is known, of before timing and of timed calls."""
    found = {row["label"]: row for row in case_records(judged_report())}
    assert [found["relu"][key] for key in ("judged_against", "judged_name", "judged_outputs", "judged_gradients",
                                           "inputs", "input_bytes", "error")] == [
        "form", "relu", 150, 0, 40, 60 << 20, 3e-7]  # fmt: skip
    assert [found["swiglu"][key] for key in ("judged_against", "judged_outputs", "error")] == ["itself", 0, None]
    for before in (1e-9, 0.1):
        known = Measured(case="relu", metric=ERROR, estimate=Estimate(value=before))
        report = replace(judged_report(), measured=(*judged_report().measured, known))
        assert case_records(report)[0]["error"] == max(before, 3e-7)
    bare = case_records(replace(judged_report(), judged=(), inputs=()))[0]
    assert not any(bare[key] for key in ("judged_against", "judged_outputs", "inputs", "input_bytes", "error"))


# Files


def test_files_keep_it_and_older_ones_load(tmp_path: Path) -> None:
    report = accused(judged_report(), "gelu")
    text = report_text(report)
    back = load(saved(tmp_path / "a.json", report))
    assert (back.judged, back.inputs, back.judging_s, back.failures) == (
        report.judged, report.inputs, 1.5, report.failures)  # fmt: skip
    assert back.run.judged == report.judged
    assert report_text(back) == text
    old = json.loads(text)
    for name in ("judged", "inputs", "judging_s"):
        del old[name]
    (tmp_path / "old.json").write_text(json.dumps(old))
    assert (load(tmp_path / "old.json").judged, load(tmp_path / "old.json").judging_s) == ((), 0.0)
    assert "judged" not in report_text(replace(report, judged=(), inputs=(), judging_s=0.0))


def test_each_run_of_a_file_has_its_own(tmp_path: Path) -> None:
    """What the control was judged by is of no case that a file of several runs knows."""
    first = replace(measured(machine(), workers=4, rounds=6), judged=(), inputs=())
    more = (Judged(case=CONTROL, against=Against.FORM, outputs=3, error=0.0),)
    later = replace(judged_report(), judged=(*judged_report().judged, *more))
    both = load(saved(tmp_path / "a.json", first.with_repeat(later, 20)))
    assert [len(run.judged) for run in both.runs] == [0, 3]
    assert [len(run.inputs) for run in both.runs] == [0, 3]
    assert [run.judging_s for run in both.runs] == [0.0, 1.5]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda d: d["judged"][0].update(case="x"), "the judged case 'x' is unknown"),
        (lambda d: d["judged"][0].update(outputs=-1), "outputs: expected at least 0"),
        (lambda d: d["judged"][0].update(outputs=0), "an error is that of no output"),
        (lambda d: d["judged"][0].update(error=-1.0), "an error is that of no output"),
        (lambda d: d["judged"][0].update(against="me"), "against: expected one of form, side, itself"),
        (lambda d: d["inputs"][0].update(case="x"), "the case of inputs 'x' is unknown"),
        (lambda d: d["inputs"][0].update(count=0), "count: expected at least 1"),
        (lambda d: d.update(failures=[{"case": "gelu", "kind": "odd", "message": ""}]), "kind: expected one of"),
    ],
)
def test_what_can_have_come_from_no_judge_is_refused(
    tmp_path: Path, change: Callable[[dict], object], says: str
) -> None:
    data = json.loads(report_text(judged_report()))
    change(data)
    (tmp_path / "run.json").write_text(json.dumps(data))
    with pytest.raises(FfnbenchError, match=says):
        load(tmp_path / "run.json")


def test_a_journal_keeps_it_too(tmp_path: Path) -> None:
    report = judged_report()
    journal = Journal(tmp_path / "a.json")
    bare = replace(report, samples=(), judged=(), inputs=(), judging_s=0.0, environment=None, measured=(),
                   comparisons=(), wall_s=None)  # fmt: skip
    early = replace(report.judged[0], outputs=1)
    failure = Failure(case="gelu", kind=FailureKind.SUSPECT, message=WHY)
    for found in (bare, report.environment, early, *report.samples, *report.judged, *report.inputs, failure):
        journal.add(found)
    journal.close(keep=True)
    back = load(journal.path)
    assert (set(back.judged), back.inputs) == (set(report.judged), report.inputs)  # of a case the last holds
    assert back.suspect("gelu") == WHY
    assert back.comparison("gelu") is None
    text = journal.path.read_text()
    later = Journal(tmp_path / "b.json")
    for found in (bare, report.environment, *report.samples):
        later.add(found)
    later.close(keep=True)
    first, second = later.path.read_text(), text.partition("\n")[2]
    (tmp_path / "two.journal").write_text(first + second)  # gelu is found out in the second run
    both = load(tmp_path / "two.journal")
    assert len(both.runs) == 2
    assert both.suspect("gelu") == WHY
    assert both.comparison("gelu") is None


def test_what_one_of_several_runs_found_holds_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """gelu is found out in the second run: no run of the file, and no mean over them, calls it faster."""
    launches = iter([machine(), machine(1, suspects=("gelu",), since=2), machine(2)])
    launch = [next(launches)]
    whole = measuring.measured_once

    def run(*arguments: object, **more: object) -> ShownReport:
        found = whole(arguments[0], arguments[1], launch[0])
        launch[0] = next(launches, launch[0])
        return found

    monkeypatch.setattr(measuring, "measured_once", run)
    report = measured(machine(), workers=5, rounds=6, runs=3, pause=0)
    assert len(report.runs) == 3
    assert all(run.suspect("gelu") for run in report.runs[:2])
    assert report.comparison("gelu") is None
    assert report.comparison("swiglu").verdict is Verdict.SLOWER
    over = next(line for line in report.table.summary if "this is the first of 3 runs" in line)
    assert "swiglu" in over
    assert "gelu" not in over


def test_suspects_of_another_run_are_taken_over_once() -> None:
    report = measured(machine(), workers=5, rounds=6)
    other = accused(report, "gelu", CONTROL)
    found = with_suspects(report, other)
    assert [failure.case for failure in found.failures] == ["gelu"]  # this plan has no control
    assert (found.comparison("gelu"), found.estimate("gelu", "latency")) == (None, None)
    assert with_suspects(found, other) is found
    crash = Failure(case="gelu", kind=FailureKind.CRASH, message="gone")
    assert with_suspects(report, replace(report, failures=(crash,))) is report
    shares = tuple(Share(case=one, bound=Bound.CALL, roof="(call cpu)", share=Estimate(value=0.5)) for one in FACTORS)
    assert [share.case for share in with_suspects(replace(report, shares=shares), other).shares] == ["swiglu"]


def test_a_mean_over_runs_leaves_out_what_a_suspect_is_part_of() -> None:
    """Its own, and of a suspect reference all."""
    report = measured(machine(), workers=5, rounds=6)
    both = report.with_repeat(measured(machine(1), workers=5, rounds=6), 20)

    def known(found: Report) -> set[str]:
        return {label for (label, _), history in past_of(found, Policy()).rows.items() if history}

    assert known(both) == {"gelu", "swiglu"}
    assert known(report.with_repeat(report, 20)) == {"gelu", "swiglu"}
    assert known(accused(report, "gelu")) == {"swiglu"}
    assert known(accused(report, "relu")) == set()


# check


def test_in_a_check_it_has_regressed(baseline: Path, call) -> None:
    """Though it is as fast as ever; exit 1, with the reason, in every format."""
    launch = machine(seed=1, suspects=("gelu",), since=2)
    code, out, _ = call("check", baseline, "-q", "-o", "a.xml", "-o", "a.json", launch=launch)
    assert code == 1
    assert "gelu latency REGRESSED¹" in out
    assert "gelu judged REGRESSED¹" in out
    assert "suspect: gelu said no" in out
    assert "swiglu latency OK" in out
    assert not any(f"gelu {metric} {status}" in out for metric in ("latency", "spec") for status in ("OK", "IMPROVED"))
    assert "gelu judged REGRESSED¹ - - - -" in out  # no change, no limit, no values
    assert "again" not in json.loads(Path("a.json").read_text())  # nothing is measured a second time
    assert 'type="REGRESSED"' in Path("a.xml").read_text()
    assert "suspect: gelu said no" in Path("a.xml").read_text()
    findings = json.loads(Path("a.json").read_text())["findings"]
    assert {f["status"] for f in findings if f["case"] == "gelu"} == {"REGRESSED"}
    again = machine(seed=1, suspects=("gelu",))
    code, out, _ = call("check", baseline, "-q", "--format", "github", launch=again)
    assert code == 1
    assert "::error title=ffnbench REGRESSED::gelu latency: REGRESSED (suspect: gelu said no)" in out


def test_nothing_is_decided_against_a_suspect_reference(baseline: Path, call) -> None:
    """And the reference itself has regressed."""
    code, out, _ = call("check", baseline, "-q", launch=machine(seed=1, suspects=("relu",), since=3))
    assert code == 1
    for label in ("gelu", "swiglu"):
        assert f"{label} latency UNCLEAR" in out
    assert "relu is suspect: relu said no" in out
    assert "relu judged REGRESSED" in out
    assert " latency OK" not in out


@pytest.mark.parametrize("flags", [(), ("--exact-only",), ("--across-machines",)])
def test_a_saved_run_is_no_way_around_it(baseline: Path, tmp_path: Path, call, flags: tuple[str, ...]) -> None:
    now = replace(
        measured(machine(seed=3), workers=6, rounds=20),
        judged=(Judged(case="relu", against=Against.FORM, name="relu", outputs=12, error=2e-7),),
    )
    run = saved(tmp_path / "run.json", accused(now, "gelu"))
    code, out, _ = call("check", baseline, run, *flags)
    assert code == 1
    assert f"suspect: {WHY}" in out
    assert "gelu judged REGRESSED" in out
    assert "outputs of 12 timed calls were held against float64: largest error 2e-7" in out
    elsewhere = json.loads(run.read_text())
    elsewhere["environment"]["cpu"] = "Other CPU"
    run.write_text(json.dumps(elsewhere))
    assert call("check", baseline, run, *flags)[0] == 1


def test_a_case_that_is_new_and_suspect_has_regressed_too(baseline: Path, tmp_path: Path, call) -> None:
    more = measured(machine(seed=3), variants="relu,gelu,swiglu,silu", workers=6, rounds=20)
    code, out, _ = call("check", baseline, saved(tmp_path / "run.json", accused(more, "silu")))
    assert code == 1
    assert "silu judged REGRESSED" in out
    assert "NEW" not in out


@pytest.mark.parametrize("suspect", ["gelu", "relu"])
@pytest.mark.parametrize("flag", ["--update", "--append"])
def test_it_is_stored_in_no_baseline(baseline: Path, call, flag: str, suspect: str) -> None:
    """One line says so, and the exit code stays that of what was found."""
    before = baseline.read_text()
    code, _, err = call("check", baseline, "-q", flag, launch=machine(seed=1, suspects=(suspect,), since=3))
    assert (code, baseline.read_text()) == (1, before)
    told = "the baseline was not updated" if flag == "--update" else f"this run was not added to {str(baseline)!r}"
    assert err.splitlines()[-1] == f"{told}: {suspect} is suspect"


def test_a_baseline_of_another_method_is_not_replaced_by_it(baseline: Path, call) -> None:
    data = json.loads(baseline.read_text())
    data["plan"]["protocol"]["method"] = 3
    baseline.write_text(json.dumps(data))
    before = baseline.read_text()
    code, out, err = call("check", baseline, "-q", "--update", launch=machine(seed=1, suspects=("gelu",), since=3))
    assert (code, baseline.read_text()) == (1, before)
    assert "gelu judged REGRESSED" in out
    assert "the baseline was not updated: gelu is suspect" in err


@pytest.mark.parametrize("number", [1, 2])
def test_a_baseline_that_holds_it_is_none(baseline: Path, call, number: int) -> None:
    """In its first run, or in a later one; whatever is asked of it."""
    report = load(baseline)
    bad = accused(report, "gelu")
    saved(baseline, bad if number == 1 else report.with_repeat(replace(bad, created="2030-01-01T00:00:00+00:00"), 20))
    for flags in ((), ("--exact-only",), ("--update",)):
        code, _, err = call("check", baseline, "-q", *flags)
        assert code == 2
        assert f"is no baseline: 'gelu' is suspect in it: {WHY}" in err
        assert "hint: " in err


# ab


def ab(call, launch: FakeLaunch, *flags: str) -> tuple[int, str, str]:
    return call("ab", "swiglu", "--base-env", "A:1", "--head-env", "A:2", "--d-model", "64", "--threads", "1", "-q",
                *flags, launch=launch)  # fmt: skip


def sides(suspect: str = "", since: int = 2) -> FakeLaunch:
    return machine(seed=1, suspects=(suspect,) if suspect else (), since=since, factors={"swiglu": 0.5})


def test_a_suspect_head_has_regressed(call) -> None:
    """It takes half the time, and its output before timing was right: neither is said of it any more."""
    code, out, _ = ab(call, sides())
    assert code == 0
    assert "swiglu latency IMPROVED" in out
    assert "swiglu output OK" in out
    for since in (0, 2):
        code, out, _ = ab(call, sides("swiglu", since))
        assert code == 1
        assert "swiglu latency REGRESSED¹" in out
        assert "suspect: swiglu said no" in out
        assert "IMPROVED" not in out
        assert "output" not in out


def test_nothing_is_decided_against_a_suspect_base(call) -> None:
    code, out, _ = ab(call, sides("base"))
    assert code == 0
    assert "swiglu latency UNCLEAR" in out
    assert "base is suspect: base said no" in out
    assert "swiglu output" not in out
    assert ab(call, sides("base"), "--on-unclear", "fail")[0] == 4


@pytest.mark.parametrize(("known", "status"), [(Status.OK, Status.IMPROVED), (Status.UNCLEAR, Status.UNCLEAR)])
def test_what_may_be_another_function_is_no_gain(known: Status, status: Status) -> None:
    found = [
        Finding(case="mine", metric="latency", status=one, tolerance=0.05)
        for one in (Status.IMPROVED, Status.REGRESSED)
    ]
    output = Finding(case="mine", metric="output", status=known, tolerance=1e-4)
    assert [one.status for one in without_gain(found, output)] == [status, Status.REGRESSED]
