"""How a run on a GPU reads, from a file whose seconds are known: device and host beside wall, launch-bound rows."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from conftest import csv_of
from rich.cells import cell_len

from ffnbench.api.saved import load
from ffnbench.compare.table import compare_table
from ffnbench.gate.decision import Policy, Status, exact_findings, latency_findings, past_of
from ffnbench.gate.side_by_side_table import side_by_side_view
from ffnbench.metrics import DEVICE_TIME, HOST_TIME, LATENCY
from ffnbench.plan import NoProbe, Plan, cost_of
from ffnbench.planning.compare import plan_compare
from ffnbench.report.shown_report import ShownReport, recompute
from ffnbench.report.tables.conditions import latency_line, untested_note
from ffnbench.report.tables.text import plain
from ffnbench.request import CompareRequest
from ffnbench.result import Bound, CaseCost, Estimate, Report, Roof
from ffnbench.stats.ceilings import fits, needed_by
from ffnbench.stats.verdict import is_launch_bound

GOLDEN = Path(__file__).parent / "golden"
RUN = GOLDEN / "cuda.json"  # three workers of six rounds of four rows, written by hand


@pytest.fixture
def run() -> ShownReport:
    return recompute(load(str(RUN)))


def with_work(report: ShownReport, **changes: Any) -> ShownReport:
    cases = tuple(replace(case, workload=replace(case.workload, **changes)) for case in report.plan.cases)
    return replace(report, plan=replace(report.plan, cases=cases))


def table_text(report: Report, width: int = 200) -> str:
    return plain(compare_table(report), width)


@pytest.mark.parametrize("width", [60, 80, 120])
def test_golden_tables_of_a_run_on_a_gpu(run: ShownReport, width: int) -> None:
    """Delete a golden file and run the tests to write it anew, then read it."""
    lines = [line.rstrip() for line in table_text(run, width).splitlines()]
    assert max(cell_len(line) for line in lines) <= width
    golden = GOLDEN / f"cuda-{width}.txt"
    if not golden.exists():
        golden.write_text("\n".join(lines) + "\n", encoding="utf-8")
        pytest.fail(f"{golden.name} was missing and is written anew: read it, then run again")
    assert lines == golden.read_text(encoding="utf-8").splitlines()


def test_a_disturbed_row_says_so_of_all_its_times(run: ShownReport) -> None:
    """A clock that is held down disturbs the device's time as it does the latency."""
    held = [replace(s, throttled="hot") if s.case == "big" else s for s in run.samples]
    found = recompute(replace(run, samples=tuple(held)))
    for metric in (LATENCY, DEVICE_TIME, HOST_TIME):
        known = {case.label: found.estimate(case.label, metric) is not None for case in run.plan.cases}
        assert known == {case.label: case.label != "big" for case in run.plan.cases}


def test_the_file_holds_a_row_of_each_kind(run: ShownReport) -> None:
    """device and host of the file, in microseconds: 16 and 30, 20 and 42, 31.6 and 31.0, 609 and 43."""
    rows = {row["label"]: row for row in csv.DictReader(io.StringIO(csv_of(run)))}
    assert [rows[case.label]["launch_bound"] for case in run.plan.cases] == ["true", "true", "", "false"]
    assert {label: round(1e6 * float(row["device_s"])) for label, row in rows.items()} == {
        "relu": 16, "swiglu": 20, "gelu@batch=4": 32, "big": 609,
    }  # fmt: skip
    for row in rows.values():
        assert float(row["host_low_s"]) < float(row["host_s"]) < float(row["host_high_s"])
        assert float(row["device_low_s"]) < float(row["device_s"]) < float(row["device_high_s"])
        assert (row["latency_time"], row["cache"], row["matmul_precision"]) == ("wall", "hot", "high")
        assert row["reduced_reductions"] == ""
        flops = float(row["flops_timed"]) * int(row["batch"]) * int(row["seq_len"])
        assert float(row["flops_per_s"]) == pytest.approx(flops / float(row["latency_s"]))  # of the latency shown
    [line] = [line for line in compare_table(run).summary if "launch-bound" in line]
    assert line.startswith("relu and swiglu: launch-bound")


def test_the_header_says_which_time_the_latency_is(run: ShownReport) -> None:
    wall = "latency: wall time (what a caller waits for); device: how long the device works"
    assert latency_line(run)[0].startswith(wall)
    assert latency_line(run)[0].endswith("host: how long the CPU takes to launch it")
    by_device = with_work(run, time="device")
    assert latency_line(by_device)[0].startswith("latency: device time (how long the device works); host")
    text = table_text(by_device)
    assert "device time" in text.splitlines()[0]
    headings = [column.title for column in compare_table(by_device).columns]
    assert ("host" in headings, "device" in headings) == (True, False)  # it is the latency
    assert latency_line(with_work(run, device="cpu")) == ()
    first = replace(run.plan.cases[0], workload=replace(run.plan.cases[0].workload, time="device"))
    mixed = replace(run, plan=replace(run.plan, cases=(first, *run.plan.cases[1:])))
    assert "as its row says" in latency_line(mixed)[0]
    assert [cell.text for cell in column_of(mixed, "time")] == ["device", "wall", "wall", "wall"]


def column_of(report: Report, title: str) -> Iterable[Any]:
    table = compare_table(report)
    place = [column.title for column in table.columns].index(title)
    return [row[place] for row in table.rows]


def made(plan: Plan, run: ShownReport) -> ShownReport:
    """A report of a plan, as if it had been measured there."""
    costs = tuple(CaseCost(case=case.label, cost=cost_of(case, NoProbe())) for case in plan.cases)
    return ShownReport(plan=plan, costs=costs, created=run.created, version="0", environment=run.environment)


def title_of(plan: Plan, run: ShownReport) -> str:
    return compare_table(made(plan, run)).header[0]


@pytest.mark.parametrize(
    ("flags", "told"),
    [({"cache": "cold"}, ["cold cache", "device time"]), ({"matmul_precision": "medium"}, ["medium matmul precision"]),
     ({"dtype": "bf16", "reduced_reductions": False}, ["no reduced reductions"]), ({}, []),
     ({"device": "cpu", "cache": "cold"}, ["cold cache"])],
)  # fmt: skip
def test_what_is_not_the_default_stands_in_the_title(flags: dict[str, Any], told: list[str], run: ShownReport) -> None:
    asked = {"variants": "relu,swiglu", "d_model": 64, "threads": 1, "device": "cuda", **flags}
    title = title_of(plan_compare(CompareRequest(**asked)), run)
    words = ("cache", " time", "precision", "reductions")
    assert sorted(part for part in title.partition(";")[0].split(", ") if part.endswith(words)) == sorted(told)


def test_what_rows_differ_in_is_a_column_and_rows_it_says_nothing_of_have_none(run: ShownReport) -> None:
    variants = "relu,fast=relu@matmul_precision=high,relu@dtype=bf16,cold=relu@cache=cold"
    plan = plan_compare(CompareRequest(variants=variants, d_model=64, threads=1, device="cuda"))
    report = made(plan, run)
    assert [cell.text for cell in column_of(report, "matmul")] == ["highest", "high", "-", "highest"]
    assert [cell.text for cell in column_of(report, "cache")] == ["hot", "hot", "hot", "cold"]
    assert [cell.text for cell in column_of(report, "time")] == ["wall", "wall", "wall", "device"]
    assert "reductions" not in [column.title for column in compare_table(report).columns]


def test_kinds_that_nobody_has_run_are_told(run: ShownReport) -> None:
    assert untested_note(run) == ()
    assert run.environment is not None
    amd = replace(run, environment=replace(run.environment, hip="7.0"))
    assert "AMD's GPUs (ROCm)" in table_text(amd)
    assert untested_note(with_work(amd, device="cpu")) == ()


OTHERS = {"time": "device", "cache": "cold", "matmul_precision": "medium", "reduced_reductions": False}


@pytest.mark.parametrize("key", OTHERS)
def test_runs_of_other_conditions_are_other_rows(key: str, run: ShownReport, tmp_path: Path) -> None:
    """A check refuses them, and two files beside each other say what is not the same."""
    other = with_work(run, **{key: OTHERS[key]})
    found = [f for f in exact_findings(run, other, Policy(tolerances=())) if f.metric == "spec"]
    assert {f.status for f in found} == {Status.REGRESSED}
    assert all(key in f.reason for f in found)
    assert {f.status for f in exact_findings(run, run, Policy(tolerances=())) if f.metric == "spec"} == {Status.OK}
    text = plain(side_by_side_view(["old.json", "new.json"], [run, other]).table, 120)
    assert f"not the same row: {key}" in text
    assert "geometric mean" not in text  # of nothing that could be compared
    policy = Policy(tolerances=())
    timed = latency_findings(past_of(run, policy), other, policy)
    assert {(f.status, key in f.reason) for f in timed} == {(Status.INCOMPARABLE, True)}
    assert Status.INCOMPARABLE not in {f.status for f in latency_findings(past_of(run, policy), run, policy)}


def test_a_ceiling_is_of_its_precision() -> None:
    """Products in float32 are no ceiling of TF32, and those of TF32 are none of float32."""
    plan = plan_compare(CompareRequest(variants="relu,fast=relu@matmul_precision=high", d_model=64, threads=1,
                                       device="cuda"))  # fmt: skip
    cost = cost_of(plan.cases[0], NoProbe())
    roofs = {
        name: Roof(name=name, bound=Bound.PRODUCTS, path="torch.mm", amount=1, device="cuda", dtype="float32",
                   threads=1, shape=(1, 1, 1), matmul_precision=name)
        for name in ("highest", "high", "medium")
    }  # fmt: skip
    able = {c.label: [n for n, roof in roofs.items() if fits(roof, c, needed_by(c, cost))] for c in plan.cases}
    assert able == {"relu": ["highest"], "fast": ["highest", "high"]}


def times(value: float, half: float | None) -> Estimate:
    return Estimate(value=value) if half is None else Estimate(value=value, low=value - half, high=value + half)


@pytest.mark.parametrize(
    ("device", "host", "said"),
    [((10, 1), (30, 2), True), ((30, 2), (10, 1), False), ((10, 1), (11, 1), None), ((10, 1), (12.1, 1), True),
     ((10, None), (30, 1), None), ((10, 1), (30, None), None), (None, (30, 1), None), ((10, 1), None, None)],
)  # fmt: skip
def test_launch_bound_is_what_intervals_that_lie_apart_say(device: Any, host: Any, said: bool | None) -> None:
    assert is_launch_bound(*(None if one is None else times(*one) for one in (device, host))) is said
