"""Facts of an activation: minimum, range, monotony, smoothness, and what it does to
N(0, 1).

They are data, facts.json, which `python benchmarks/activation_facts.py` computes in
float64 and writes.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from ffnbench.common import jsonable
from ffnbench.ffn.spec import ActivationSpec

FACTS_FILE = Path(__file__).with_name("facts.json")


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Facts of a scalar function f. None stands for a bound that is not finite, or a
    minimum that is not reached.

    `low` and `high` are the bounds of f, `slope_low` and `slope_high` those of f'.
    `low_reached` and `high_reached` say whether f takes the values of its bounds. The
    minimum is at the point `minimum_at`, or where it is `minimum_flat` on the whole
    interval [minimum_at, minimum_until], where None is an end at infinity. `monotonic`
    is increasing (never decreasing), decreasing, constant or no. `jumps` is where f
    itself jumps, `kinks` where f' does, `bends` where only f'' does. `zero_gradient`
    and `saturated` are shares of f'(x), `mean` and `second_moment` moments of f(x), for
    x ~ N(0, 1). `dead` are the intervals on which f' is exactly zero, with None for an
    end at infinity.
    """

    low: float | None
    low_reached: bool
    high: float | None
    high_reached: bool
    minimum: float | None
    minimum_at: float | None
    minimum_until: float | None
    minimum_flat: bool
    monotonic: str
    jumps: tuple[float, ...]
    kinks: tuple[float, ...]
    bends: tuple[float, ...]
    slope_low: float | None
    slope_high: float | None
    zero_gradient: float
    saturated: float
    mean: float
    second_moment: float
    dead: tuple[tuple[float | None, float | None], ...]

    @property
    def smooth(self) -> bool:
        """Whether neither f nor f' nor f'' jumps."""
        return not (self.jumps or self.kinks or self.bends)


@cache
def _facts_by_name() -> dict[str, Facts]:
    """The facts of every built-in activation, read at the first call."""
    data = json.loads(FACTS_FILE.read_text())
    return {name: jsonable.decode(Facts, facts) for name, facts in data.items()}


def facts_of(spec: ActivationSpec) -> Facts | None:
    """The facts of a built-in activation at the parameters of its row; None for others,
    and for a function of the user's.
    """
    if spec.parameters:
        return None
    return _facts_by_name().get(spec.activation)
