"""Closed form = module = tracer = allocator = float64, over forms that are drawn: the
test that everything else leans on.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.func import functional_call
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from ffnbench.ffn.activations import ACTIVATIONS
from ffnbench.ffn.cost import cost, matrix_params
from ffnbench.ffn.modules import reference_output
from ffnbench.ffn.spec import GATED, ActivationSpec, FFNSpec, Gate, Norm, act
from ffnbench.plan.plan import Probe, Workload
from ffnbench.plan.variants import typed_variants
from ffnbench.worker import peak_memory
from ffnbench.worker import subject as subjects
from ffnbench.worker.backends.building import build_module

ACTIVATION_NAMES = [row.name for row in ACTIVATIONS]
TOKENS = 80
TOLERANCE = {"float64": 1e-13, "float32": 1e-5, "bfloat16": 6e-2}


VALUES = {
    "limit": st.sampled_from((0.1, 7.0)),
    "offset": st.sampled_from((-0.5, 1.0)),
    "beta": st.sampled_from((-1.0, 0.5)),
    "slope": st.sampled_from((-0.3, 0.2)),
    "smooth": st.sampled_from((0.05, 2.0)),
}


@st.composite
def activations(draw: st.DrawFn, name: str) -> ActivationSpec:
    """An activation with some of its parameters."""
    spec = ActivationSpec(activation=name)
    names = {"limit", "offset", *dict(spec.row.parameters)}
    chosen = draw(st.sets(st.sampled_from(sorted(names))) | st.just(set()))
    return spec.with_parameters({each: draw(VALUES[each]) for each in chosen})


@st.composite
def forms(draw: st.DrawFn, activation: str) -> FFNSpec:
    """A form with this activation: of any gate, with a second activation or none, with
    any norm, wider than the model and narrower.
    """
    gate = draw(st.sampled_from(Gate))
    act, up = draw(activations(activation)), None
    if gate is Gate.INNER:
        names = st.sampled_from(ACTIVATION_NAMES)
        up = draw(st.none() | names.flatmap(activations))
    d_model = draw(st.integers(16, 128))
    subnorm = draw(st.sampled_from((None, *Norm)))
    if act.offset and subnorm is Norm.LAYER:
        subnorm = None  # its mean takes away what the offset adds, and with it digits
    return FFNSpec(
        d_model=d_model,
        d_ff=draw(st.just(4 * d_model) | st.integers(16, 256)),
        activation=act.activation,
        parameters=act.parameters,
        gate=gate,
        up=up,
        subnorm=subnorm,
        bias=draw(st.booleans()),
        dropout=draw(st.sampled_from((0.0, 0.0, 0.1))),
        checkpoint=draw(st.booleans()),
        tile=draw(st.sampled_from((0, 0, 1, 3, 4))),
    )


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


def value_of(formula: str, spec: FFNSpec) -> int:
    """What a formula of parameters gives for these widths."""
    text = formula.replace("^", "**").replace("4d", "4*d")
    return eval(text, {"d": spec.d_model, "d_ff": spec.d_ff})


@pytest.mark.parametrize("activation", ACTIVATION_NAMES)
@settings(max_examples=25)
@given(data=st.data())
def test_the_closed_form_is_the_module_the_tracer_and_the_allocator(
    activation: str, data: st.DataObject
) -> None:
    """Parameters and their formula, FLOPs forward and backward, bytes at the peak and
    saved; the module computes the float64 reference, and its name is the variant.
    """
    spec = data.draw(forms(activation))
    typed = typed_variants(spec.name)[0].at({}, Probe()).form
    unnamed = ("d_model", "d_ff", "bias", "checkpoint", "tile")
    sizes = {name: getattr(spec, name) for name in unnamed}
    assert replace(typed, dropout=spec.dropout, **sizes) == spec
    dtype = data.draw(st.sampled_from(list(TOLERANCE)))
    mode = data.draw(st.sampled_from(("forward", "train")))
    train = mode == "train"
    subject = subject_of(spec, mode=mode, dtype=dtype)
    found = cost_of(spec, train=train, dtype=dtype)

    assert found.params == sum(p.numel() for p in subject.module.parameters())
    assert value_of(found.params_formula, spec) == found.params
    assert ("4d" in found.params_formula) == (spec.d_ff == 4 * spec.d_model)

    y = subject.module.eval()(subject.x).detach().double()
    expected = reference_output(subject.module, subject.x)
    assert float((y - expected).norm() / expected.norm()) < TOLERANCE[dtype]

    subject.module.train(train)
    with FlopCounterMode(display=False) as counter:
        y = subject.module(subject.x)
        forward = counter.get_total_flops()
        if train:
            y.backward(subject.grad)
    assert found.flops_forward * TOKENS == forward
    if train:
        assert found.flops_backward * TOKENS == counter.get_total_flops() - forward

    steps = [act.row.steps for act in spec.activations.values()]
    if None in steps:  # its bytes are measured only
        assert found.peak_bytes is None
        return
    subject.call()
    assert peak_memory.peak_bytes(subject) == found.peak_bytes
    assert (peak_memory.saved_bytes(subject) if train else None) == found.saved_bytes


def test_the_clamped_gate_of_gpt_oss_has_its_published_values() -> None:
    """g sigmoid(1.702 g) (u + 1): 0 at (0, 0), 0.8457958 at (1, 0), 1.6915916 at (1,
    1), 55.99963 at the limits.
    """
    form = typed_variants("swiglu_oai")[0].at({}, Probe()).form
    module = build_module(replace(form, d_model=1, d_ff=1), dtype=torch.float64)
    x = torch.ones(1, dtype=torch.float64)
    outputs = []
    for g, u in ((0, 0), (1, 0), (1, 1), (100, 100), (-100, -100), (7, -100)):
        for weight, value in ((module.gate, g), (module.up, u), (module.down, 1)):
            weight.weight.data.fill_(value)
        outputs.append(float(module(x).detach()))
    assert outputs == pytest.approx(
        [0, 0.8457958, 1.6915916, 55.99963, 0, -41.99972], abs=1e-5
    )


@pytest.mark.parametrize("gate", list(Gate), ids=lambda g: g.value)
@pytest.mark.parametrize("activation", ["silu", "prelu", "xielu", "situ"])
@pytest.mark.parametrize("subnorm", [None, *Norm])
def test_gradients_are_right(activation: str, gate: Gate, subnorm: Norm | None) -> None:
    """Of the input and of all that is trained."""
    torch.manual_seed(0)
    spec = FFNSpec(
        d_model=6,
        d_ff=10,
        activation=activation,
        gate=gate,
        up=act("prelu", offset=1) if gate is Gate.INNER else None,
        subnorm=subnorm,
        bias=True,
    )
    module = build_module(spec, dtype=torch.float64)
    x = torch.randn(3, 6, dtype=torch.float64, requires_grad=True)
    names, weights = zip(*module.named_parameters(), strict=True)

    def called(x: torch.Tensor, *weights: torch.Tensor) -> torch.Tensor:
        return functional_call(module, dict(zip(names, weights, strict=True)), (x,))

    assert torch.autograd.gradcheck(called, (x, *weights))


@pytest.mark.parametrize("gate", list(Gate), ids=lambda g: g.value)
def test_tiles_and_a_checkpoint_change_no_gradient(gate: Gate) -> None:
    spec = FFNSpec(d_model=6, d_ff=10, activation="situ", gate=gate, bias=True)
    gradients = []
    for tile, checkpoint in ((1, False), (3, False), (1, True), (3, True)):
        torch.manual_seed(0)
        form = replace(spec, tile=tile, checkpoint=checkpoint)
        module = build_module(form, dtype=torch.float64)
        x = torch.randn(2, 5, 6, dtype=torch.float64, requires_grad=True)
        module(x).square().sum().backward()
        gradients.append([p.grad for p in (x, *module.parameters())])
    for others in gradients[1:]:
        torch.testing.assert_close(others, gradients[0], rtol=1e-12, atol=1e-12)


def test_a_checkpoint_repeats_two_of_three_products() -> None:
    """Liger-Kernel#555: 4.72 and 5.77 MFLOP a token, 4 MiB and nothing saved."""
    spec = FFNSpec(d_model=256, d_ff=1024, activation="silu", gate=Gate.INNER)
    found = [
        cost(form, tokens=256, dtype="float32", train=True, device="cpu")
        for form in (spec, replace(spec, checkpoint=True))
    ]
    flops = [each.flops_forward + each.flops_backward for each in found]
    assert flops == [4_718_592, 5_767_168]
    assert [each.saved_bytes for each in found] == [4 << 20, 0]


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


def test_the_forms_of_models_have_their_published_values() -> None:
    """On one token of two hidden elements, whose gate and up are g and u. SiTU-GLU by
    its formula (Kimi K3, eq. 12), DeepSeek-V4's limits, a norm by hand.
    """
    g, u = torch.tensor([30.0, -2.0]).double(), torch.tensor([-60.0, 0.5]).double()
    silu = g.clamp(max=10) * torch.sigmoid(g.clamp(max=10))
    squared = g.relu().square() * u
    centred = torch.nn.functional.silu(g) * u
    centred = centred - centred.mean()
    expected = {
        "situ_glu": 4 * (g / 4).tanh() * g.sigmoid() * 25 * (u / 25).tanh(),
        "swiglu_v4": silu * u.clamp(-10, 10),
        "drelu": torch.tensor([0.0, 0.0]).double(),
        "bitnet_glu": squared / (squared.square().mean() + 1e-5).sqrt(),
        "eva02_glu": centred / (centred.square().mean() + 1e-5).sqrt(),
    }
    for name, hidden in expected.items():
        spec = replace(GATED.get(name).form, d_model=1, d_ff=2)
        module = build_module(spec, dtype=torch.float64)
        module.gate.weight.data[:, 0] = g
        module.up.weight.data[:, 0] = u
        for i in range(2):
            module.down.weight.data[0] = torch.eye(2)[i]
            y = module(torch.ones(1, 1, dtype=torch.float64))
            assert float(y.detach()) == pytest.approx(float(hidden[i]), rel=1e-9), name


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
    spec = FFNSpec(d_model=64, d_ff=176, activation="relu", dropout=0.1)
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
