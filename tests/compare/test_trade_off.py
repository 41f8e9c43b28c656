"""Time against error: rows of several precisions on a scripted machine, whose times and
errors are known.
"""

from __future__ import annotations

import pytest
from fake_machine import FakeLaunch, measure, planned, prepare

from ffnbench.common.errors import FfnbenchError


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
