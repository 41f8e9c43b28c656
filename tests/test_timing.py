"""`activations --time`: one run of operations, how it is told, and every way in which it can end."""

from __future__ import annotations

import csv
import math
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import FakeLaunch, ffnbench, lost
from rich.cells import cell_len

from ffnbench import api, cli
from ffnbench.api import measuring
from ffnbench.errors import FfnbenchError, Interrupted
from ffnbench.planning.activations import groups_of, plan_timing
from ffnbench.report.tables.activations import timing_records, timing_tables
from ffnbench.report.tables.text import plain
from ffnbench.report.views import report_view
from ffnbench.request import TimingRequest
from ffnbench.result import Report


def seconds(label: str, worker: int, number: int) -> float:
    name, _, elements, mode = label.split()
    base = {"relu": 1.0, "gelu": 3.0, "silu": 1.0}[name] * (2 if mode == "backward" else 1) * int(elements)
    return 1e-9 * base * (1 + 0.1 * worker) * (1 + 0.001 * (len(label) % 7) * (worker - 1))


def told(activations: str | None, launch: FakeLaunch, **flags) -> Report:
    """The operations measured on workers that are not real."""
    return api.measure(api.prepare(TimingRequest(activations=activations, **flags)), launch=launch)


def tables_of(report: Report) -> list:
    last = timing_tables(report)
    return [*last.above, replace(last, above=())]


def test_timing_compares_within_size_dtype_and_direction() -> None:
    report = told("gelu,silu", FakeLaunch(seconds), elements="1000,5000", dtype="float32,bf16", quick=True)
    records, tables = timing_records(report), tables_of(report)
    assert not report.interrupted
    assert len(records) == 2 * 2 * 2 * 3  # dtypes, sizes, directions; relu is added
    assert len(tables) == 4
    for record in records:
        expected = {"relu": 1.0, "gelu": 3.0, "silu": 1.0}[record["activation"]]
        assert record["ratio"] == pytest.approx(expected, rel=0.01)
        assert record["verdict"] == {"relu": "reference", "gelu": "slower", "silu": "same"}[record["activation"]]
    text = plain(tables[1], 80)
    assert "5,000 elements, float32" in text
    assert "slower: gelu" in text
    assert all(cell_len(line.rstrip()) <= 60 for line in plain(tables[0], 60).splitlines())


def test_an_operation_that_fails_says_why_and_the_others_go_on() -> None:
    trouble = {("sample", "gelu float32 1000 backward"): "crash"}
    report = told("gelu,silu", FakeLaunch(seconds, trouble), elements="1000", quick=True)
    failed = [record for record in timing_records(report) if record["failure"]]
    assert [(r["activation"], r["mode"], r["latency_s"]) for r in failed] == [("gelu", "backward", None)]
    assert "gelu float32 1000 backward said no" in plain(tables_of(report)[0], 80)


def test_timing_for_real_is_one_run_of_operations(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def telu(x): return x * x.exp().tanh()\n")
    done = ffnbench(
        "activations", "--time", "--quick", "--rounds", "2", "--activations", "gelu,mine.py:telu,identity",
        "--elements", "4096", "--format", "csv", cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    rows = list(csv.DictReader(done.stdout.splitlines()))
    assert [(r["activation"], r["mode"]) for r in rows] == [
        (name, mode) for mode in ("forward", "backward") for name in ("relu", "gelu", "telu", "identity")
    ]
    assert all(float(r["latency_s"]) > 0 and r["failure"] == "" for r in rows)


@pytest.mark.parametrize(
    ("request_", "says"),
    [
        (TimingRequest(elements="0"), "elements must be a positive integer"),
        (TimingRequest(elements="many"), "elements must be a positive integer"),
        (TimingRequest(elements="1" * 5000), "elements must be a positive integer"),
        (TimingRequest(elements=","), "no elements given"),
        (TimingRequest(dtype="float23"), "unknown dtype"),
        (TimingRequest(workers=2), "too few"),
        (TimingRequest(rounds=0), "rounds must be"),
        (TimingRequest(elements="²"), "elements must be a positive integer, not '²'"),
        (TimingRequest(elements=""), "no elements given"),
        (TimingRequest(seed=-1), "--seed -1 is out of range"),
        (TimingRequest(timeout=0.0), "--timeout must be positive"),
        (TimingRequest(timeout=math.inf), "--timeout must be positive"),
        (TimingRequest(device="foo"), "unknown device 'foo'"),
        (TimingRequest(threads=0), "threads must be a positive integer"),
    ],
)
def test_timing_mistakes(request_: TimingRequest, says: str) -> None:
    with pytest.raises(FfnbenchError, match=says):
        plan_timing(replace(request_, activations="gelu"))


def test_a_size_that_stands_twice_is_measured_once() -> None:
    plan = plan_timing(TimingRequest(activations="gelu", elements="5,05", dtype="fp32,float32"))
    (group,) = groups_of(plan)
    assert [len(group.forward), len(group.backward)] == [2, 2]
    assert len(plan.cases) == len({case.label for case in plan.cases}) == 4


def test_the_reference_is_relu_and_nothing_else() -> None:
    with pytest.raises(FfnbenchError, match="'relu' is the reference"):
        plan_timing(TimingRequest(activations="relu=gelu"))


def test_a_worker_lost_on_the_way_is_told_once() -> None:
    gone = lost("crash", "the process ended")
    calls = iter([None] * 30 + [gone])

    def seconds(label: str, worker: int, number: int) -> float:
        if problem := next(calls, None):
            raise problem
        return 0.01

    report = told("gelu", FakeLaunch(seconds), elements="10,20", workers=3, rounds=2)
    shown = [plain(table, 200) for table in tables_of(report)]
    assert "".join(shown).count("was lost") == 1


def interrupted_at(place: tuple[int, int], problem: BaseException):
    def seconds(label: str, worker: int, number: int) -> float:
        if (worker, number) >= place:
            raise problem
        return 0.01

    return FakeLaunch(seconds)


def test_an_interrupted_run_shows_what_was_measured_and_says_so() -> None:
    launch = interrupted_at((2, 3), KeyboardInterrupt())
    report = told("gelu", launch, elements="10,20", workers=5, rounds=6)
    assert report.interrupted
    first, last = (plain(table, 120) for table in tables_of(report))
    assert "3 fresh processes x 3-6 shuffled rounds" in first
    assert "ended early, in worker 3" in last


def test_within_the_first_worker_the_rounds_are_fewer_as_well() -> None:
    launch = interrupted_at((0, 2), KeyboardInterrupt())
    report = told("gelu", launch, elements="10", workers=5, rounds=6)
    text = plain(tables_of(report)[0], 120)
    assert "1 fresh process x 2 shuffled rounds" in text
    assert "failed" not in text


def test_before_anything_was_measured_there_is_nothing_to_show() -> None:
    report = told("gelu", interrupted_at((0, -1), KeyboardInterrupt()))
    with pytest.raises(Interrupted):
        report_view(report)


@pytest.mark.parametrize("how", ["stopped", "failed", "interrupted"])
def test_the_tables_come_before_the_complaint(how: str, monkeypatch, capsys, on_machine) -> None:
    trouble, launch = {}, FakeLaunch()
    if how == "failed":
        trouble = {
            ("open", f"{name} float32 9 {m}"): "oom" for name in ("relu", "gelu") for m in ("forward", "backward")
        }
        launch = FakeLaunch(trouble=trouble)
    if how == "interrupted":
        launch = interrupted_at((1, 0), KeyboardInterrupt())
    if how == "stopped":
        real = measuring.run
        monkeypatch.setattr(
            measuring, "run", lambda *a, **k: replace(real(*a, **k), stopped="workers are lost again and again")
        )
    on_machine(launch)
    argv = ["ffnbench", "activations", "--time", "--activations", "gelu", "--elements", "9", "-q"]
    monkeypatch.setattr(sys, "argv", argv)
    with pytest.raises(SystemExit) as caught:
        cli.main()
    out, err = capsys.readouterr()
    assert caught.value.code == {"stopped": 3, "failed": 3, "interrupted": 130}[how]
    assert out.startswith("The operation itself: 9 elements")
    said = {"stopped": "workers are lost again and again", "failed": "every case failed", "interrupted": ""}[how]
    assert said in err


def test_markdown_holds_every_column_of_every_table(monkeypatch, capsys, on_machine) -> None:
    on_machine(FakeLaunch())
    argv = ["activations", "--time", "--quick", "--activations", "gelu", "--elements", "9,10", "-f", "markdown", "-q"]
    monkeypatch.setattr(sys, "argv", ["ffnbench", *argv])
    with pytest.raises(SystemExit):
        cli.main()
    lines = capsys.readouterr().out.splitlines()
    heads = [i for i, line in enumerate(lines) if line.startswith("| activation")]
    assert len(heads) == 2
    for i in heads:
        assert lines[i - 1] == ""  # else the line above would be taken for the heading
        assert set(lines[i + 1]) <= set("|:- ")
        assert "forward" in lines[i]
        assert "backward" in lines[i]
        assert {line.count("|") for line in lines[i : i + 4]} == {6}
