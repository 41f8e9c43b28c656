"""Every number of the facts table against an independent computation: definitions in libm, scipy's integration."""

from __future__ import annotations

import math

import pytest
import torch
from scipy.integrate import quad
from scipy.optimize import minimize_scalar
from scipy.special import lambertw
from scipy.stats import norm
from test_activations import ORACLE, sigmoid

from ffnbench.activations.facts import Facts
from ffnbench.activations.finding import checked, find_facts, flat_zones
from ffnbench.activations.table import ACTIVATIONS
from ffnbench.errors import FfnbenchError
from ffnbench.ffn.spec import ActivationSpec
from ffnbench.report.tables.activations import _interval
from ffnbench.worker.probe_jobs import function_of

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
    "prelu": lambda x: 1.0 if x > 0 else 0.25,
    "relu6": lambda x: float(0 < x < 6),
    "relu2": lambda x: 2 * max(0.0, x),
    "sigmoid": lambda x: sigmoid(x) * (1 - sigmoid(x)),
    "tanh": lambda x: 1 - math.tanh(x) ** 2,
    "gelu": lambda x: 0.5 * math.erfc(-x / math.sqrt(2)) + x * phi(x),
    "gelu_10": lambda x: 0.5 * math.erfc(-x / math.sqrt(2)) + x * phi(x) if x < 10 else 0.0,
    "gelu_tanh": gelu_tanh_slope,
    "quick_gelu": lambda x: swish_slope(x, 1.702),
    "silu": lambda x: swish_slope(x, 1.0),
    "swish": lambda x: swish_slope(x, 0.5),
    "mish": mish_slope,
    "hardswish": lambda x: 0.0 if x < -3 else 1.0 if x > 3 else x / 3 + 0.5,
    "elu": lambda x: 1.0 if x > 0 else math.exp(x),
    "selu": lambda x: SELU * (1.0 if x > 0 else ALPHA * math.exp(x)),
    "softplus": sigmoid,
    "xielu": lambda x: 0.5 + (1.6 * x if x > 0 else 0.8 * math.expm1(x)),
}
# what no numerics can tell: bounds, where they are only approached, and the order of smoothness
INF = None
SHAPE = {  # low, high, monotonic, kinks, bends, slope low, slope high
    "identity": (INF, INF, "increasing", (), (), 1, 1),
    "relu": (0, INF, "increasing", (0,), (), 0, 1),
    "leaky_relu": (INF, INF, "increasing", (0,), (), 0.01, 1),
    "prelu": (INF, INF, "increasing", (0,), (), 0.25, 1),
    "relu6": (0, 6, "increasing", (0, 6), (), 0, 1),
    "relu2": (0, INF, "increasing", (), (0,), 0, INF),
    "sigmoid": (0, 1, "increasing", (), (), 0, 0.25),
    "tanh": (-1, 1, "increasing", (), (), 0, 1),
    "gelu": (-0.1699712075, INF, "no", (), (), -0.1289041452, 1.1289041452),
    "gelu_10": (-0.1699712075, 10, "no", (10,), (), -0.1289041452, 1.1289041452),
    "gelu_tanh": (-0.1700407506, INF, "no", (), (), -0.1289930687, 1.1289930687),
    "quick_gelu": (-0.1636101896, INF, "no", (), (), -0.0998393201, 1.0998393201),
    "silu": (-0.2784645428, INF, "no", (), (), -0.0998393201, 1.0998393201),
    "swish": (-0.5569290855, INF, "no", (), (), -0.0998393201, 1.0998393201),
    "mish": (-0.3088434130, INF, "no", (), (), -0.1125261224, 1.0884981613),
    "hardswish": (-0.375, INF, "no", (-3, 3), (), -0.5, 1.5),
    "elu": (-1, INF, "increasing", (), (0,), 0, 1),
    "selu": (-1.7580993408, INF, "increasing", (0,), (), 0, 1.7580993408),
    "softplus": (0, INF, "increasing", (), (), 0, 1),
    "xielu": (-0.5 - 0.3 * math.log(0.375), INF, "no", (), (0,), -0.3, INF),  # least where exp(x) is 3/8
}
NAMES = [row.name for row in ACTIVATIONS]


@pytest.fixture(scope="module")
def found() -> dict[str, Facts]:
    return {
        row.name: facts_of(ActivationSpec(activation=row.name, beta=0.5 if row.beta else None)) for row in ACTIVATIONS
    }


def facts_of(spec: ActivationSpec) -> Facts:
    return find_facts(function_of(spec))


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
    if name in ("relu", "relu2", "relu6"):
        assert (facts.minimum, facts.minimum_at, facts.minimum_until) == (0, None, 0)
    elif SHAPE[name][2] == "increasing":  # monotonic: the bound is approached, never reached
        assert (facts.minimum, facts.minimum_at) == (None, None)
    else:
        best = minimize_scalar(ORACLE[name], bounds=(-4, -0.1), method="bounded", options={"xatol": 1e-10})
        assert facts.minimum == pytest.approx(best.fun, abs=1e-14)
        assert facts.minimum_at == pytest.approx(best.x, abs=1e-6)
        assert abs(SLOPE[name](facts.minimum_at)) < 1e-11


@pytest.mark.parametrize("name", NAMES)
def test_shares_under_the_normal_distribution(name: str, found: dict[str, Facts]) -> None:
    step = 1 / 2048
    points = [(i + 0.5) * step for i in range(-9 * 2048, 9 * 2048)]
    weights = [(SLOPE[name](x), w * step) for x, w in zip(points, norm.pdf(points), strict=True)]
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


W = float(lambertw(1 / math.e).real)  # silu: f' = 0 is (x + 1) exp(x + 1) = -1/e, the minimum -W(1/e)


@pytest.mark.parametrize("beta", [1e-3, 1.0, 1e5])
def test_swish_is_silu_scaled_at_every_beta(beta: float) -> None:
    facts = facts_of(ActivationSpec(activation="swish", beta=beta))
    assert facts.minimum == facts.low == pytest.approx(-W / beta, rel=1e-12)
    assert facts.minimum_at == pytest.approx(-(1 + W) / beta, rel=1e-12)
    assert (facts.high, facts.monotonic, facts.jumps, facts.kinks, facts.bends) == (None, "no", (), (), ())
    assert (facts.slope_low, facts.slope_high) == pytest.approx((-0.0998393201, 1.0998393201), abs=1e-9)


def test_swish_turned_round_and_swish_that_is_a_line() -> None:
    turned = facts_of(ActivationSpec(activation="swish", beta=-1.0))  # x sigmoid(-x) = -silu(-x)
    assert (turned.low, turned.high) == (None, pytest.approx(W, rel=1e-14))
    assert (turned.high_reached, turned.minimum, turned.monotonic) == (True, None, "no")
    line = facts_of(ActivationSpec(activation="swish", beta=0.0))
    assert (line.low, line.high, line.slope_low, line.slope_high, line.monotonic) == (
        None,
        None,
        0.5,
        0.5,
        "increasing",
    )
    assert line.second_moment == pytest.approx(0.25, rel=1e-13)


UNBOUNDED = {
    "asinh": torch.asinh,
    "sign(x) log(1 + |x|)": lambda x: x.sign() * x.abs().log1p(),
    "1e-5 x": lambda x: 1e-5 * x,
    "x sin x": lambda x: x * x.sin(),
    "cube root": lambda x: x.sign() * x.abs() ** (1 / 3),
}
RANGES = {  # as in the table: [ is reached
    "[0, 6]": lambda x: x.clamp(0, 6),
    "(-1, 1)": torch.tanh,
    "(0, 1)": torch.sigmoid,
    "[0, inf)": torch.relu,
    "[0, inf) ": lambda x: (x + 6).relu(),
    "[0, inf)  ": lambda x: (-x).relu(),
    "(-inf, 0]": lambda x: -x.relu(),
    "(-inf, 0)": torch.nn.functional.logsigmoid,
    "(-1, 1) ": lambda x: (x.exp() - (-x).exp()) / (x.exp() + (-x).exp()),  # NaN from 710 on
    "(-1, 1)  ": lambda x: x / (1 + x.abs()),
    "(0, 1]": lambda x: (-x * x).exp(),
    "[-1, 1]": torch.sin,
    "[0, 1]": lambda x: (x > 0).to(x) + 0 * x,
    "(-1.5708, 1.5708)": torch.atan,
    "[-0.2785, inf)": lambda x: x * x.exp() / (1 + x.exp()),  # NaN from 710 on
    "(0, inf)": lambda x: (1 + x.exp()).log(),  # inf from 710 on
}


@pytest.mark.parametrize("name", UNBOUNDED)
def test_slow_growth_is_growth(name: str) -> None:
    facts = find_facts(UNBOUNDED[name])
    assert (facts.low, facts.high, facts.minimum) == (None, None, None)


@pytest.mark.parametrize("range_", RANGES)
def test_a_bound_that_is_reached_is_told_from_one_that_is_approached(range_: str) -> None:
    f = find_facts(RANGES[range_])
    assert _interval(f) == range_.strip()


@pytest.mark.parametrize(
    ("function", "at", "until"),
    [
        (lambda x: (x + 6).relu(), None, -6.0),
        (lambda x: (-x).relu(), 0.0, None),
        (lambda x: (x.abs() - 1).relu(), -1.0, 1.0),
        (lambda x: 0 * x + 3, None, None),
        (lambda x: x.clamp(0.3, 6), None, 0.3),
    ],
)
def test_a_minimum_held_on_an_interval(function, at: float | None, until: float | None) -> None:
    facts = find_facts(function)
    assert (facts.minimum_flat, facts.minimum_at, facts.minimum_until) == (True, at, until)


@pytest.mark.parametrize(
    ("function", "says"),
    [
        (lambda x: -x, "decreasing"), (lambda x: -x.relu(), "decreasing"), (torch.sign, "increasing"),
        (lambda x: 0 * x, "constant"), (lambda x: x.exp() - 100 * x, "no"), (lambda x: x**3 - 3 * x, "no"),
        (lambda x: 1e-20 * torch.nn.functional.silu(x), "no"), (lambda x: x - x.floor(), "no"),
    ],
)  # fmt: skip
def test_monotony(function, says: str) -> None:
    assert find_facts(function).monotonic == says


@pytest.mark.parametrize(
    ("function", "jumps", "kinks", "bends"),
    [
        (torch.sign, (0,), (), ()),
        (lambda x: (x > 1 / 3).to(x) + 0.1 * x, (0.3333333333,), (), ()),
        (lambda x: x.clamp(-3, 3).round(), (-2.5, -1.5, -0.5, 0.5, 1.5, 2.5), (), ()),
        (lambda x: 0.01 * x.abs() + x**3, (), (0,), ()),
        (lambda x: x.abs().sqrt(), (), (0,), ()),  # f' is not finite there
        (lambda x: x.sign() * x.abs().log1p(), (), (), (0,)),  # autograd's f'(0) is 0 by itself
        (lambda x: (1e5 * (x - 1.0003)).sigmoid(), (), (), ()),  # steep is not broken
        (lambda x: x * (1e5 * x).sigmoid(), (), (), ()),
        (lambda x: torch.where(x > 20, x, x.exp().log1p()), (), (), ()),  # as torch's softplus: off by 2e-9
    ],
)  # fmt: skip
def test_jumps_kinks_and_bends(function, jumps, kinks, bends) -> None:
    facts = find_facts(function)
    assert (facts.jumps, facts.kinks, facts.bends) == (jumps, kinks, bends)
    assert facts.smooth == (not jumps + kinks + bends)


def test_a_slope_without_bound_and_a_minimum_in_its_cusp() -> None:
    facts = find_facts(lambda x: x.abs().sqrt())
    assert (facts.slope_low, facts.slope_high, facts.minimum, facts.minimum_at) == (None, None, 0, 0)
    assert facts.second_moment == pytest.approx(math.sqrt(2 / math.pi), rel=1e-10)  # E|x|


def test_a_function_that_is_not_finite_has_no_facts() -> None:
    with pytest.raises(FfnbenchError, match="not finite at x = -40"):
        find_facts(lambda x: x.sqrt())


def test_dead_zones() -> None:
    assert flat_zones(torch.relu, -4, 4) == [(-4.0, 0.0)]
    assert flat_zones(lambda x: x.clamp(-1, 1), -4, 4) == [(-4.0, -1.0), (1.0, 4.0)]
    assert flat_zones(torch.nn.functional.silu, -4, 4) == []
    assert flat_zones(torch.nn.functional.silu, -1000, 1000) == []  # beyond -745 exp underflows, that is no dead zone
    assert flat_zones(torch.nn.functional.silu, -1000, -800) == []
    assert flat_zones(lambda x: torch.nn.functional.gelu(x, approximate="tanh"), -10, 10) == []  # rounds from -7.2 on
    assert flat_zones(lambda x: x * (1e5 * x).sigmoid(), -4, 4) == []
    assert flat_zones(torch.round, -1, 1) == [(-1, -0.5), (-0.5, 0.5), (0.5, 1)]


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
        checked(function, "mine.py:f")
    assert caught.value.hint
