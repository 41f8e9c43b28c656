"""What stands on a roofline: each timed case as a dot, each ceiling that the run measured as a line. Numbers alone.

A dot's FLOPs are those of matrix products in the mode that was timed, its bytes those of weights, input and output.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from statistics import median

from ffnbench.errors import FfnbenchError
from ffnbench.ffn.dtypes import item_bytes
from ffnbench.metrics import CEILINGS, LATENCY, ROOF
from ffnbench.plan import Case, Mode, Plan
from ffnbench.result import Bound, Report, Roof


@dataclass(frozen=True, slots=True, kw_only=True)
class Dot:
    """A case: FLOPs per byte, and FLOPs per second with their interval."""

    case: Case
    intensity: float
    rate: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """The best roof of its kind, and its FLOPs or bytes per second."""

    roof: Roof
    rate: float

    def at(self, intensity: float) -> float:
        """The most FLOPs per second that it allows a case of this intensity."""
        return self.rate * intensity if self.roof.bound is Bound.BYTES else self.rate


@dataclass(frozen=True, slots=True, kw_only=True)
class Roofline:
    """Cases in the plan's order; products by dtype, then bytes by level, each the fastest first."""

    dots: tuple[Dot, ...]
    products: tuple[Line, ...]
    bytes_: tuple[Line, ...]


def no_ceilings() -> FfnbenchError:
    """What to say of a run that is asked for its roofline, and has none."""
    return FfnbenchError("this run has no ceilings", "measure with --metrics latency,ceilings")


def has_ceilings(what: Plan | Report) -> bool:
    """Whether a plan asks for ceilings; whether a run has some."""
    return CEILINGS in what.metrics if isinstance(what, Plan) else bool(what.roofs)


def roofline(report: Report) -> Roofline:
    """What is to be drawn; raises FfnbenchError where the run has no ceilings, or no case that was timed."""
    lines = [Line(roof=roof, rate=rate) for roof in report.roofs if (rate := _rate(report, roof))]
    if not lines:
        raise no_ceilings()
    dots = tuple(dot for case in report.plan.shown if (dot := _dot(report, case)))
    if not dots:
        raise FfnbenchError("no case of this run has a latency and a number of FLOPs", "the table says why")
    works = {(dot.case.workload.dtype, dot.case.workload.threads) for dot in dots}
    met = {found.roof for found in report.shares if found.bound is Bound.BYTES}
    levels = {line.roof.level for line in lines if line.roof.name in met}
    products = [line for line in lines if line.roof.bound is Bound.PRODUCTS]
    reading = [line for line in lines if line.roof.bound is Bound.BYTES]
    if reading and not levels:  # no case is held back by bytes: then the slowest level shows how far away that is
        levels = {max(reading, key=lambda line: line.roof.amount).roof.level}
    return Roofline(
        dots=dots,
        products=_best((line, _work(line.roof)) for line in products if _work(line.roof) in works),
        bytes_=_best((line, (line.roof.level, line.roof.threads)) for line in reading if line.roof.level in levels),
    )


def _work(roof: Roof) -> tuple[str, int]:
    return roof.dtype, roof.threads


def _best(lines: Iterable[tuple[Line, Hashable]]) -> tuple[Line, ...]:
    """The fastest of each kind, the fastest kind first."""
    found: dict[Hashable, Line] = {}
    for line, kind in lines:
        if kind not in found or line.rate > found[kind].rate:
            found[kind] = line
    return tuple(sorted(found.values(), key=lambda line: -line.rate))


def _rate(report: Report, roof: Roof) -> float | None:
    """FLOPs or bytes per second; None for a call that does neither, or was not timed."""
    seconds = [s.value for s in report.samples if (s.case, s.metric) == (roof.name, ROOF)]
    return roof.amount / median(seconds) if seconds and roof.bound is not Bound.CALL else None


def _dot(report: Report, case: Case) -> Dot | None:
    """None for a case that failed or was not timed, or whose FLOPs nobody knows."""
    latency, flops = report.estimate(case.label, LATENCY), _flops(report, case)
    if latency is None or report.failure(case.label) or not flops:
        return None
    low, high = latency.low or latency.value, latency.high or latency.value
    return Dot(
        case=case,
        intensity=flops / _bytes(report, case),
        rate=flops / latency.value,
        low=flops / high,
        high=flops / low,
    )


def _flops(report: Report, case: Case) -> int:
    """Of one call; 0 where they are not known."""
    cost = report.cost(case.label)
    parts = {
        Mode.FORWARD.value: (cost.flops_forward,),
        Mode.TRAIN.value: (cost.flops_forward, cost.flops_backward),
        Mode.BACKWARD.value: (cost.flops_backward,),
    }[case.workload.mode]
    return case.workload.tokens * sum(part or 0 for part in parts) if None not in parts else 0


def _bytes(report: Report, case: Case) -> int:
    """What no call can do without: weights, input and output, each once."""
    cost, work = report.cost(case.label), case.workload
    weights = cost.weight_bytes if cost.weight_bytes_touched is None else cost.weight_bytes_touched
    return weights + 2 * work.tokens * case.ffn.d_model * item_bytes(work.dtype)
