"""Weights with outliers in few bits: what is right is no mismatch, whatever the
weights, and a kernel that is wrong is one. What is wrong is put into the operations of
torch and into the graph that a runtime reads, so that nothing here knows how errors are
judged.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from fake_machine import KnownProber, planned
from onnx import numpy_helper
from processor import HAS_8_BIT_PRODUCTS, HAS_AVX512
from torch import Tensor, nn

from ffnbench.worker.backends.building import build_module
from ffnbench.worker.backends.running import implementation_of
from ffnbench.worker.correctness import Correctness, Mismatch
from ffnbench.worker.subject import subject_of

# the sets of weights of each backend: one of OpenVINO takes 0.1 s to
# compile
SETS = {"openvino": 3}
MOST_SETS = 8
FORMATS = ("int8", "int8-dynamic", "int4")
ROWS = [
    *((backend, weights, "float32") for backend in ("eager", "ort", "openvino") for weights in FORMATS),
    ("eager", "int8", "bfloat16"), ("eager", "int4", "bfloat16"),
    ("eager", "int8", "float16"), ("eager", "int4", "float16"),
    ("openvino", "int8", "bfloat16"), ("openvino", "int4", "bfloat16"),
    *((backend, "none", dtype) for backend in ("eager", "onednn") for dtype in ("float32", "bfloat16")),
    ("eager", "none", "float16"), ("ort", "none", "float32"), ("openvino", "none", "bfloat16"),
]  # fmt: skip


def sets_of(backend: str) -> range:
    return range(SETS.get(backend, MOST_SETS))


def with_outliers(weight: Tensor, dice: random.Random) -> None:
    """N(0, 0.02); cells, columns, rows or one number 3 to 30 times as large."""
    generator = torch.Generator().manual_seed(dice.randrange(1 << 30))
    weight.copy_(0.02 * torch.randn(weight.shape, generator=generator))
    rows, columns = weight.shape
    factor = dice.uniform(3, 30)
    kind = dice.choice(("cells", "columns", "rows", "one"))
    if kind == "cells":
        weight[torch.rand(weight.shape, generator=generator) < 0.002] *= factor
    elif kind == "columns":
        weight[:, dice.sample(range(columns), max(1, columns // 100))] *= factor
    elif kind == "rows":
        weight[dice.sample(range(rows), max(1, rows // 50))] *= factor
    else:
        weight[dice.randrange(rows), dice.randrange(columns)] *= factor


def checked(seed: int, backend: str, weights: str, dtype: str, **sizes: Any) -> float:
    """The error of a row with the weights of a seed; raises Mismatch."""
    dice = random.Random(seed)
    gated = dice.random() < 0.5
    width, tokens = dice.choice((64, 128)), dice.choice((4, 16, 40))
    request = dict(**{"variants": dice.choice(("swiglu", "geglu")) if gated else dice.choice(("relu", "gelu")),
           "d_model": width, "d_ff": 2 * width, "seq_len": tokens, "match": "none", "backend": backend,
           "weights": weights, "dtype": dtype, "threads": 1, "device": "cpu"} | sizes)  # fmt: skip
    [case] = planned(**request, probe=KnownProber()).cases
    module = build_module(case.ffn, dtype=torch.float32)
    with torch.no_grad():
        for part in module.modules():
            if isinstance(part, nn.Linear):
                with_outliers(part.weight, dice)
    module = module.to(getattr(torch, dtype))
    subject = subject_of(module, case.workload, case.ffn.d_model, seed)
    implementation_of(case.workload.backend).prepare(subject, case.workload)
    check = Correctness(case, seed)
    check.check(subject, seed)
    assert check.output_error is not None
    return check.output_error


@pytest.mark.parametrize(("backend", "weights", "dtype"), ROWS)
def test_what_is_right_is_no_mismatch_whatever_the_weights(
    backend: str, weights: str, dtype: str
) -> None:
    if weights == "int8-dynamic" and not HAS_8_BIT_PRODUCTS:
        pytest.skip("8-bit products of this processor saturate")
    if (backend, dtype) == ("onednn", "bfloat16") and not HAS_AVX512:
        pytest.skip("oneDNN has no bfloat16 products for this processor")
    errors = [checked(seed, backend, weights, dtype) for seed in sets_of(backend)]
    if weights == "int4" and dtype == "float32":
        assert max(errors) > 0.2  # as outliers make them


@contextmanager
def faulty_torch(patch: pytest.MonkeyPatch) -> Iterator[None]:
    """torch whose products of weights in few bits have a zero point that is off by
    one: of all faults of a kernel the one that changes least.
    """
    int8, int4 = (
        torch.ops.aten._weight_int8pack_mm,
        torch.ops.aten._weight_int4pack_mm_for_cpu,
    )
    prepack = torch.ops.quantized.linear_prepack

    def int8_product(x: Tensor, steps: Tensor, scale: Tensor) -> Tensor:
        return int8(x, (steps.int() + 1).clamp(-128, 127).to(torch.int8), scale)

    def int4_product(x: Tensor, packed: Tensor, group: int, numbers: Tensor) -> Tensor:
        scale, middle = numbers[..., 0], numbers[..., 1]
        off = torch.stack([scale, middle + scale], -1).contiguous()
        return int4(x, packed, group, off)

    def packed_with_fault(steps: Tensor, bias: Tensor | None) -> Any:
        wrong = torch._make_per_channel_quantized_tensor(
            steps.int_repr(),
            steps.q_per_channel_scales(),
            steps.q_per_channel_zero_points() + 1,
            0,
        )
        return prepack(wrong, bias)

    with patch.context() as patched:
        patched.setattr(torch.ops.aten, "_weight_int8pack_mm", int8_product)
        patched.setattr(torch.ops.aten, "_weight_int4pack_mm_for_cpu", int4_product)
        patched.setattr(torch.ops.quantized, "linear_prepack", packed_with_fault)
        yield


def faulty_graph(model: bytes) -> bytes:
    """The graph with the same fault in its products of weights in few bits."""
    graph = onnx.load_from_string(model)
    constants = {one.name: one for one in graph.graph.initializer}

    def change(name: str, step: Callable[[Any], Any]) -> None:
        array = np.array(numpy_helper.to_array(constants[name]))
        constants[name].CopyFrom(numpy_helper.from_array(step(array), name))

    def plus_one(steps: Any) -> Any:
        limits = np.iinfo(steps.dtype)
        return np.clip(steps.astype(int) + 1, limits.min, limits.max).astype(
            steps.dtype
        )

    def plus_one_in_4_bits(steps: Any) -> Any:
        low, high = np.minimum((steps & 15) + 1, 15), np.minimum((steps >> 4) + 1, 15)
        return (low | (high << 4)).astype(np.uint8)

    for node in graph.graph.node:
        if node.op_type == "MatMulNBits":
            bits = next(a.i for a in node.attribute if a.name == "bits")
            change(node.input[1], plus_one if bits == 8 else plus_one_in_4_bits)
        elif node.op_type == "MatMulInteger":
            change(node.input[1], plus_one)
    return graph.SerializeToString()


@pytest.mark.parametrize("weights", FORMATS)
@pytest.mark.parametrize("backend", ["eager", "ort", "openvino"])
def test_a_wrong_kernel_is_a_mismatch_whatever_the_weights(
    monkeypatch: pytest.MonkeyPatch, backend: str, weights: str
) -> None:
    checked(0, backend, weights, "float32")  # this loads the runtime
    if backend == "ort":
        runtime = sys.modules["onnxruntime"]
        session = runtime.InferenceSession

        def faulty_session(model: bytes, *more: Any, **named: Any) -> Any:
            return session(faulty_graph(model), *more, **named)

        monkeypatch.setattr(runtime, "InferenceSession", faulty_session)
    elif backend == "openvino":
        core = sys.modules["openvino"].Core
        read = core.read_model
        monkeypatch.setattr(
            core, "read_model", lambda self, model: read(self, faulty_graph(model))
        )
    with faulty_torch(monkeypatch):
        for seed in sets_of(backend):
            with pytest.raises(Mismatch, match=f"which rounding to {weights} does not"):
                checked(seed, backend, weights, "float32")
