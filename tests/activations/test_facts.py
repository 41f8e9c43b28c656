"""Every number of the facts table against an independent computation: definitions in
libm, scipy's integration.
"""

from __future__ import annotations

import math

import pytest
import torch
from activation_facts import find_facts
from activation_formulas import ORACLE
from scipy.integrate import quad
from scipy.optimize import minimize_scalar
from scipy.stats import norm

from ffnbench.activations.facts import Facts, facts_of
from ffnbench.common.errors import FfnbenchError
from ffnbench.ffn.activations import ACTIVATIONS
from ffnbench.ffn.spec import ActivationSpec, act
from ffnbench.worker.activation_jobs import check_function, torch_function


def phi(x: float) -> float:
    return math.exp(-x * x / 2) / math.sqrt(2 * math.pi)


def slope(name: str, x: float, step: float = 1e-5) -> float:
    """The derivative of the definition: exactly zero where that is constant."""
    return (ORACLE[name](x + step) - ORACLE[name](x - step)) / (2 * step)


NAMES = [
    row.name for row in ACTIVATIONS if row.name != "swish"
]  # which is silu at its own beta


@pytest.fixture(scope="module")
def found() -> dict[str, Facts]:
    facts = {
        row.name: facts_of(ActivationSpec(activation=row.name)) for row in ACTIVATIONS
    }
    return {name: known for name, known in facts.items() if known}


def test_every_activation_has_facts_and_swish_has_those_of_silu(
    found: dict[str, Facts],
) -> None:
    assert found.keys() == set(ACTIVATIONS.names())
    swish, silu = found["swish"], found["silu"]
    assert (swish.minimum, swish.minimum_at) == pytest.approx(
        (silu.minimum, silu.minimum_at)
    )
    assert (swish.mean, swish.second_moment) == pytest.approx(
        (silu.mean, silu.second_moment)
    )
    assert facts_of(act("swish", beta=0.5)) is None


@pytest.mark.parametrize(
    "name", ["relu6", "gelu", pytest.param("xielu", marks=pytest.mark.slow)]
)
def test_the_script_finds_what_stands_in_the_file(
    name: str, found: dict[str, Facts]
) -> None:
    facts = find_facts(torch_function(ActivationSpec(activation=name)))
    assert (facts.minimum, facts.minimum_at) == (
        found[name].minimum,
        found[name].minimum_at,
    )
    assert (facts.kinks, facts.bends, facts.dead) == (
        found[name].kinks,
        found[name].bends,
        found[name].dead,
    )
    assert (facts.mean, facts.saturated) == pytest.approx(
        (found[name].mean, found[name].saturated)
    )


# beside all kinks, and where the last one has reached its limit
GRID = [(i + 0.25) / 64 for i in (-10_000, *range(-40 * 64, 40 * 64), 10_000)]


@pytest.mark.parametrize("name", NAMES)
def test_values_and_slopes_fill_their_bounds(
    name: str, found: dict[str, Facts]
) -> None:
    """A bound that is none is left behind on the grid; the gradient is dead where the
    slope of the definition is zero.
    """
    facts = found[name]
    values = [ORACLE[name](x) for x in GRID]
    slopes = [slope(name, x) for x in GRID]
    for seen, bound in (
        (min(values), facts.low),
        (-max(values), facts.high and -facts.high),
        (min(slopes), facts.slope_low),
        (-max(slopes), facts.slope_high and -facts.slope_high),
    ):
        if bound is None:
            assert seen < -0.25
        else:
            assert bound - 1e-6 <= seen < bound + 0.03
    assert (facts.monotonic == "increasing") == (min(slopes) > -1e-6)
    for x in GRID:
        inside = [
            (low is None or x > low) and (high is None or x < high)
            for low, high in facts.dead
        ]
        if -5 < x < 12:  # beyond, others underflow
            assert (slope(name, x) == 0) == any(inside), x


@pytest.mark.parametrize("name", NAMES)
def test_minimum_and_where(name: str, found: dict[str, Facts]) -> None:
    facts = found[name]
    if name in ("relu", "relu2", "relu6"):
        assert (facts.minimum, facts.minimum_at, facts.minimum_until) == (0, None, 0)
    elif name == "clamp":
        assert (facts.minimum, facts.minimum_at, facts.minimum_until) == (-1, None, -1)
    elif name == "leaky_relu2":
        assert (facts.minimum, facts.minimum_at) == (0, 0)
    elif facts.monotonic == "increasing":  # the bound is approached, never reached
        assert (facts.minimum, facts.minimum_at) == (None, None)
    else:
        best = minimize_scalar(
            ORACLE[name], bounds=(-4, -0.1), method="bounded", options={"xatol": 1e-10}
        )
        assert facts.minimum == pytest.approx(best.fun, abs=1e-14)
        assert facts.minimum_at == pytest.approx(best.x, abs=1e-6)
        assert abs(slope(name, facts.minimum_at)) < 1e-9


@pytest.mark.parametrize("name", NAMES)
def test_shares_under_the_normal_distribution(
    name: str, found: dict[str, Facts]
) -> None:
    step = 1 / 2048
    points = [(i + 0.5) * step for i in range(-9 * 2048, 9 * 2048)]
    weights = [
        (slope(name, x), w * step)
        for x, w in zip(points, norm.pdf(points), strict=True)
    ]
    zero = sum(w for known, w in weights if known == 0)
    saturated = sum(w for known, w in weights if abs(known) < 0.01 - 1e-9)
    assert found[name].zero_gradient == pytest.approx(zero, abs=2e-6)
    assert found[name].saturated == pytest.approx(saturated, abs=2e-4)


@pytest.mark.parametrize("name", NAMES)
def test_moments_under_the_normal_distribution(
    name: str, found: dict[str, Facts]
) -> None:
    for ours, power in ((found[name].mean, 1), (found[name].second_moment, 2)):
        expected = sum(
            quad(
                lambda x, power=power: ORACLE[name](x) ** power * phi(x),
                a,
                b,
                epsabs=1e-13,
                epsrel=1e-13,
            )[0]
            for a, b in ((-12, -3), (-3, 0), (0, 3), (3, 12))
        )
        assert ours == pytest.approx(expected, abs=1e-11)


@pytest.mark.parametrize(
    ("function", "says"),
    [
        (lambda x: x.sum(), "changes the shape"),
        (lambda x: x.float(), "changes the dtype"),
        (lambda x: 3, "returns int, not a tensor"),
        (lambda x: x.softmax(-1), "mixes elements"),
        (lambda x: x.detach(), "no derivative"),
        (lambda x: 1 / 0, "raised ZeroDivisionError"),
        (lambda x: x * torch.ones(9), "dtype torch.bfloat16 to torch.float32"),
        (lambda x: x * torch.ones(9, dtype=x.dtype), "raised RuntimeError"),
        (lambda x: torch.nn.functional.dropout(x, 0.01), "is random: two calls"),
        (lambda x: torch.nn.functional.rrelu(x, training=True), "is random"),
    ],
)
def test_what_is_no_activation_is_refused(function, says: str) -> None:
    with pytest.raises(FfnbenchError, match=says) as caught:
        check_function(function, "mine.py:f")
    assert caught.value.hint
