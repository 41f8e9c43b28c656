"""Time against error: rows of several precisions on a scripted machine, whose times and
errors are known.
"""

from __future__ import annotations

import csv
import io
import random
from typing import Any

import pytest
from fake_machine import FakeLaunch, measure, prepare
from paths import ROOT

from ffnbench.common.errors import FfnbenchError
from ffnbench.compare.table import compare_frame
from ffnbench.messages import Check, Values
from ffnbench.planning.compare import plan_compare
from ffnbench.report.pictures.trade_off import trade_off_figure
from ffnbench.report.shown_report import plain
from ffnbench.report.sweep_sentences import trade_off_line
from ffnbench.request import CompareRequest
from ffnbench.result import Report

# milliseconds and error of each row: int8-dynamic is as exact as int8 and slower; int4
# is fastest, at an error
ROWS = {
    "none": (10.0, 4e-7),
    "int8": (4.0, 7e-3),
    "int8-dynamic": (5.0, 7.5e-3),
    "int4": (2.5, 0.12),
    "onednn": (6.0, 9e-7),
}
BACKENDS = ("eager ", "onednn ")


def row_of(label: str) -> str:
    return next(
        (name for name in sorted(ROWS, key=len, reverse=True) if name in label), "none"
    )


def measured(trouble: dict[Any, Any] | None = None, **changed: Any) -> Report:
    dice = random.Random(4)

    def seconds(label: str, worker: int, number: int) -> float:
        return ROWS[row_of(label)][0] * 1e-3 * dice.gauss(1, 0.002)

    options = {
        "variants": "swiglu",
        "backend": "eager,onednn",
        "weights": "none,int8,int8-dynamic,int4",
        "workers": 5,
    }
    request = CompareRequest(
        **{**options, "rounds": 6, "device": "cpu", "threads": 1} | changed
    )
    prepared = prepare(request)
    labels = [case.label for case in prepared.plan.cases]
    errors = {
        (Check, label): Values(values={"error": ROWS[row_of(label)][1]})
        for label in labels
    }
    return measure(
        prepared, launch=FakeLaunch(seconds, trouble=errors | (trouble or {}))
    )


def test_every_backend_comes_with_every_way_to_hold_weights() -> None:
    labels = [case.label for case in measured().plan.cases]
    ways = [
        "",
        "@weights=int8",
        "@weights=int8-dynamic",
        "@weights=int4",
        "@backend=onednn",
        "@backend=onednn@weights=int8",
        "@backend=onednn@weights=int8-dynamic",
        "@backend=onednn@weights=int4",
    ]
    assert labels == [f"swiglu{way}" for way in ways]
    own = plan_compare(
        CompareRequest(
            variants="swiglu@weights=int8,relu", weights="none,int4", threads=1
        )
    )
    assert [case.label for case in own.cases] == [
        "swiglu@weights=int8",
        "relu",
        "relu@weights=int4",
    ]
    runtimes = plan_compare(
        CompareRequest(variants="swiglu", backend="eager,ort,openvino", threads=1)
    )
    assert [case.arm.name for case in runtimes.cases] == ["", "ort", "openvino"]
    assert {
        (case.arm.python, case.arm.source, case.arm.env) for case in runtimes.cases
    } == {("", "", ())}


def test_the_front_is_what_nothing_beats_in_both() -> None:
    report = measured()
    [trade_off] = report.figures.trade_offs
    assert set(trade_off.front) == {
        "swiglu@weights=int8",
        "swiglu@weights=int4",
        "swiglu@backend=onednn",
    }
    assert trade_off.fastest == "swiglu@weights=int4"
    assert trade_off.fastest_of_small_error == "swiglu@weights=int8"
    frame = report.frame().set_index("label")
    assert frame["pareto_front"].to_dict() == {
        label: label in trade_off.front for label in frame.index
    }
    assert frame["error"]["swiglu@weights=int4"] == 0.12


def test_one_sentence_and_the_table_say_it() -> None:
    report = measured()
    [line] = trade_off_line(report)
    assert line.startswith("int4 by eager is 4.0")
    assert (
        " times as fast as eager, with an error of 0.12, and int8 by eager 2.499"
        in line
    )
    text = plain(compare_frame(report), 80)
    rows = [line.split()[:2] for line in text.splitlines() if line.startswith(BACKENDS)]
    weights = ["none", "int8", "int8-dynamic", "int4"]
    assert rows == [[name, held] for name in ("eager", "onednn") for held in weights]
    assert text.startswith("swiglu, d_model 768")
    swept = measured(seq_len="1,16")
    assert len(swept.figures.trade_offs) == 2
    [line] = trade_off_line(swept)
    assert line.count("at seq_len") == 2


@pytest.mark.parametrize("width", [60, 80, 120])
def test_what_a_deployer_asks_stands_in_the_table_at_every_width(width: int) -> None:
    lines = plain(compare_frame(measured()), width).splitlines()
    [heading] = [line for line in lines if line.startswith("backend")]
    above = lines[lines.index(heading) - 1].split()
    assert {"backend", "format", "error", "k/s", "*", "ms"} <= set(heading.split())
    assert {"tokens", "latency"} <= set(above)
    assert max(map(len, lines)) <= width
    text = " ".join(" ".join(lines).split())
    assert "d_ff 2,048" in text
    assert (
        "int8 by onednn, int8-dynamic by onednn, int4 by onednn: onednn has no" in text
    )


def test_a_row_keeps_the_name_that_it_was_given() -> None:
    report = measured(
        variants="mine=swiglu@backend=onednn,swiglu",
        backend="eager",
        weights="none,int4",
    )
    text = plain(compare_frame(report), 80)
    assert [
        line.split()[:3]
        for line in text.splitlines()
        if line.startswith(("mine ", "swiglu "))
    ] == [
        ["mine", "onednn", "none"],
        ["mine", "onednn", "int4"],
        ["swiglu", "eager", "none"],
        ["swiglu", "eager", "int4"],
    ]


def test_errors_have_an_interval_over_processes() -> None:
    """By hand: mean 0.12 and standard deviation 0.01 of 5 errors, Student's quantile
    2.776 of 4 degrees of freedom.
    """
    step = 0.01 / 2.5**0.5
    errors = iter([0.12 + step * place for place in (-2, -1, 0, 1, 2)])
    answers = {
        (Check, "swiglu@weights=int4"): lambda worker: Values(
            values={"error": next(errors), "largest_error": 1.0}
        )
    }
    report = measured(backend="eager", weights="none,int4", trouble=answers)
    row = report.frame().set_index("label").loc["swiglu@weights=int4"]
    assert row["error"] == pytest.approx(0.12)
    half = 2.776 * 0.01 / 5**0.5
    assert row["error_low"] == pytest.approx(0.12 - half, rel=1e-3)
    assert row["error_high"] == pytest.approx(0.12 + half, rel=1e-3)
    assert row["largest_error"] == 1.0
    picture = trade_off_figure(report)
    uprights = [line.get_segments()[0] for line in picture.axes[0].collections]
    assert [
        sorted(end[1] for end in ends) for ends in uprights if ends[0][1] > 0.01
    ] == [pytest.approx([0.12 - half, 0.12 + half], rel=1e-3)]


def test_rows_of_one_precision_have_no_trade_off() -> None:
    assert measured(weights="none").figures.trade_offs == ()
    assert measured(weights="int8", backend="eager").figures.trade_offs == ()
    lost = measured(weights="none,int8", backend="eager", metrics="memory")
    assert lost.figures.trade_offs == ()


def test_a_runtime_that_is_not_installed_names_its_extra(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("ffnbench.backends.find_spec", lambda name: None)
    with pytest.raises(
        FfnbenchError,
        match="onnxruntime and onnx are not installed",
    ) as problem:
        plan_compare(CompareRequest(variants="swiglu", backend="ort", threads=1))
    assert problem.value.hint == "pip install 'ffnbench[ort]'"
    plan = plan_compare(
        CompareRequest(variants="swiglu", backend="eager,ort", threads=1)
    )
    assert any("pip install 'ffnbench[ort]'" in note.text for note in plan.notes)
    elsewhere = plan_compare(
        CompareRequest(variants="swiglu@backend=ort@python=/env/python", threads=1)
    )
    assert elsewhere.cases[0].arm.python == "/env/python"


def test_weights_of_code_that_is_said_to_be_a_form_are_counted_as_those_of_the_form(
    in_process,
) -> None:
    """By hand: 2 matrices of 64 x 256 in 8 bits, a scale of 4 bytes for each of 256 +
    64 rows.
    """
    code, out, _ = in_process(
        "cost", f"mine={ROOT}/tests/hostile.py:Plain@like=relu,relu", "--d-model", "64", "--weights", "none,int8",
        "--columns", "label,weight_bytes", "-f", "csv",
    )  # fmt: skip
    assert code == 0
    weights = {
        row["label"]: int(row["weight_bytes"])
        for row in csv.DictReader(io.StringIO(out))
    }
    assert weights["relu@weights=int8"] == 2 * 64 * 256 + 4 * (256 + 64)
    biases = weights["mine"] - weights["relu"]
    assert weights["mine@weights=int8"] == weights["relu@weights=int8"] + biases


def test_chosen_columns_leave_rows_that_can_be_told_apart(on_fakes) -> None:
    """By the format of their weights, whatever is chosen beside it."""
    _, out, _ = on_fakes(
        "compare swiglu relu --d-model 64 --match none --weights none,int8 --quick"
        " --columns weight_bytes -q"
    )
    for name in ("swiglu", "relu"):
        for weights in ("none", "int8"):
            assert out.count(f" {name} eager {weights} ") == 1
