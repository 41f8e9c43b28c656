"""Whatever is passed for an argument, an answer or one short error comes out."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fake_machine import FakeLaunch, KnownProber
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from paths import ROOT
from shell import ffnbench as in_shell

import ffnbench

RUN = str(ROOT / "tests" / "golden" / "runs" / "baseline.json")
SMALL = {"d_model": 8, "seq_len": 2, "threads": 1, "workers": 3, "rounds": 2}
# arguments with which each function answers
ANSWERED: dict[str, dict[str, Any]] = {
    "compare": {"variants": ["relu", "gelu"], **SMALL},
    "cost": {"variants": "relu,swiglu", "d_model": 8},
    "block": {"variants": "swiglu", "d_model": 64, "cost_only": True},
    "check": {"baseline": RUN, "exact_only": True},
    "ab": {"variant": "mypkg.mlp:SwiGLU", "d_model": 8},
    "activations": {"activations": "relu,gelu"},
    "inspect": {"model": "gpt2"},
    "build": {"variants": "swiglu", "d_model": 8},
}
ODD = (
    None, True, False, 0, 1, -1, 7, 2**40, 10**30, 0.5, -0.0, float("nan"), float("inf"), 1e308, "", " ", ",", "1", "-1",
    "1.5", "1e3", "nan", "8,16", "1,,2", "4..16", "16..4", "..", "1..", "1..8/0", "2Ki", "5%", "90s", "1h30m", "x" * 300, "é",
    "\x00", "\ud800", "\n", "../x", "relu", "swiglu@d_ff=16", "swiglu@moe=4x2", "relu@x", "@", "a=b=c", "none", "all", "bf16",
    "cuda", "cpu", "cpu:3", "train", "flops", "ort", "int8", (), [], {}, [[]], [None], [8, 16], ("8", 16), {"a": "relu"},
    {"latency": "5%"}, {"latency": 5}, range(3), iter([8]), object(), Exception, len, print, torch.float16, torch.nn.Linear,
    torch.nn.Identity(), torch.device("cpu"), np.int64(8), np.float32(2), np.array([8, 16]), np.array(8), torch.tensor(8), Path("nowhere"), b"8", 3j,
)  # fmt: skip


def arguments_of(name: str) -> list[str]:
    return [*inspect.signature(getattr(ffnbench, name)).parameters]


@st.composite
def calls(draw: st.DrawFn) -> tuple[str, dict[str, Any]]:
    """A call that is answered, with one or two of its arguments changed."""
    name = draw(st.sampled_from(sorted(ANSWERED)))
    passed = dict(ANSWERED[name])
    for _ in range(draw(st.integers(1, 2))):
        argument = draw(st.sampled_from(arguments_of(name)))
        passed[argument] = draw(st.sampled_from(ODD) | st.text(max_size=6))
    return name, passed


@pytest.fixture
def on_fakes_here(on_machine, made_up_clock, monkeypatch, tmp_path: Path) -> None:
    on_machine(FakeLaunch(), KnownProber)
    monkeypatch.chdir(tmp_path)


@settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(call=calls())
def test_any_value_is_answered_or_is_one_short_error(on_fakes_here, call) -> None:
    name, passed = call
    try:
        getattr(ffnbench, name)(**passed)
    except ffnbench.Error as problem:
        told = problem
    else:
        return
    assert isinstance(told, ValueError | TypeError) or told.exit_code == 3
    assert told.message
    assert "\n" not in told.message.strip()


@pytest.mark.parametrize(
    ("words", "passed"),
    [
        ("--d-model 0", {"d_model": 0}),
        ("--preset nowhere", {"preset": "nowhere"}),
    ],
)
def test_a_mistake_reads_the_same_from_the_shell_and_from_python(
    words: str, passed: dict[str, Any]
) -> None:
    told = in_shell("cost", *words.split())
    with pytest.raises(ValueError) as caught:
        ffnbench.cost(**passed)
    assert told.returncode == 2
    assert told.stderr == f"error: {caught.value}\n"
