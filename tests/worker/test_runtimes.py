"""The same function by other runtimes and in fewer bits: errors beside float64 written
here, bytes counted by hand.
"""

from __future__ import annotations

import pytest
import torch
from processor import HAS_8_BIT_PRODUCTS
from torch import Tensor

from ffnbench.common.choices import Backend, Weights
from ffnbench.ffn.activations import ACTIVATIONS
from ffnbench.ffn.modules import reference_output
from ffnbench.ffn.spec import FFNSpec, Gate, Norm, act
from ffnbench.plan.backends import lack_of_weights
from ffnbench.plan.plan import Workload
from ffnbench.worker.backends import quantised
from ffnbench.worker.backends.building import build_module
from ffnbench.worker.backends.running import implementation_of
from ffnbench.worker.subject import Subject, subject_of

SWIGLU = FFNSpec(d_model=768, d_ff=2048, activation="silu", gate=Gate.INNER)
# relative Frobenius errors of this form on uniform weights, measured with torch 2.13
# and ONNX Runtime 1.30 apart from this project: the smallest and the largest of groups
# of 32 and 128
MEASURED = {
    Weights.INT8: (6.5e-3, 1.75e-2),
    Weights.INT8_DYNAMIC: (2.9e-2, 3.4e-2),
    Weights.INT4: (0.107, 0.126),
}


def work(**more: object) -> Workload:
    given = {
        "batch": 2,
        "seq_len": 8,
        "dtype": "float32",
        "device": "cpu",
        "mode": "forward",
        "threads": 1,
    }
    return Workload(**{**given, **more})  # type: ignore[arg-type]


def prepared(spec: FFNSpec, **more: object) -> tuple[Subject, dict[str, float | None]]:
    workload = work(**more)
    torch.manual_seed(3)
    module = build_module(spec, dtype=getattr(torch, workload.dtype))
    subject = subject_of(module, workload, spec.d_model, 5)
    return subject, dict(
        implementation_of(workload.backend).prepare(subject, workload).values
    )


def error(y: Tensor, expected: Tensor) -> float:
    return float(((y.double() - expected).norm() / expected.norm()).detach())


@pytest.mark.parametrize("backend", [Backend.ORT, Backend.OPENVINO])
@pytest.mark.parametrize("gate", Gate)
def test_every_activation_is_the_same_function_in_another_runtime(
    backend: Backend, gate: Gate
) -> None:
    for row in ACTIVATIONS:
        spec = FFNSpec(
            d_model=48,
            d_ff=64,
            activation=row.name,
            gate=gate,
            bias=True,
            parameters=tuple((name, 2.0) for name, _ in row.parameters),
            up=act("clamp", limit=0.1, offset=1) if gate is Gate.INNER else None,
            subnorm={"silu": Norm.RMS, "gelu": Norm.LAYER}.get(row.name),
        )
        subject, values = prepared(spec, backend=backend)
        with torch.no_grad():
            y = subject.call()
        assert y.shape == subject.x.shape
        expected = reference_output(subject.module, subject.x)
        assert error(y, expected) < 2e-6, row.name
        assert values["held_bytes"] == sum(
            p.nbytes for p in subject.module.parameters()
        )


@pytest.mark.parametrize("backend", [Backend.EAGER, Backend.ORT, Backend.OPENVINO])
@pytest.mark.parametrize("weights", list(MEASURED))
@pytest.mark.parametrize("group", [32, 128])
def test_the_error_is_that_of_the_precision(
    backend: Backend, weights: Weights, group: int
) -> None:
    if weights is Weights.INT8_DYNAMIC and not HAS_8_BIT_PRODUCTS:
        pytest.skip("8-bit products of this processor saturate")
    subject, _ = prepared(SWIGLU, backend=backend, weights=weights, group=group)
    low, high = MEASURED[weights]
    expected = reference_output(subject.module, subject.x)
    assert 0.9 * low < error(subject.call(), expected) < 1.1 * high
    larger = 3 * subject.x
    expected = reference_output(subject.module, larger)
    assert error(subject.forward(larger), expected) < 0.2


@pytest.mark.parametrize(("d_model", "d_ff"), [(128, 256), (512, 1024), (768, 512)])
def test_int8_beside_bfloat16_does_not_wrap_around(d_model: int, d_ff: int) -> None:
    """A scale that bfloat16 rounds down makes 128 of the largest weight of a row, and
    -128 in 8 bits: the errors were 0.28, 0.08 and 0.014.
    """
    spec = FFNSpec(d_model=d_model, d_ff=d_ff, activation="relu")
    workload = work(weights=Weights.INT8, dtype="bfloat16")
    subject, _ = prepared(spec, weights=Weights.INT8, dtype="bfloat16")
    implementation_of(Backend.EAGER).prepare(subject, workload)
    expected = reference_output(subject.module, subject.x)
    assert error(subject.call(), expected) < 0.011


@pytest.mark.parametrize(
    ("weights", "dtype", "d_ff", "why"),
    [
        (
            Weights.INT8,
            "bfloat16",
            680,
            "multiples of 16 columns, and a matrix has 680",
        ),
        (Weights.INT8, "bfloat16", 688, ""),
        (Weights.INT8, "float16", 680, ""),
        (Weights.INT8, "float64", 688, "does not compute in float64"),
        (Weights.INT4, "float64", 704, "does not compute in float64"),
    ],
)
def test_what_torch_would_compute_wrong_is_refused(
    weights: Weights, dtype: str, d_ff: int, why: str
) -> None:
    """The product of int8 and bfloat16 reads beyond other rows: a crash, or 1e33."""
    spec = FFNSpec(d_model=64, d_ff=d_ff, activation="relu")
    problem, _ = lack_of_weights(spec, work(weights=weights, dtype=dtype))
    assert why in problem
    assert bool(why) == bool(problem)


def test_bytes_are_those_counted_by_hand() -> None:
    """3 matrices of 768 x 2048: elements, and the scales beside them."""
    elements, rows = 3 * 768 * 2048, 2048 + 2048 + 768
    by_hand = {
        (Backend.EAGER, Weights.INT8): elements + 4 * rows,
        (Backend.EAGER, Weights.INT8_DYNAMIC): elements + 12 * rows,
        (Backend.EAGER, Weights.INT4): elements // 2 + 8 * elements // 64,
        (Backend.ORT, Weights.INT8): elements + 4 * elements // 64,
        (Backend.ORT, Weights.INT8_DYNAMIC): elements + 4 * rows,
        (Backend.OPENVINO, Weights.INT4): elements // 2 + 4 * elements // 64,
    }
    for (backend, weights), expected in by_hand.items():
        _, values = prepared(SWIGLU, backend=backend, weights=weights, group=64)
        assert values["held_bytes"] == expected, (backend, weights)
    held = quantised.quantised_copy(build_module(SWIGLU), Weights.INT8, 32)
    assert (
        sum(b.nbytes for b in (held.up.quantised, held.up.scale))
        == 768 * 2048 + 4 * 2048
    )
