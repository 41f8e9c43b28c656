"""Every number of the facts table against an independent computation: definitions in libm, scipy's integration."""

from __future__ import annotations

import math

import pytest
import torch
from scipy.integrate import quad
from scipy.optimize import minimize_scalar
from scipy.stats import norm
from test_variants import ORACLE, sigmoid

from ffnbench.bench.study import function_of
from ffnbench.errors import FfnbenchError
from ffnbench.ffn.facts import Facts, checked, find_facts, flat_zones
from ffnbench.ffn.spec import ActivationSpec
from ffnbench.ffn.variants import ACTIVATIONS

SELU, ALPHA = 1.0507009873554805, 1.6732632423543772


def phi(x: float) -> float:
    return math.exp(-x * x / 2) / math.sqrt(2 * math.pi)


def swish_slope(x: float, beta: float) -> float:
    s = sigmoid(beta * x)
    return s + beta * x * s * (1 - s)


def gelu_tanh_slope(x: float) -> float:
    c = math.sqrt(2 / math.pi)
    t = math.tanh(c * (x + 0.044715 * x**3))
    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * c * (1 + 0.134145 * x * x)


def mish_slope(x: float) -> float:
    t = math.tanh(math.log1p(math.exp(x)))
    return t + x * (1 - t * t) * sigmoid(x)


# derivatives by hand, from the definitions
SLOPE = {
    "identity": lambda x: 1.0,
    "relu": lambda x: float(x > 0),
    "leaky_relu": lambda x: 1.0 if x > 0 else 0.01,
    "relu2": lambda x: 2 * max(0.0, x),
    "sigmoid": lambda x: sigmoid(x) * (1 - sigmoid(x)),
    "tanh": lambda x: 1 - math.tanh(x) ** 2,
    "gelu": lambda x: 0.5 * math.erfc(-x / math.sqrt(2)) + x * phi(x),
    "gelu_tanh": gelu_tanh_slope,
    "quick_gelu": lambda x: swish_slope(x, 1.702),
    "silu": lambda x: swish_slope(x, 1.0),
    "swish": lambda x: swish_slope(x, 0.5),
    "mish": mish_slope,
    "hardswish": lambda x: 0.0 if x < -3 else 1.0 if x > 3 else x / 3 + 0.5,
    "elu": lambda x: 1.0 if x > 0 else math.exp(x),
    "selu": lambda x: SELU * (1.0 if x > 0 else ALPHA * math.exp(x)),
    "softplus": sigmoid,
}
# what no numerics can tell: bounds, where they are only approached, and the order of smoothness
INF = None
SHAPE = {  # low, high, monotonic, kinks, bends, slope low, slope high
    "identity": (INF, INF, True, (), (), 1, 1),
    "relu": (0, INF, True, (0,), (), 0, 1),
    "leaky_relu": (INF, INF, True, (0,), (), 0.01, 1),
    "relu2": (0, INF, True, (), (0,), 0, INF),
    "sigmoid": (0, 1, True, (), (), 0, 0.25),
    "tanh": (-1, 1, True, (), (), 0, 1),
    "gelu": (-0.1699712075, INF, False, (), (), -0.1289041452, 1.1289041452),
    "gelu_tanh": (-0.1700407506, INF, False, (), (), -0.1289930687, 1.1289930687),
    "quick_gelu": (-0.1636101896, INF, False, (), (), -0.0998393201, 1.0998393201),
    "silu": (-0.2784645428, INF, False, (), (), -0.0998393201, 1.0998393201),
    "swish": (-0.5569290855, INF, False, (), (), -0.0998393201, 1.0998393201),
    "mish": (-0.3088434130, INF, False, (), (), -0.1125261224, 1.0884981613),
    "hardswish": (-0.375, INF, False, (-3, 3), (), -0.5, 1.5),
    "elu": (-1, INF, True, (), (0,), 0, 1),
    "selu": (-1.7580993408, INF, True, (0,), (), 0, 1.7580993408),
    "softplus": (0, INF, True, (), (), 0, 1),
}
NAMES = [row.name for row in ACTIVATIONS]


@pytest.fixture(scope="module")
def found() -> dict[str, Facts]:
    return {
        row.name: find_facts(function_of(ActivationSpec(activation=row.name, beta=0.5 if row.beta else None)))
        for row in ACTIVATIONS
    }


@pytest.mark.parametrize("name", NAMES)
def test_bounds_and_shape(name: str, found: dict[str, Facts]) -> None:
    facts = found[name]
    low, high, monotonic, kinks, bends, slope_low, slope_high = SHAPE[name]
    assert (facts.monotonic, facts.kinks, facts.bends) == (monotonic, kinks, bends)
    for ours, expected in (
        (facts.low, low), (facts.high, high), (facts.slope_low, slope_low), (facts.slope_high, slope_high),
    ):  # fmt: skip
        assert (ours is None) == (expected is None)
        assert ours is None or ours == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("name", NAMES)
def test_minimum_and_where(name: str, found: dict[str, Facts]) -> None:
    facts = found[name]
    if name in ("relu", "relu2"):
        assert (facts.minimum, facts.minimum_at, facts.minimum_until) == (0, None, 0)
    elif SHAPE[name][2]:  # monotonic: the bound is approached, never reached
        assert (facts.minimum, facts.minimum_at) == (None, None)
    else:
        best = minimize_scalar(ORACLE[name], bounds=(-4, -0.1), method="bounded", options={"xatol": 1e-10})
        assert facts.minimum == pytest.approx(best.fun, abs=1e-14)
        assert facts.minimum_at == pytest.approx(best.x, abs=1e-6)
        assert abs(SLOPE[name](facts.minimum_at)) < 1e-11


@pytest.mark.parametrize("name", NAMES)
def test_slopes_extremes(name: str, found: dict[str, Facts]) -> None:
    values = [SLOPE[name](i / 4096) for i in range(-12 * 4096, 12 * 4096 + 1)]
    assert found[name].slope_low == pytest.approx(min(values), abs=1e-4)
    if found[name].slope_high is not None:
        assert found[name].slope_high == pytest.approx(max(values), abs=1e-4)


@pytest.mark.parametrize("name", NAMES)
def test_shares_under_the_normal_distribution(name: str, found: dict[str, Facts]) -> None:
    step = 1 / 2048
    weights = [
        (SLOPE[name](x), norm.pdf(x) * step) for i in range(-9 * 2048, 9 * 2048) for x in [(i + 0.5) * step]
    ]  # fmt: skip
    zero = sum(w for slope, w in weights if slope == 0)
    saturated = sum(w for slope, w in weights if abs(slope) < 0.01)
    assert found[name].zero_gradient == pytest.approx(zero, abs=2e-6)
    assert found[name].saturated == pytest.approx(saturated, abs=2e-4)


@pytest.mark.parametrize("name", NAMES)
def test_moments_under_the_normal_distribution(name: str, found: dict[str, Facts]) -> None:
    for ours, power in ((found[name].mean, 1), (found[name].second_moment, 2)):
        expected = sum(
            quad(lambda x, power=power: ORACLE[name](x) ** power * phi(x), a, b, epsabs=1e-13, epsrel=1e-13)[0]
            for a, b in ((-12, -3), (-3, 0), (0, 3), (3, 12))
        )
        assert ours == pytest.approx(expected, abs=1e-11)


def test_known_moments_in_closed_form(found: dict[str, Facts]) -> None:
    assert found["relu"].mean == pytest.approx(1 / math.sqrt(2 * math.pi), abs=1e-14)
    assert found["gelu"].mean == pytest.approx(1 / (2 * math.sqrt(math.pi)), abs=1e-14)
    assert (found["relu"].second_moment, found["relu2"].second_moment) == pytest.approx((0.5, 1.5), abs=1e-13)
    assert found["hardswish"].zero_gradient == pytest.approx(norm.cdf(-3), abs=1e-14)
    assert found["selu"].second_moment == pytest.approx(1, abs=1e-13)  # what it was made for


def test_a_function_of_the_users_gets_the_same_facts() -> None:
    """telu, x tanh(exp(x)): its minimum is known to ten digits (arXiv 2412.20269)."""
    facts = find_facts(lambda x: x * x.exp().tanh())
    assert facts.minimum == pytest.approx(-0.3532857778, abs=1e-10)
    assert facts.minimum_at == pytest.approx(-1.0788600, abs=1e-6)
    assert facts.kinks == facts.bends == ()


@pytest.mark.parametrize("at", [0.3, -1.7, 2.0])
def test_a_kink_is_found_wherever_it_is(at: float) -> None:
    assert find_facts(lambda x: (x - at).abs()).kinks == (at,)
    assert find_facts(lambda x: torch.relu(x - at) ** 2).bends == (at,)


def test_a_function_that_is_not_finite_has_no_facts() -> None:
    with pytest.raises(FfnbenchError, match="not finite at x = -40"):
        find_facts(lambda x: x.sqrt())


def test_dead_zones() -> None:
    assert flat_zones(torch.relu, -4, 4) == [(-4.0, 0.0)]
    assert flat_zones(lambda x: x.clamp(-1, 1), -4, 4) == [(-4.0, -1.001953125), (1.001953125, 4.0)]
    assert flat_zones(torch.nn.functional.silu, -4, 4) == []
    assert flat_zones(torch.nn.functional.silu, -1000, 1000) == []  # beyond -745 exp underflows, that is no dead zone


@pytest.mark.parametrize(
    ("function", "says"),
    [
        (lambda x: x.sum(), "changes the shape"),
        (lambda x: x.float(), "changes the dtype"),
        (lambda x: 3, "returns int, not a tensor"),
        (lambda x: x.softmax(-1), "mixes elements"),
        (lambda x: x.detach(), "no derivative"),
        (lambda x: 1 / 0, "raised ZeroDivisionError"),
    ],
)
def test_what_is_no_activation_is_refused(function, says: str) -> None:
    with pytest.raises(FfnbenchError, match=says) as caught:
        checked(function, "mine.py:f")
    assert caught.value.hint
