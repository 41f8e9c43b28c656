"""Time against error: rows of several precisions on a scripted machine, whose times and
errors are known.
"""

from __future__ import annotations

import random
from typing import Any

import pytest
from fake_machine import FakeLaunch, measure, planned, prepare

from ffnbench.common.errors import FfnbenchError
from ffnbench.record.result import Report

# milliseconds and error of each row: int8-dynamic is as exact as int8 and slower; int4
# is fastest, at an error
ROWS = {
    "none": (10.0, 4e-7),
    "int8": (4.0, 7e-3),
    "int8-dynamic": (5.0, 7.5e-3),
    "int4": (2.5, 0.12),
    "onednn": (6.0, 9e-7),
}


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
    request = dict(**{**options, "rounds": 6, "device": "cpu", "threads": 1} | changed)
    prepared = prepare(**request)
    labels = [case.label for case in prepared.plan.cases]
    errors = {("check", label): {"error": ROWS[row_of(label)][1]} for label in labels}
    return measure(
        prepared, launch=FakeLaunch(seconds, trouble=errors | (trouble or {}))
    )


def test_the_front_is_what_nothing_beats_in_both() -> None:
    report = measured()
    [trade_off] = report.figures.trade_offs
    assert set(trade_off.front) == {
        "swiglu@weights=int8",
        "swiglu@weights=int4",
        "swiglu@backend=onednn",
    }
    frame = report.frame().set_index("label")
    assert frame["pareto_front"].to_dict() == {
        label: label in trade_off.front for label in frame.index
    }
    assert frame["error"]["swiglu@weights=int4"] == 0.12


def test_a_runtime_that_is_not_installed_names_its_extra(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("ffnbench.plan.backends.find_spec", lambda name: None)
    with pytest.raises(
        FfnbenchError,
        match="onnxruntime and onnx are not installed",
    ) as problem:
        planned(variants="swiglu", backend="ort", threads=1)
    assert problem.value.hint == "pip install 'ffnbench[ort]'"
    prepared = prepare("swiglu", backend="eager,ort", quick=True)
    [failure] = measure(prepared, launch=FakeLaunch()).failures
    assert failure.case == "swiglu@backend=ort"
    assert "pip install 'ffnbench[ort]'" in failure.message
