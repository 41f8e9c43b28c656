"""Experts: closed form = module = tracer; eager = grouped = float64; how tokens are
spread; what is refused.
"""

from __future__ import annotations

import itertools
import math
from copy import deepcopy
from dataclasses import replace

import pytest
import torch
from fake_machine import planned
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.flop_counter import FlopCounterMode

import ffnbench
from ffnbench.common.choices import Routing, Weights
from ffnbench.common.errors import FfnbenchError, Unsupported
from ffnbench.ffn import experts
from ffnbench.ffn.cost import (
    cost,
    flops_backward,
    flops_elementwise,
    flops_forward,
    peak_and_saved_bytes,
)
from ffnbench.ffn.experts import expert_load, impose
from ffnbench.ffn.modules import reference_output
from ffnbench.ffn.routing import IMBALANCE, expected_rows, shares
from ffnbench.ffn.spec import Dispatch, FFNSpec, Gate, MoESpec, Scores, act, item_bytes
from ffnbench.plan.plan import Workload
from ffnbench.worker import jobs, peak_memory
from ffnbench.worker import subject as subjects
from ffnbench.worker.backends.building import build_module
from ffnbench.worker.backends.quantised import quantised_copy

D, H, TOKENS = 32, 48, 40
FORMS = {
    "classic": {"activation": "relu"},
    "gated": {"activation": "silu", "gate": Gate.INNER},
    "clamped": {
        "activation": "quick_gelu",
        "gate": Gate.INNER,
        "parameters": (("limit", 0.5),),
        "up": act("clamp", limit=0.5, offset=1),
    },
    "output": {"activation": "gelu", "gate": Gate.OUTPUT},
    "learned": {"activation": "xielu"},
}
TOLERANCE = {"float64": 1e-13, "float32": 1e-5, "bfloat16": 3e-2}


@st.composite
def mixtures(draw: st.DrawFn) -> FFNSpec:
    """Any form, with any experts around it."""
    shared = draw(st.sampled_from((0, 24)))
    groups = draw(st.sampled_from((1, 2)))
    experts = MoESpec(
        experts=6,
        latent=draw(st.sampled_from((0, 16))),
        zero=draw(st.sampled_from((0, 0, 2))),
        capacity=draw(st.sampled_from((None, None, 0.5, 1.25))),
        top_k=draw(st.integers(1, 3)),
        shared_d_ff=shared,
        shared_gate=bool(shared) and draw(st.booleans()),
        router_bias=draw(st.booleans()),
        scores=draw(st.sampled_from(Scores)),
        normalised=draw(st.booleans()),
        routed_scale=draw(st.sampled_from((1.0, 2.5))),
        groups=groups,
        top_groups=draw(st.integers(1, groups)),
    )
    form = draw(st.sampled_from(list(FORMS.values())))
    return FFNSpec(d_model=D, d_ff=H, bias=draw(st.booleans()), moe=experts, **form)


def spec_of(form: str, bias: bool = False, **moe: object) -> FFNSpec:
    experts = MoESpec(**{"experts": 5, "top_k": 2, **moe})
    return FFNSpec(d_model=D, d_ff=H, bias=bias, moe=experts, **FORMS[form])


def subject_of(
    spec: FFNSpec, dtype: str = "float32", mode: str = "forward"
) -> subjects.Subject:
    torch.manual_seed(1)
    work = Workload(
        batch=2, seq_len=TOKENS // 2, dtype=dtype, device="cpu", mode=mode, threads=1
    )
    return subjects.subject_of(
        build_module(spec, dtype=getattr(torch, dtype)), work, spec.d_model, seed=0
    )


def dispatched(spec: FFNSpec, dispatch: Dispatch) -> FFNSpec:
    """The form with its experts run like this, which may need a capacity."""
    capacity = spec.moe.capacity
    if dispatch is Dispatch.BATCHED:
        capacity = capacity or 1.25
    return replace(spec, moe=replace(spec.moe, dispatch=dispatch, capacity=capacity))


def loads_of(subject: subjects.Subject) -> list[int]:
    """The tokens that each expert with weights computes: the first that choose it, up
    to its capacity.
    """
    moe = subject.module.moe
    most = TOKENS
    if moe.capacity:
        most = math.ceil(moe.capacity * TOKENS * moe.top_k / (moe.experts + moe.zero))
    found = subject.module.choose(subject.x.detach().reshape(TOKENS, -1))
    raw = torch.where(found < 0, ~found, found)
    loads = raw.flatten().bincount(minlength=moe.experts)[: moe.experts]
    return loads.clamp(max=most).tolist()


def cost_of(spec: FFNSpec):
    return cost(spec, tokens=TOKENS, dtype="float32", train=True, device="cpu")


def relative(y: torch.Tensor, expected: torch.Tensor) -> float:
    return float((y.detach().double() - expected).norm() / expected.norm())


@settings(max_examples=60)
@given(mixtures(), st.sampled_from((Dispatch.EAGER, Dispatch.BATCHED)))
def test_parameters_and_flops_are_the_modules(
    spec: FFNSpec, dispatch: Dispatch
) -> None:
    spec = dispatched(spec, dispatch)
    subject, found = subject_of(spec, mode="train"), cost_of(spec)
    assert found.params == sum(p.numel() for p in subject.module.parameters())
    formula = found.params_formula.replace("^", "**")
    assert eval(formula, {"d": D, "d_ff": H}) == found.params
    with FlopCounterMode(display=False) as counter:
        y = subject.module(subject.x)
        forward = counter.get_total_flops()
        y.backward(subject.grad)
    backward = counter.get_total_flops() - forward
    choices = sum(loads_of(subject)) / TOKENS
    if dispatch is Dispatch.BATCHED:  # rows are padded to what a token's choice allows
        outputs = spec.moe.experts + spec.moe.zero
        most = math.ceil(spec.moe.capacity * TOKENS * spec.moe.top_k / outputs)
        choices = spec.moe.experts * min(most, TOKENS) / TOKENS
        assert found.flops_forward == round(forward / TOKENS)
    assert flops_forward(spec, choices) == round(forward / TOKENS)
    assert flops_backward(spec, choices) == round(backward / TOKENS)
    if not spec.moe.partial:
        assert found.flops_forward * TOKENS == forward


@settings(max_examples=60)
@given(
    spec=mixtures(),
    dispatch=st.sampled_from(Dispatch),
    dtype=st.sampled_from(list(TOLERANCE)),
    mode=st.sampled_from(("forward", "train")),
    routing=st.sampled_from(Routing),
)
def test_bytes_are_those_of_the_allocator_and_of_autograd(
    spec: FFNSpec, dispatch: Dispatch, dtype: str, mode: str, routing: Routing
) -> None:
    if dispatch is Dispatch.GROUPED and dtype == "float64":
        dtype = "float32"
    spec = dispatched(spec, dispatch)
    subject = subject_of(spec, dtype, mode)
    impose(subject.module, routing, tokens=TOKENS, seed=3)
    train = mode == "train"
    peak, saved = peak_and_saved_bytes(
        spec,
        tokens=TOKENS,
        item=item_bytes(dtype),
        train=train,
        device="cpu",
        loads=loads_of(subject),
    )
    if spec.activation == "xielu":  # its bytes are measured only
        assert peak is None
        return
    subject.call()
    assert peak_memory.peak_bytes(subject) == peak
    assert saved == (peak_memory.saved_bytes(subject) if train else None)


@settings(max_examples=100)
@given(
    spec=mixtures(),
    dispatch=st.sampled_from(Dispatch),
    dtype=st.sampled_from(list(TOLERANCE)),
    chosen=st.sampled_from((None, Routing.SKEWED)),
)
def test_every_way_computes_the_float64_reference(
    spec: FFNSpec, dispatch: Dispatch, dtype: str, chosen: Routing | None
) -> None:
    if dispatch is Dispatch.GROUPED and dtype == "float64":
        dtype = "float32"  # torch has no grouped product in float64
    spec = dispatched(spec, dispatch)
    subject = subject_of(spec, dtype, "train")
    if chosen:
        impose(subject.module, chosen, tokens=TOKENS, seed=3)
    expected = reference_output(subject.module, subject.x)
    assert relative(subject.module(subject.x), expected) < TOLERANCE[dtype]
    with torch.inference_mode():
        assert relative(subject.module(subject.x), expected) < TOLERANCE[dtype]


@pytest.mark.parametrize("form", FORMS)
def test_gradients_are_right_and_the_same_in_every_way(form: str) -> None:
    around = {
        "shared_d_ff": 24, "shared_gate": True, "router_bias": True, "scores": Scores.SIGMOID, "routed_scale": 2.5,
    }  # fmt: skip
    subject = subject_of(spec_of(form, True, **around), "float64", "train")
    x = subject.x.detach()[:1, :4].requires_grad_()
    assert torch.autograd.gradcheck(lambda x: subject.module(x), (x,))
    eager, *others = (
        subject_of(
            spec_of(form, True, dispatch=dispatch, capacity=1.1, zero=2, **around),
            "float32",
            "train",
        )
        for dispatch in Dispatch
    )
    eager.call()
    for other in others:
        other.module.load_state_dict(eager.module.state_dict())
        other.call()
        assert relative(other.x.grad, eager.x.grad.double()) < 1e-5
        for (name, p), (_, q) in zip(
            eager.module.named_parameters(),
            other.module.named_parameters(),
            strict=True,
        ):
            assert torch.allclose(
                q.grad, p.grad, rtol=1e-3, atol=1e-5 * float(p.grad.abs().max())
            ), name


def test_an_expert_that_nobody_asks_is_no_trouble() -> None:
    for dispatch in Dispatch:
        subject = subject_of(
            spec_of("gated", bias=True, dispatch=dispatch, capacity=4.0), mode="train"
        )
        subject.module.imposed = torch.tensor([[1, 4]]).expand(TOKENS, 2)
        subject.call()
        assert (
            relative(
                subject.module(subject.x), reference_output(subject.module, subject.x)
            )
            < 1e-5
        )
        assert not subject.module.experts.up.weight.grad[[0, 2, 3]].any()
        assert expert_load(subject.module, subject.x) == (2.5, 2)


def test_an_imposed_routing_leaves_the_router_its_work() -> None:
    subject = subject_of(spec_of("gated"))

    def operations() -> list[str]:
        with torch.profiler.profile(
            activities=[torch.profiler.ProfilerActivity.CPU]
        ) as found:
            subject.call()
        names = (event.name for event in found.events())
        return [
            name
            for name in names
            if name in ("aten::topk", "aten::softmax", "aten::linear", "aten::gather")
        ]

    free = operations()
    subject.module.imposed = subject.module.choose(subject.x.reshape(-1, D))
    assert operations() == free
    assert {"aten::topk", "aten::softmax"} < set(free)


def test_element_wise_flops_by_hand() -> None:
    gated = {"d_model": 8, "activation": "silu", "gate": Gate.INNER}
    simple = FFNSpec(d_ff=24, moe=MoESpec(experts=4, top_k=2), **gated)
    one = 5 * 24 + 24  # silu and product
    softmax, weights, outputs = 3 * 4, 2 * 2, 2 * 2 * 8
    assert flops_elementwise(simple) == 2 * one + softmax + weights + outputs
    moe = MoESpec(
        experts=4,
        top_k=2,
        shared_d_ff=16,
        shared_gate=True,
        router_bias=True,
        scores=Scores.SIGMOID,
        normalised=False,
        routed_scale=2.0,
    )
    shared, sigmoids, biases, scales = 5 * 16 + 16 + 8, 4 * 4, 4, 2
    routing = sigmoids + biases + scales + outputs
    shared_gate = 4 + 8
    full = FFNSpec(d_ff=24, moe=moe, **gated)
    assert flops_elementwise(full) == 2 * one + shared + routing + shared_gate


@pytest.mark.parametrize("experts_", [1, 5, 64])
@pytest.mark.parametrize("chosen", list(Routing), ids=lambda r: r.value)
def test_shares_are_what_they_are_said_to_be(chosen: Routing, experts_: int) -> None:
    found = shares(chosen, experts_)
    assert sum(found) == pytest.approx(1)
    assert found == sorted(found, reverse=True)
    worst = {Routing.UNIFORM: 1, Routing.TRAINED_LIKE: 1 + IMBALANCE}.get(
        chosen, experts_ / math.fsum(1 / r for r in range(1, experts_ + 1))
    )
    assert found[0] * experts_ == pytest.approx(worst if experts_ > 1 else 1)


@pytest.mark.parametrize("chosen", list(Routing), ids=lambda r: r.value)
def test_tokens_are_drawn_by_those_shares(chosen: Routing) -> None:
    module = build_module(spec_of("gated", experts=16, top_k=1))
    impose(module, chosen, tokens=20_000, seed=1)
    drawn = torch.bincount(module.imposed.flatten(), minlength=16) / 20_000
    assert torch.allclose(drawn, torch.tensor(shares(chosen, 16)), atol=0.012)
    again = build_module(spec_of("gated", experts=16, top_k=3))
    impose(again, chosen, tokens=50, seed=1)
    assert all(len(set(row)) == 3 for row in again.imposed.tolist())  # no expert twice
    first = again.imposed
    impose(again, chosen, tokens=50, seed=1)
    assert torch.equal(first, again.imposed)


def test_the_worker_imposes_what_the_plan_says() -> None:
    asked = dict(
        variants="swiglu@moe=8x1,swiglu@moe=8x1@routing=skewed,relu",
        d_model=32,
        seq_len=64,
        threads=1,
    )
    job = jobs.Jobs(planned(**asked).with_device("cpu"))
    for label in ("swiglu@moe=8x1", "swiglu@moe=8x1@routing=skewed", "relu"):
        job.open(label=label, calls=1)
    loads = [job.route(label=label) for label in job.subjects]
    assert 1 <= loads[0]["expert_load_max"] < 2 < loads[1]["expert_load_max"]
    assert loads[2] == {}
    with pytest.raises(
        FfnbenchError, match="can't tell which one follows the hidden layer"
    ):
        job.sparsity(label="swiglu@moe=8x1")


def test_where_torch_has_no_grouped_products_the_case_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    spec = spec_of("gated", dispatch=Dispatch.GROUPED)
    with pytest.raises(
        Unsupported, match="no grouped matrix product for float64 on cpu"
    ):
        build_module(spec, dtype=torch.float64)
    with pytest.raises(Unsupported, match="in multiples of 8"):
        build_module(replace(spec, d_ff=100), dtype=torch.bfloat16)
    monkeypatch.setattr(experts, "GROUPED_MM", None)
    with pytest.raises(Unsupported, match="no grouped matrix product") as caught:
        build_module(spec)
    assert caught.value.hint == "use @experts=eager"


ZIPF = [1 / rank for rank in range(1, 65)]


@pytest.mark.parametrize(
    ("routing", "weights", "top_k"),
    [
        (Routing.UNIFORM, [1] * 6, 3),
        (Routing.SKEWED, ZIPF[:6], 3),
        (Routing.SKEWED, ZIPF, 2),
        (Routing.TRAINED_LIKE, [3, 2.5, 2, 1.5, 1], 4),
        (Routing.SKEWED, ZIPF[:4], 4),
    ],
)
def test_touched_experts_are_those_of_all_draws(
    routing: Routing, weights: list[float], top_k: int
) -> None:
    """Each token draws one expert after the other, in proportion to the weights of
    those that are left: over all orders of drawing.
    """
    chances = [0.0] * len(weights)
    for draw in itertools.permutations(range(len(weights)), top_k):
        probability, left = 1.0, sum(weights)
        for expert in draw:
            probability *= weights[expert] / left
            left -= weights[expert]
        for expert in draw:
            chances[expert] += probability
    hits = sum(1 - (1 - chance) ** 16 for chance in chances)
    report = ffnbench.cost(
        f"relu@d_ff=8@moe={len(weights)}x{top_k}@routing={routing}",
        d_model=D,
        seq_len=16,
    )
    touched = report.rows()[0]["weight_bytes_touched"] / 4
    assert touched == pytest.approx(hits * 2 * 8 * D + len(weights) * D, abs=1)


@pytest.mark.parametrize("routing", list(Routing))
def test_expected_rows_are_the_mean_of_many_draws(routing: Routing) -> None:
    """With experts without weights, and with tokens that are dropped."""
    moe = MoESpec(experts=6, top_k=2, zero=3, capacity=1.1)
    module = build_module(replace(spec_of("gated"), moe=moe))
    x = torch.zeros(30, D)
    rows = torch.zeros(6)
    for seed in range(400):
        impose(module, routing, tokens=30, seed=seed)
        chosen = module.choose(x)
        rows += chosen[chosen >= 0].bincount(minlength=9)[:6] / 400
    expected = torch.tensor(expected_rows(moe, 30, routing))
    assert torch.allclose(rows, expected, atol=0.4)
    assert float(rows.sum()) == pytest.approx(float(expected.sum()), abs=0.6)
    assert rows.max() < moe.most_rows(30) + 0.01


def rounded_by_hand(weight: torch.Tensor, weights: Weights) -> torch.Tensor:
    """Matrices (..., rows, columns) in 8 bits by rows, or in 4 bits by 32 columns."""
    if weights is Weights.INT8:
        step = weight.abs().amax(-1, keepdim=True) / 127
        return (weight / step).round() * step
    groups = weight.unflatten(-1, (-1, 32))
    low = groups.amin(-1, keepdim=True)
    step = (groups.amax(-1, keepdim=True) - low) / 15
    return (((groups - low) / step).round() * step + low).flatten(-2)


@pytest.mark.parametrize("weights", [Weights.INT8, Weights.INT4])
def test_quantised_experts_give_what_rounded_matrices_give(weights: Weights) -> None:
    """In experts and in the shared one; a router keeps its precision."""
    [case] = planned("swiglu@moe=4x2@shared=64@bias=true", d_model=64, d_ff=96).cases
    torch.manual_seed(2)
    module = build_module(case.ffn)
    rounded = deepcopy(module)
    with torch.no_grad():
        for network in (rounded.experts, rounded.shared):
            for layer in (network.gate, network.up, network.down):
                layer.weight.copy_(rounded_by_hand(layer.weight, weights))
        x = torch.randn(2, 20, 64)
        y, expected = quantised_copy(module, weights, 32)(x), rounded(x)
        exact = module(x)
    error = (expected - exact).norm() / exact.norm()
    assert error > 0.003
    assert (y - expected).norm() / exact.norm() < error / 20
