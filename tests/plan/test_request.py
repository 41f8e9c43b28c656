from __future__ import annotations

import pytest
from fake_machine import planned

from ffnbench.common.errors import FfnbenchError
from ffnbench.ffn.activations import OwnActivation
from ffnbench.ffn.cost import Cost
from ffnbench.ffn.spec import ImportedSpec
from ffnbench.plan.plan import Probe, SizedBy, Workload, cost_of
from ffnbench.plan.protocol import protocol_of


def widths(**options: object) -> dict[str, int]:
    return {case.label: case.ffn.d_ff for case in planned(**options).cases}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, {"relu": 3072, "gelu": 3072, "swiglu": 2048}),
        ({"d_model": 512}, {"relu": 2048, "gelu": 2048, "swiglu": 1368}),
        (
            {"d_model": 512, "variants": "relu,s=swiglu@multiple_of=1"},
            {"relu": 2048, "s": 1365},
        ),
        ({"match": "none"}, {"relu": 3072, "gelu": 3072, "swiglu": 3072}),
        ({"match": "flops"}, {"relu": 3072, "gelu": 3072, "swiglu": 2048}),
        ({"d_ff": 3072, "variants": "swiglu,relu"}, {"swiglu": 3072, "relu": 4608}),
        ({"variants": "swiglu,relu", "d_model": 512}, {"swiglu": 1368, "relu": 2048}),
        (
            {"variants": "relu,s=swiglu@rule=llama", "d_model": 1024},
            {"relu": 4096, "s": 2816},
        ),
        (
            {
                "variants": "relu,swiglu@rule=two_thirds@ratio=2@multiple_of=16",
                "d_model": 128,
            },
            {"relu": 512},
        ),
        (
            {"variants": "relu,silu@gate=output"},
            {"relu": 3072, "silu@gate=output": 2688},
        ),
        ({"variants": "relu,swiglu@d_ff=100"}, {"relu": 3072, "swiglu@d_ff=100": 100}),
        ({"variants": "r=relu@ratio=2,swiglu"}, {"r": 1536, "swiglu": 1024}),
        (
            {
                "variants": "swiglu@rule=llama@ffn_dim_multiplier=1.3@multiple_of=1024",
                "d_model": 4096,
            },
            {"swiglu@rule=llama@ffn_dim_multiplier=1.3@multiple_of=1024": 14336},
        ),
    ],
)
def test_widths(options: dict, expected: dict[str, int]) -> None:
    assert expected.items() <= widths(**options).items()


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("gate_form", ["swiglu", "silu@gate=output", "geglu@bias=true"])
@pytest.mark.parametrize("d_model", [64, 96, 768, 1000, 4096])
def test_matching_comes_as_near_as_the_multiple_allows(
    d_model: int, gate_form: str, bias: bool
) -> None:
    plan = planned(variants=f"relu@bias={bias},x={gate_form}", d_model=d_model)
    relu, other = (cost_of(case, Probe()).params for case in plan.cases)
    assert abs(other - relu) <= 3 * 8 * (d_model + 1) / 2 + 1
    assert plan.cases[1].residual == pytest.approx(other / relu - 1)


class Counting:
    """A probe that knows how many parameters each unit of d_ff costs, and remembers the
    widths it saw.
    """

    def __init__(self, params_per_width: int) -> None:
        self.params_per_width = params_per_width
        self.seen: list[int] = []

    def within(self, arm):
        return self

    def describe(self, target: str) -> OwnActivation | None:
        return OwnActivation(target=target, flops=3) if target.endswith("act") else None

    def count(self, spec: ImportedSpec, workload: Workload) -> Cost:
        self.seen.append(spec.d_ff)
        total = self.params_per_width * spec.d_ff + 768
        return Cost(
            params=total, params_active=total, params_formula=None, flops_forward=2 * total, flops_backward=4 * total,
            flops_elementwise=None, weight_bytes=4 * total, counted=True,
        )  # fmt: skip


def test_user_code_is_matched_by_counting_it() -> None:
    probe = Counting(3 * 768)
    plan = planned(variants="relu,a.b:SwiGLU", probe=probe)
    assert plan.cases[1].ffn.d_ff == 2048
    assert abs(plan.cases[1].residual or 1) < 0.001
    assert min(probe.seen) >= 1536  # never an odd width that user code might refuse


def test_others_are_matched_to_user_code_where_it_is_the_reference() -> None:
    plan = planned(variants="a.b:SwiGLU,swiglu", probe=Counting(3 * 768))
    assert [case.ffn.d_ff for case in plan.cases] == [3072, 3072]


def test_a_module_that_does_not_read_its_width_is_said_to() -> None:
    plan = planned(variants="relu,a.b:Fixed", probe=Counting(0))
    assert plan.cases[1].sizing.how is SizedBy.UNREAD


def test_an_own_activation_takes_the_forms_of_a_built_in_one() -> None:
    plan = planned(
        variants="relu,f.py:act,g=f.py:act@gate=inner@bias=true", probe=Counting(1)
    )
    assert [case.ffn.d_ff for case in plan.cases] == [3072, 3072, 2048]
    with pytest.raises(FfnbenchError, match="has no beta"):
        planned(variants="f.py:act@beta=2", probe=Counting(1))
    with pytest.raises(FfnbenchError, match="unknown key 'gat'"):
        planned(variants="f.py:act@gat=inner", probe=Counting(1))


@pytest.mark.parametrize(("d_model", "tokens"), [(2048, 512), (2049, 64)])
def test_wide_models_have_fewer_tokens_by_default(d_model: int, tokens: int) -> None:
    """docs/command-line.md: 512, or 64 if a d_model is above 2,048."""
    [case] = planned(variants="relu", d_model=d_model).cases
    assert case.workload.seq_len == tokens


def test_only_a_budget_that_is_given_bounds_the_run() -> None:
    assert protocol_of(budget=20.0).bound
    assert not protocol_of(precision=0.5).bound
    assert not protocol_of().bound
