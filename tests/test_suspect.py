"""A row that is SUSPECT: it has no verdict anywhere, has regressed in a check and in ab, and is kept in no baseline."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import gate_world
import pytest
from conftest import FakeLaunch

from ffnbench import api
from ffnbench.api import measuring
from ffnbench.errors import FfnbenchError
from ffnbench.gate.decision import Finding, Status, without_gain
from ffnbench.plan import CONTROL
from ffnbench.report.csv_columns import case_records
from ffnbench.report.files.store import load, report_text
from ffnbench.report.shown_report import ShownReport, recompute
from ffnbench.report.tables.compare import compare_table
from ffnbench.report.tables.text import plain
from ffnbench.report.views import report_view
from ffnbench.request import BlockRequest, CompareRequest
from ffnbench.result import Against, Failure, FailureKind, Inputs, Judged, Report, Verdict
from ffnbench.stats.fastest import fastest

WHY = "its output of a call is off by 0.9 (tolerance 1e-4)"
FACTORS = {"gelu": 0.5, "swiglu": 1.3}


def machine(seed: int = 0, suspects: tuple[str, ...] = (), since: int = 0, factors: dict | None = None) -> FakeLaunch:
    """Workers of 10 ms a call, gelu twice as fast; from worker `since` on, samples of `suspects` are found out."""
    launch = gate_world.machine(FACTORS if factors is None else factors, seed=seed)
    found_out, seconds = {("sample", one): "suspect" for one in suspects}, launch.seconds

    def until(label: str, worker: int, number: int) -> float:
        if worker >= since:
            launch.trouble |= found_out
        return seconds(label, worker, number)

    launch.seconds, launch.trouble = until, {} if since else found_out
    return launch


def measured(launch: FakeLaunch, asked: type = CompareRequest, **options: object) -> ShownReport:
    flags = {"variants": "relu,gelu,swiglu", "d_model": 64, "metrics": "latency"} if asked is CompareRequest else {}
    return api.measure(
        api.prepare(asked(**{"threads": 1, "workers": 5, "rounds": 6, **flags, **options})), launch=launch
    )


@pytest.fixture
def call(on_fakes, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """A command in this folder, workers faked; gives exit code, stdout in one line, stderr."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "160")
    return lambda *arguments, launch=None: on_fakes(*arguments, launch=launch or machine(seed=1))


@pytest.fixture
def baseline(tmp_path: Path) -> Path:
    return saved(tmp_path / "base.json", measured(machine(), workers=None, rounds=None, precision=0.5))


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
    report = measured(machine(suspects=("gelu",), since=since), workers=6)
    assert any(s.case == "gelu" for s in report.samples) == bool(since)
    table = compare_table(report)
    row = {column.title: cell for column, cell in zip(table.columns, table.rows[1], strict=True)}
    assert (row["verdict"].text, row["verdict"].style) == ("suspect", "red")
    assert (row["latency"].text, row["time vs relu"].text) == ("-", "-")
    assert "gelu: said no" in table.summary
    assert report.comparison("gelu") is None
    record = case_records(report)[1]
    assert record["failure"] == "suspect: gelu said no"
    assert not any(record[key] for key in ("latency_s", "ratio", "verdict", "tokens_per_s", "peak_bytes"))
    assert report_view(report).code == 0


def test_nothing_is_held_against_a_suspect_reference_nor_one_whose_control_is() -> None:
    report = measured(machine(suspects=("relu",)))
    for label in ("gelu", "swiglu"):
        found = report.comparison(label)
        assert (found.verdict, found.ratio, found.reason) == (Verdict.UNCLEAR, None, "the reference relu is suspect")
    by_control = accused(measured(machine(), control=True), CONTROL)
    assert (by_control.suspect("relu"), by_control.suspect("gelu")) == (WHY, "")
    assert f"relu: {WHY}" in compare_table(recompute(by_control)).summary


def test_it_is_not_among_the_fastest() -> None:
    """packed takes half the time, and is found out."""
    factors = {"swiglu@backend=packed": 0.5, "swiglu@backend=onednn": 0.8}
    honest = measured(machine(factors=factors), rounds=8, variants="swiglu", backend="eager,packed,onednn")
    assert fastest(honest)[0].first == ("swiglu@backend=packed",)
    assert fastest(accused(honest, "swiglu@backend=packed"))[0].first == ("swiglu@backend=onednn",)


def test_in_the_table_of_a_block() -> None:
    block = measured(machine(suspects=("attention@16",)), BlockRequest, d_model=64, seq_len="16,32")
    assert "attention@16: said no" in plain(block.table, 120)


# What was judged


def judged_report(**options: object) -> Report:
    report = measured(machine(), d_model=768, threads=2, **options)
    judged = (
        Judged(case="relu", against=Against.FORM, name="relu", outputs=150, gradients=0, error=3e-7),
        Judged(case="gelu", against=Against.ITSELF, outputs=1150, error=2e-7),
        Judged(case="swiglu", against=Against.ITSELF, why="it can't be made twice"),
    )
    inputs = tuple(
        Inputs(case=case, count=40, bytes=60 << 20, level="memory", one_level="L3") for case in ("relu", "gelu")
    )
    return replace(report, judged=judged, inputs=inputs, judging_s=1.5, wall_s=20.0)


def test_a_row_that_could_not_be_judged_has_no_verdict(baseline: Path, tmp_path: Path, call) -> None:
    """It takes 1.3 times as long, and is called nothing; neither is a row whose reference could not be judged."""
    why = "outputs of swiglu could not be checked: it can't be made twice"
    report = recompute(judged_report())
    found = report.comparison("swiglu")
    assert (found.verdict, found.ratio, found.reason) == (Verdict.UNCLEAR, None, why)
    assert report.comparison("gelu").verdict is Verdict.FASTER
    nobody = replace(report.judged[0], outputs=0, error=None, why="no memory")
    lost = recompute(replace(report, judged=(nobody, *report.judged[1:])))
    assert {lost.comparison(label).verdict for label in ("gelu", "swiglu")} == {Verdict.UNCLEAR}
    now = replace(measured(machine(seed=3), rounds=20), judged=report.judged[2:])
    code, out, _ = call("check", baseline, saved(tmp_path / "run.json", now))
    assert code == 0
    assert [text for text in ("swiglu latency can't tell", why, "gelu latency OK") if text not in out] == []


def test_the_line_of_what_was_judged() -> None:
    """The largest error of rows that passed; gradients where there are some; the other side in `ab`."""
    report = judged_report()
    more = replace(report.judged[0], gradients=7), replace(report.judged[1], error=0.5)
    side = (replace(report.judged[0], against=Against.SIDE, name="base"),)
    for found, line in (
        (report, "outputs of 1,300 calls were compared with float64: largest error 3e-7"),
        (accused(replace(report, judged=more), "gelu"),
         "outputs of 1,300 calls, and gradients of 7, were compared with float64: largest error 3e-7"),
        (replace(report, judged=side),
         "outputs of 150 calls were compared with the other side's: largest error 3e-7"),
    ):  # fmt: skip
        assert [text for text in compare_table(found).details if text.startswith("outputs of")] == [line]


def test_files_keep_it(tmp_path: Path) -> None:
    report = accused(judged_report(), "gelu")
    back = load(saved(tmp_path / "a.json", report))
    assert (back.judged, back.inputs, back.judging_s, back.failures) == (
        report.judged, report.inputs, 1.5, report.failures)  # fmt: skip


def test_what_can_have_come_from_no_judge_is_refused(tmp_path: Path) -> None:
    for group, change, says in (
        ("judged", {"case": "x"}, "the judged case 'x' is unknown"),
        ("judged", {"outputs": -1}, "outputs: expected at least 0"),
        ("judged", {"against": "me"}, "against: expected one of form, side, itself"),
        ("inputs", {"count": 0}, "count: expected at least 1"),
    ):
        path = saved(tmp_path / "run.json", judged_report())
        gate_world.edited(path, lambda data, group=group, change=change: data[group][0].update(change))
        with pytest.raises(FfnbenchError, match=says):
            load(path)


def test_what_one_of_several_runs_found_holds_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """gelu is found out in the second run: no run of the file, and no mean over them, calls it faster."""
    launches = iter([machine(), machine(1, suspects=("gelu",), since=2), machine(2)])
    whole = measuring.measured_once
    monkeypatch.setattr(measuring, "measured_once", lambda prepared, sink, *_: whole(prepared, sink, next(launches)))
    report = measured(machine(), runs=3, pause=0)
    assert [bool(run.suspect("gelu")) for run in report.runs[:2]] == [True, True]
    assert report.comparison("gelu") is None
    assert report.comparison("swiglu").verdict is Verdict.SLOWER
    over = next(line for line in report.table.summary if "the table shows run 1 of 3" in line)
    assert ("swiglu" in over, "gelu" in over) == (True, False)


# check


def test_in_a_check_it_has_regressed(baseline: Path, call) -> None:
    """Though it is as fast as ever; exit 1, with the reason, in every format."""
    launch = machine(seed=1, suspects=("gelu",), since=2)
    code, out, _ = call("check", baseline, "-q -o a.xml -o a.json --format github", launch=launch)
    assert code == 1
    for text in ("gelu latency REGRESSED", "gelu judged REGRESSED - - - -", "swiglu latency OK",
                 "::error title=ffnbench REGRESSED::gelu latency: REGRESSED (suspect: gelu said no)"):  # fmt: skip
        assert text in out
    assert "suspect: gelu said no" in Path("a.xml").read_text()
    findings = json.loads(Path("a.json").read_text())["findings"]
    assert {f["status"] for f in findings if f["case"] == "gelu"} == {"REGRESSED"}


def test_nothing_is_decided_against_a_suspect_reference(baseline: Path, call) -> None:
    """And the reference itself has regressed."""
    code, out, _ = call("check", baseline, "-q", launch=machine(seed=1, suspects=("relu",), since=3))
    assert (code, " latency OK" in out) == (1, False)
    for text in (
        "gelu latency can't tell",
        "swiglu latency can't tell",
        "relu is suspect: relu said no",
        "relu judged REGR",
    ):
        assert text in out


def test_a_saved_run_is_no_way_around_it(baseline: Path, tmp_path: Path, call) -> None:
    """Of a case that is in the baseline, and of one that is new; on another machine too."""
    now = measured(machine(seed=3), rounds=20, variants="relu,gelu,swiglu,silu")
    run = saved(tmp_path / "run.json", accused(now, "gelu", "silu"))
    for flags in ("--on-unclear pass", "--exact-only", "--across-machines"):
        code, out, _ = call("check", baseline, run, flags)
        assert code == 1
        for text in (f"suspect: {WHY}", "gelu judged REGRESSED", "silu judged REGRESSED"):
            assert text in out
        gate_world.edited(run, lambda data: data["environment"].update(cpu="Other CPU"))


def test_it_is_stored_in_no_baseline(baseline: Path, call) -> None:
    """One line says so, and the exit code stays that of what was found."""
    before = baseline.read_text()
    for flag, told in (
        ("--update", "the baseline was not updated"),
        ("--append", f"this run was not added to {str(baseline)!r}"),
    ):
        code, _, err = call("check", baseline, "-q", flag, launch=machine(seed=1, suspects=("gelu",), since=3))
        assert (code, baseline.read_text()) == (1, before)
        assert err.splitlines()[-1] == f"{told}: gelu is suspect"


def test_a_baseline_that_holds_it_is_none(baseline: Path, call) -> None:
    """In its first run, or in a later one."""
    report = load(baseline)
    bad = accused(report, "gelu")
    for one in (bad, report.with_repeat(replace(bad, created="2030-01-01T00:00:00+00:00"))):
        saved(baseline, one)
        code, _, err = call("check", baseline, "-q")
        assert (code, f"can't be a baseline: 'gelu' is suspect: {WHY}" in err, "hint: " in err) == (2, True, True)


# ab


@pytest.mark.parametrize(
    ("suspect", "code", "says", "never"),
    [
        ("", 0, ["swiglu latency IMPROVED", "swiglu output OK"], []),
        ("swiglu", 1, ["swiglu latency REGRESSED", "suspect: swiglu said no"], ["IMPROVED", "output"]),
        ("base", 4, ["swiglu latency can't tell", "base is suspect: base said no"], ["swiglu output"]),
    ],
)
def test_a_suspect_side(call, suspect: str, code: int, says: list[str], never: list[str]) -> None:
    """head takes half the time, and its output before timing was right: neither is said of a suspect one."""
    launch = machine(seed=1, suspects=(suspect,) if suspect else (), since=2, factors={"swiglu": 0.5})
    flags = "--base-env A:1 --head-env A:2 --d-model 64 --threads 1 -q --on-unclear fail"
    ended, out, _ = call("ab swiglu", flags, launch=launch)
    assert ended == code
    assert [text for text in says if text not in out] + [text for text in never if text in out] == []


@pytest.mark.parametrize(("known", "status"), [(Status.OK, Status.IMPROVED), (Status.UNCLEAR, Status.UNCLEAR)])
def test_what_may_be_another_function_is_no_gain(known: Status, status: Status) -> None:
    one = Finding(case="mine", metric="latency", status=Status.IMPROVED, tolerance=0.05)
    output = Finding(case="mine", metric="output", status=known, tolerance=1e-4)
    found = without_gain([one, replace(one, status=Status.REGRESSED)], output)
    assert [one.status for one in found] == [status, Status.REGRESSED]
