"""`--sort` and `--columns`: what is shown, in which order, and names that nobody
has.
"""

from __future__ import annotations

import csv
import io

import pytest
from fake_machine import FakeLaunch, measure, prepare
from frames import titles

from ffnbench import cost
from ffnbench.common.errors import FfnbenchError
from ffnbench.messages import Open
from ffnbench.report.arrangement import Arrangement
from ffnbench.report.shown_report import refuse_unknown_columns, report_view
from ffnbench.request import BlockRequest, CompareRequest, TimingRequest
from ffnbench.result import Report

SECONDS = {"relu": 0.002, "gelu": 0.003, "swiglu": 0.001}


@pytest.fixture(scope="module")
def report() -> Report:
    request = CompareRequest(
        variants="relu,gelu,swiglu", d_model=64, threads=2, quick=True
    )
    launch = FakeLaunch(
        lambda label, worker, number: SECONDS[label] * (1 + 0.001 * worker),
        {(Open, "gelu"): "oom"},
    )
    return measure(prepare(request), launch=launch)


def labels(report: Report, **how: str) -> tuple[list[str], list[str]]:
    """Of the table and of the CSV."""
    view = report_view(report).arranged(Arrangement(**how))
    written = list(csv.DictReader(io.StringIO(view.stdout["csv"]())))
    return [row["label"] for row in view.table.rows], [row["label"] for row in written]


@pytest.mark.parametrize(
    ("sort", "order"),
    [
        (
            "latency",
            ["swiglu", "relu", "gelu"],
        ),  # what failed has no latency, and stands last either way
        ("-latency", ["relu", "swiglu", "gelu"]),
        ("GFLOP/s", ["relu", "swiglu", "gelu"]),
        ("time vs relu", ["swiglu", "relu", "gelu"]),
        ("-d_ff", ["relu", "gelu", "swiglu"]),  # equals stay as they were
        ("", ["relu", "gelu", "swiglu"]),
    ],
)
def test_rows_are_sorted_in_the_table_and_in_the_csv(
    report: Report, sort: str, order: list[str]
) -> None:
    assert labels(report, sort=sort) == (order, order)
    assert report.plan.reference == "relu"
    assert (
        report_view(report).arranged(Arrangement(sort=sort)).stdout["json"]()
        == report_view(report).stdout["json"]()
    )


def test_only_the_columns_that_were_asked_for(report: Report) -> None:
    view = report_view(report).arranged(
        Arrangement(columns="params, time vs relu,latency_low_s,gflops")
    )
    assert titles(view.table) == [
        "variant",
        "params",
        "time vs relu",
        "latency_low_s",
        "GFLOP/s",
    ]
    assert (
        view.stdout["csv"]().splitlines()[0]
        == "label,params,ratio,latency_low_s,flops_per_s"
    )
    assert "| variant | params |" in view.stdout["markdown"]()
    usual = titles(report_view(report).table)
    more = report_view(report).arranged(Arrangement(columns="+total")).table
    assert titles(more) == usual
    assert (
        next(column.priority for column in more.columns if column.title == "total") == 1
    )


@pytest.mark.parametrize(
    "how", [{"sort": "latncy"}, {"columns": "params,latncy"}, {"columns": "+latncy"}]
)
def test_a_name_that_no_column_has_is_known_before_anything_is_measured(
    how: dict[str, str],
) -> None:
    start = cost("relu,gelu", d_model=64)
    with pytest.raises(FfnbenchError, match="no column is called 'latncy'") as caught:
        refuse_unknown_columns(start, Arrangement(**how))
    assert "did you mean 'latency'" in caught.value.hint
    refuse_unknown_columns(
        start,
        Arrangement(sort="latency", columns="act. peak,of ceiling,tokens,saved_bytes"),
    )


def test_tables_without_a_row_for_each_case_are_sorted_by_their_own_column() -> None:
    request = TimingRequest(
        activations="relu,gelu,silu", threads=1, quick=True, elements="1000"
    )
    took = {"relu": 3.0, "gelu": 1.0, "silu": 2.0}
    timed = measure(
        prepare(request),
        launch=FakeLaunch(
            lambda label, w, n: 1e-3 * took[label.split()[0]] * (1 + w / 1e3)
        ),
    )
    view = report_view(timed).arranged(Arrangement(sort="-latency"))
    assert [row["activation"] for row in view.table.rows] == [
        "relu",
        "silu",
        "gelu",
    ] * 2  # forward, backward
    block = prepare(
        BlockRequest(d_model=64, seq_len="64,512,128", threads=1)
    ).cost_report()
    view = report_view(block).arranged(Arrangement(sort="-seq_len", columns="FFN,KV"))
    assert [row["seq_len"] for row in view.table.rows] == [512, 128, 64]
    assert titles(view.table) == ["seq_len", "FFN", "KV"]


def test_a_column_that_the_table_lacks_is_written_as_everywhere(report: Report) -> None:
    """Bytes have their unit, and a name of programs stays where no table has
    another.
    """
    frame = (
        report_view(report)
        .arranged(Arrangement(columns="input_bytes,weight_bytes"))
        .table
    )
    assert titles(frame) == ["variant", "input_bytes", "weights"]
    assert [column.unit for column in frame.headings()] == ["", "", "KiB"]
