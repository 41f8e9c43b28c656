"""Closed form = module = tracer, over the whole grid of forms: the test that everything
else leans on.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from ffnbench.ffn.activations import ACTIVATIONS
from ffnbench.ffn.cost import cost, flops_elementwise, matrix_params
from ffnbench.ffn.modules import reference_output
from ffnbench.ffn.spec import FFNSpec, Gate
from ffnbench.plan import Workload
from ffnbench.worker import peak_memory
from ffnbench.worker import subject as subjects
from ffnbench.worker.backends.building import build_module

ACTIVATION_NAMES = [row.name for row in ACTIVATIONS]
D, H, TOKENS = 64, 176, 80
GRID = list(product(ACTIVATION_NAMES, Gate, [False, True]))
PREDICTED = [
    row for row in GRID if ACTIVATIONS.get(row[0]).steps is not None
]  # the others' bytes are measured only


def spec_of(
    activation: str,
    gate: Gate,
    bias: bool,
    d_model: int = D,
    d_ff: int = H,
    dropout: float = 0.0,
) -> FFNSpec:
    beta = 0.5 if ACTIVATIONS.get(activation).beta is not None else None
    return FFNSpec(
        d_model=d_model, d_ff=d_ff, activation=activation, gate=gate, bias=bias, beta=beta, dropout=dropout
    )  # fmt: skip


def cost_of(spec: FFNSpec, *, train: bool = False, dtype: str = "float32"):
    return cost(spec, tokens=TOKENS, dtype=dtype, train=train, device="cpu")


def subject_of(
    spec: FFNSpec, *, mode: str = "forward", dtype: str = "float32"
) -> subjects.Subject:
    torch.manual_seed(1)
    work = Workload(
        batch=2, seq_len=TOKENS // 2, dtype=dtype, device="cpu", mode=mode, threads=1
    )
    module = build_module(spec, dtype=getattr(torch, dtype))
    return subjects.subject_of(module, work, spec.d_model, seed=0)


@pytest.mark.parametrize("activation", ACTIVATION_NAMES)
def test_parameters_and_flops_are_the_modules_and_the_tracers(activation: str) -> None:
    for gate, bias in product(Gate, (False, True)):
        spec = spec_of(activation, gate, bias)
        found, usual = cost_of(spec), cost_of(spec_of(activation, gate, bias, D, 4 * D))
        with torch.device("meta"):
            module, x = build_module(spec), torch.randn(2, 40, D, requires_grad=True)
            with FlopCounterMode(display=False) as counter:
                y = module(x)
                forward = counter.get_total_flops()
                y.sum().backward()
        assert found.params == sum(p.numel() for p in module.parameters())
        assert (
            eval(found.params_formula.replace("^", "**"), {"d": D, "d_ff": H})
            == found.params
        )
        assert "4d" in usual.params_formula
        assert (
            eval(usual.params_formula.replace("^", "**").replace("4d", "4*d"), {"d": D})
            == usual.params
        )
        assert found.flops_forward * TOKENS == forward
        assert found.flops_backward * TOKENS == counter.get_total_flops() - forward


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("mode", ["forward", "train"])
@pytest.mark.parametrize(("activation", "gate", "bias"), PREDICTED)
def test_peak_and_saved_bytes_are_the_allocators(
    activation: str, gate: Gate, bias: bool, mode: str, dtype: str
) -> None:
    train = mode == "train"
    for d_model, d_ff in ((D, H), (96, 64)):  # wider than the model, and narrower
        spec = spec_of(activation, gate, bias, d_model, d_ff)
        subject, predicted = (
            subject_of(spec, mode=mode, dtype=dtype),
            cost_of(spec, train=train, dtype=dtype),
        )
        subject.call()
        assert peak_memory.peak_bytes(subject) == predicted.peak_bytes
        assert (
            peak_memory.saved_bytes(subject) if train else None
        ) == predicted.saved_bytes


@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16"])
@pytest.mark.parametrize(("limit", "offset"), [(7.0, 1.0), (0.1, 0.0), (None, 1.0)])
@pytest.mark.parametrize("activation", ["relu", "silu", "quick_gelu"])
def test_clamped_gates_are_counted_and_computed(
    activation: str, limit: float | None, offset: float, dtype: str
) -> None:
    for d_model, d_ff in ((D, H), (96, 64), (32, 512)):
        spec = replace(
            spec_of(activation, Gate.INNER, True, d_model, d_ff),
            limit=limit,
            up_offset=offset,
        )
        for mode in ("forward", "train"):
            subject, predicted = (
                subject_of(spec, mode=mode, dtype=dtype),
                cost_of(spec, train=mode == "train", dtype=dtype),
            )
            subject.call()
            assert peak_memory.peak_bytes(subject) == predicted.peak_bytes
        assert peak_memory.saved_bytes(subject) == predicted.saved_bytes
    y, expected = (
        subject.module(subject.x).detach().double(),
        reference_output(subject.module, subject.x),
    )
    assert (
        float((y - expected).norm() / expected.norm())
        < {"float64": 1e-13, "float32": 1e-5, "bfloat16": 2e-2}[dtype]
    )


def test_the_clamped_gate_of_gpt_oss_has_its_published_values() -> None:
    """g sigmoid(1.702 g) (u + 1): 0 at (0, 0), 0.8457958 at (1, 0), 1.6915916 at (1,
    1), 55.99963 at the limits.
    """
    spec = FFNSpec(
        d_model=1,
        d_ff=1,
        activation="quick_gelu",
        gate=Gate.INNER,
        limit=7,
        up_offset=1,
    )
    module = build_module(spec, dtype=torch.float64)
    x = torch.ones(1, dtype=torch.float64)
    found = []
    for g, u in ((0, 0), (1, 0), (1, 1), (100, 100), (-100, -100), (7, -100)):
        for weight, value in ((module.gate, g), (module.up, u), (module.down, 1)):
            weight.weight.data.fill_(value)
        found.append(float(module(x).detach()))
    assert found == pytest.approx(
        [0, 0.8457958, 1.6915916, 55.99963, 0, -41.99972], abs=1e-5
    )
    clamped = flops_elementwise(replace(spec, d_ff=10))
    plain = flops_elementwise(
        FFNSpec(d_model=1, d_ff=10, activation="quick_gelu", gate=Gate.INNER)
    )
    assert (clamped[0] - plain[0], clamped[1] - plain[1]) == (
        3 * 10 + 10,
        5 * 10,
    )  # limits and offset; selections


@pytest.mark.parametrize("gate", list(Gate), ids=lambda g: g.value)
@pytest.mark.parametrize("activation", ["relu", "silu", "relu2", "quick_gelu"])
def test_dropout_keeps_its_mask(activation: str, gate: Gate) -> None:
    spec = spec_of(activation, gate, False, dropout=0.1)
    subject, predicted = subject_of(spec, mode="train"), cost_of(spec, train=True)
    subject.call()
    assert peak_memory.peak_bytes(subject) == predicted.peak_bytes
    assert peak_memory.saved_bytes(subject) == predicted.saved_bytes


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
@pytest.mark.parametrize("activation", ACTIVATION_NAMES)
def test_the_module_computes_the_float64_reference(activation: str, dtype: str) -> None:
    for gate, bias in product(Gate, (False, True)):
        subject = subject_of(spec_of(activation, gate, bias), dtype=dtype)
        y, expected = (
            subject.module(subject.x).detach().double(),
            reference_output(subject.module, subject.x),
        )
        tolerance = {"float64": 1e-13, "float32": 1e-5, "bfloat16": 2e-2}[dtype]
        assert float((y - expected).norm() / expected.norm()) < tolerance


@pytest.mark.parametrize("gate", list(Gate), ids=lambda g: g.value)
def test_gradients_are_right(gate: Gate) -> None:
    torch.manual_seed(0)
    module = build_module(spec_of("silu", gate, True, 6, 10), dtype=torch.float64)
    x = torch.randn(3, 6, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(module, (x,))


def test_the_numbers_of_the_papers() -> None:
    relu = FFNSpec(d_model=768, d_ff=3072, activation="relu")
    swiglu = FFNSpec(d_model=768, d_ff=2048, activation="silu", gate=Gate.INNER)
    output = FFNSpec(d_model=768, d_ff=2688, activation="silu", gate=Gate.OUTPUT)
    bert = FFNSpec(d_model=768, d_ff=3072, activation="gelu", bias=True)
    base = FFNSpec(d_model=512, d_ff=2048, activation="relu", bias=True)
    assert [cost_of(s).params for s in (relu, swiglu, output)] == [4_718_592] * 3
    assert (cost_of(bert).params, cost_of(base).params) == (4_722_432, 2_099_712)
    assert cost_of(relu).flops_forward == 9_437_184 == 2 * matrix_params(relu)
    at_512 = cost(swiglu, tokens=512, dtype="float32", train=True, device="cpu")
    inference = cost(swiglu, tokens=512, dtype="float32", train=False, device="cpu")
    assert inference.peak_bytes == 3 * 4 * 512 * 2048 == 12_582_912
    assert at_512.saved_bytes == 4 * 4 * 512 * 2048  # gate, act(gate), up, product


# Liger-Kernel's own table, benchmark/data/all_benchmark_data.csv: geglu, memory,
# forward, "huggingface" (LlamaMLP of transformers with gelu_pytorch_tanh, bfloat16, 8
# sequences), on an A100 of 80 GB: MiB by tokens
LIGER_FORWARD_MIB = {8192: 1090.25, 16384: 1906.25, 32768: 3538.25, 65536: 6802.25}
# cuBLAS on an A100 has 2 buffers of 4096 KiB and 8 of 16 (":4096:2:16:8"), in each of
# two threads: the script warms up with a backward, which has a thread of its own
CUBLAS_WORKSPACES = 2 * (2 * 4096 + 8 * 16) * 2**10


@pytest.mark.parametrize("tokens", LIGER_FORWARD_MIB)
def test_bytes_that_others_measured_on_a_gpu(tokens: int) -> None:
    """All that a forward with a graph holds at its peak: weights, input, what is saved,
    output, workspaces.
    """
    spec = FFNSpec(d_model=4096, d_ff=11008, activation="gelu_tanh", gate=Gate.INNER)
    found = cost(spec, tokens=tokens, dtype="bfloat16", train=True, device="cuda")
    assert found.saved_bytes is not None
    one = tokens * 4096 * 2  # input and output
    total = found.weight_bytes + one + found.saved_bytes + one + CUBLAS_WORKSPACES
    assert total / 2**20 == LIGER_FORWARD_MIB[tokens]


def test_element_wise_flops_by_hand() -> None:
    gated = FFNSpec(
        d_model=8, d_ff=24, activation="silu", gate=Gate.INNER, bias=True, dropout=0.1
    )
    found = cost_of(gated, train=True)
    biases = 2 * 24 + 8
    assert (
        found.flops_elementwise == 5 * 24 + 24 + biases + 2 * 24
    )  # silu, product, biases, dropout
    assert (
        found.flops_elementwise_backward == 9 * 24 + 2 * 24 + 8 + biases + 24
    )  # and the sum of two dx


class ElementWise(TorchDispatchMode):
    """Counts the elements that element-wise operations give."""

    elements = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        y = func(*args, **(kwargs or {}))
        if torch.Tag.pointwise in func.tags:
            self.elements += y.numel()
        return y


@pytest.mark.parametrize("mode", ["forward", "train"])
def test_dropout_is_counted_in_the_mode_in_which_it_runs(mode: str) -> None:
    spec = spec_of("relu", Gate.NONE, False, dropout=0.1)
    subject = subject_of(spec, mode=mode)
    with ElementWise() as counted:
        subject.module(subject.x)
    found = cost_of(spec, train=mode == "train")
    assert found.flops_elementwise * TOKENS == counted.elements


@pytest.mark.parametrize(
    ("events", "kept"),
    [
        (
            [(1, 100, 7), (2, 200, 8), (3, 50, 9), (4, -100, 7), (5, -200, 8)],
            [(3, 50)],
        ),  # first in, first out
        ([(1, 50, 9), (2, 100, 7), (3, 200, 8), (4, -200, 8), (5, -100, 7)], [(1, 50)]),
        (
            [(1, 50, 9), (2, -30, 6)],
            [(1, 50), (2, -30)],
        ),  # what others allocated is theirs
        ([(1, 10, 5), (2, -10, 5), (3, 20, 5)], [(3, 20)]),  # an address used again
    ],
)
def test_scratch_is_what_an_operation_takes_and_gives_back(
    events: list, kept: list
) -> None:
    assert peak_memory.without_scratch(events) == kept
