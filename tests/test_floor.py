"""The floor of a call: no honest row lies below it, what can't have done its work does."""

from __future__ import annotations

from dataclasses import replace

import pytest
from conftest import ROOT

from ffnbench.ffn.cost import Cost
from ffnbench.ffn.moe import MoESpec
from ffnbench.ffn.spec import ActivationSpec, FFNSpec, Gate, ImportedSpec
from ffnbench.metrics import LATENCY
from ffnbench.plan import GIVEN, Case, NoProbe, Workload, cost_of
from ffnbench.report.files.store import load
from ffnbench.result import Bound, Roof
from ffnbench.stats.ceilings import Ceiling, Floor, floor_of, quickest

GIGA = 1e9
D, H = 768, 2048
SWIGLU = FFNSpec(d_model=D, d_ff=H, activation="silu", gate=Gate.INNER)
WEIGHTS = 3 * D * H  # by hand, as all figures below
MODULE = ImportedSpec(target="mine.py:M", d_model=D, d_ff=H)


def case(ffn=SWIGLU, tokens: int = 512, dtype: str = "float32", mode: str = "forward", **more) -> Case:
    work = Workload(batch=1, seq_len=tokens, dtype=dtype, device="cpu", mode=mode, threads=2, **more)
    return Case(label="x", variant="x", ffn=ffn, workload=work, sizing=GIVEN)


def counted(flops: int | None = 2 * WEIGHTS, params: int = WEIGHTS, item: int = 4) -> Cost:
    return Cost(
        params=params, params_active=params, params_formula=None, flops_forward=flops,
        flops_backward=None if flops is None else 2 * flops, flops_elementwise=None, flops_elementwise_backward=None,
        weight_bytes=item * params, counted=True,
    )  # fmt: skip


def product(rate: float, dtype: str = "float32", threads: int = 2, device: str = "cpu", side: int = 1024) -> Ceiling:
    roof = Roof(name=f"(product {rate:g} {dtype} {threads} {device} {side})", bound=Bound.PRODUCTS, path="torch.mm",
                amount=2 * side**3, device=device, dtype=dtype, threads=threads, shape=(side, side, side))  # fmt: skip
    return Ceiling(roof=roof, seconds=roof.amount / rate)


def read(size: int, rate: float, level: str = "L3", times: int = 1) -> Ceiling:
    roof = Roof(name=f"(read {size} {rate:g} {level})", bound=Bound.BYTES, path="torch.sum", amount=times * size,
                device="cpu", dtype="float32", threads=2, level=level, shape=(times,) if times > 1 else ())  # fmt: skip
    return Ceiling(roof=roof, seconds=roof.amount / rate)


CALL = Ceiling(roof=Roof(name="(call cpu)", bound=Bound.CALL, path="an empty module", amount=1, device="cpu",
                         dtype="float32", threads=1), seconds=1e-6)  # fmt: skip
MACHINE = (product(150 * GIGA), read(4 * WEIGHTS, 40 * GIGA), CALL)


def floor(one: Case, known: Cost | None = None, reached=MACHINE) -> Floor | None:
    return floor_of(one, known or cost_of(one, NoProbe()), reached)


def test_no_sample_of_a_committed_run_lies_below_its_floor() -> None:
    """Not even the quickest one, by the quickest sample of each of its own roofs."""
    seen = 0
    for path in (ROOT / "results").rglob("*.json"):
        report = load(path)
        reached = quickest((Ceiling(roof=roof, seconds=9e9) for roof in report.roofs), report.samples)
        for one in report.plan.shown:
            if found := floor_of(one, report.cost(one.label), reached):
                times = [s.value for s in report.samples if (s.case, s.metric) == (one.label, LATENCY)]
                assert min(times) > 1.2 * found.seconds, (path, one.label)
                seen += 1
    assert seen > 20


def test_products_by_hand() -> None:
    """512 tokens of swiglu are 2 * 512 * 3 * 768 * 2048 FLOPs; backward needs twice as many."""
    forward = 2 * 512 * WEIGHTS / (150 * GIGA) / 1.25
    for mode, times in (("forward", 1), ("backward", 2), ("train", 3)):
        found = floor(case(mode=mode))
        assert (found.bound, found.roof) == (Bound.PRODUCTS, MACHINE[0].roof.name)
        assert found.seconds == pytest.approx(times * forward)
    assert 0.99 * forward < floor(case()).seconds
    assert 1.01 * forward >= floor(case()).seconds


def test_bytes_by_hand() -> None:
    """One token reads 18.9 MB of weights, at 40 GB/s, and computes little."""
    found = floor(case(tokens=1))
    assert (found.bound, found.roof) == (Bound.BYTES, MACHINE[1].roof.name)
    assert found.seconds == pytest.approx(4 * WEIGHTS / (40 * GIGA) / 1.25)


def test_the_published_cheats_lie_below_it() -> None:
    """The last output for a repeated address: 53 TFLOP/s where the honest module reaches 0.15."""
    seconds = 2 * 512 * WEIGHTS / 53e12
    assert seconds < floor(case()).seconds
    assert seconds < floor(case(MODULE), counted()).seconds
    in_bfloat16 = 0.6 * 2 * 512 * WEIGHTS / (150 * GIGA)  # in secret
    assert in_bfloat16 < floor(case(MODULE), counted()).seconds


def test_what_is_held_to_be_a_form_needs_the_products_of_that_form() -> None:
    """Though a counter sees none in it; not those of a form that is larger than the module."""
    like = case(replace(MODULE, like=SWIGLU))
    assert floor(like, counted(flops=0)).seconds == pytest.approx(floor(case()).seconds)
    backward = replace(like, workload=replace(like.workload, mode="backward"))
    assert floor(backward, counted(flops=0)).seconds == pytest.approx(2 * floor(case()).seconds)
    larger = case(replace(MODULE, like=replace(SWIGLU, d_ff=4 * H)))
    assert floor(larger, counted()).seconds == pytest.approx(floor(case()).seconds)


def test_the_best_roof_of_all_counts_that_may_be_used() -> None:
    """Other shapes of products; more exact dtypes, where those are faster; not fewer bits, threads or other devices."""
    slow = product(100 * GIGA)
    for one, dtype, times in (
        (product(200 * GIGA, side=256), "float32", 2),
        (product(200 * GIGA), "bfloat16", 2),
        (product(200 * GIGA, "bfloat16"), "float32", 1),
        (product(300 * GIGA, threads=4), "float32", 1),
        (product(300 * GIGA, device="cuda"), "float32", 1),
    ):
        both = floor(case(dtype=dtype), reached=(slow, product(100 * GIGA, dtype), one))
        assert both.seconds == pytest.approx(2 * 512 * WEIGHTS / (times * 100 * GIGA) / 1.25), one.roof.name


def test_weights_are_read_from_the_level_that_they_fit_in() -> None:
    small, large = read(1 << 20, 200 * GIGA, "L2"), read(4 * WEIGHTS, 40 * GIGA)
    better, memory = read(8 << 20, 50 * GIGA), read(128 << 20, 15 * GIGA, "memory")
    one = case(tokens=1)
    weights = 4 * WEIGHTS / 1.25
    assert floor(one, reached=(small, large)).seconds == pytest.approx(weights / (40 * GIGA))
    assert floor(one, reached=(small, large, better)).seconds == pytest.approx(weights / (50 * GIGA))
    assert floor(one, reached=(large, memory)).seconds == pytest.approx(weights / (40 * GIGA))
    assert floor(one, reached=(memory,)) is None  # a larger buffer is slower: it says nothing
    assert floor(one, reached=(small,)).seconds == pytest.approx(weights / (200 * GIGA))  # a smaller one is lenient
    again = read(4 * WEIGHTS, 40 * GIGA, times=8)
    assert floor(one, reached=(again,)).seconds == pytest.approx(weights / (40 * GIGA))
    for other in ({"threads": 1}, {"device": "cuda"}):
        elsewhere = replace(better, roof=replace(better.roof, **other))
        assert floor(one, reached=(large, elsewhere)).seconds == pytest.approx(weights / (40 * GIGA))
    unknown = [read(size, rate * GIGA, "") for size, rate in ((1 << 20, 200), (4 * WEIGHTS, 40))]
    assert floor(one, reached=unknown).seconds == pytest.approx(weights / (40 * GIGA))


def test_the_weights_that_an_honest_module_must_read() -> None:
    for flops, params, share in (
        (2 * WEIGHTS, 8 * WEIGHTS, 1 / 8),  # experts of its own, or weights that it never uses
        (6 * WEIGHTS, WEIGHTS, 1),  # the same weights three times
    ):
        reached = (read(1 << 20, 40 * GIGA), CALL)
        found = floor(case(MODULE, tokens=1), counted(flops=flops, params=params), reached)
        assert found.seconds == pytest.approx(share * 4 * params / (40 * GIGA) / 1.25)
    for flops in (0, None):  # a table that is looked up
        assert floor(case(MODULE, tokens=1), counted(flops=flops)) is None


def test_experts_read_at_least_those_of_one_token() -> None:
    """Skewed routing asks fewer than a uniform one would."""
    moe = replace(SWIGLU, moe=MoESpec(experts=8, top_k=2))
    for routing in ("uniform", "skewed"):
        found = floor(case(moe, tokens=4, routing=routing), reached=(read(4 * WEIGHTS, 40 * GIGA),))
        assert found.seconds == pytest.approx(4 * (2 * WEIGHTS + 8 * D) / (40 * GIGA) / 1.25)


def test_a_short_call_has_none() -> None:
    """There what a call itself takes is part of every roof: below ten empty calls nothing is said."""
    tiny = case(replace(SWIGLU, d_model=64, d_ff=128), tokens=1)
    assert floor(tiny, reached=(product(150 * GIGA), read(1 << 16, 40 * GIGA), CALL)) is None
    assert floor(case(tokens=1), reached=(*MACHINE[:2], replace(CALL, seconds=1e-4))) is None
    assert floor(tiny, reached=(product(1e9), read(1 << 16, 40 * GIGA))) is not None
    assert floor(case(ActivationSpec(activation="silu", elements=1 << 20))) is None  # neither products nor weights
