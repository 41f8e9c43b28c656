"""What stands on a roofline: each timed case as a dot, each ceiling that cases met as a line. Numbers alone."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ffnbench.errors import FfnbenchError
from ffnbench.metrics import CEILINGS, LATENCY
from ffnbench.plan import Case, Plan
from ffnbench.result import Bound, Report, Roof
from ffnbench.stats.ceilings import Ceiling, ceilings_of, needed_by

ALIKE = 0.1  # lines that are no farther apart are one


@dataclass(frozen=True, slots=True, kw_only=True)
class Dot:
    """A case: FLOPs per byte, and FLOPs per second with their interval."""

    case: Case
    intensity: float
    rate: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Roofline:
    """Cases in the plan's order; the ceilings of their products and of their bytes, each the fastest first."""

    dots: tuple[Dot, ...]
    products: tuple[Ceiling, ...]
    bytes_: tuple[Ceiling, ...]


def no_ceilings() -> FfnbenchError:
    """What to say of a run that is asked for its roofline, and has none."""
    return FfnbenchError("this run has no ceilings", "measure with --metrics latency,ceilings")


def has_ceilings(what: Plan | Report) -> bool:
    """Whether a plan asks for ceilings; whether a run has some."""
    return CEILINGS in what.metrics if isinstance(what, Plan) else bool(what.roofs)


def roofline(report: Report) -> Roofline:
    """What is to be drawn; raises FfnbenchError where the run has no ceilings, or no case that was timed.

    Bytes are those that hold a case back; where they hold none, the slowest, to show how far away that is.
    """
    found = ceilings_of(report.run, report.costs) if report.roofs else {}
    if not report.roofs:
        raise no_ceilings()
    if not any({Bound.PRODUCTS, Bound.BYTES} & bounds.keys() for bounds in found.values()):
        raise FfnbenchError(
            "other work disturbed every ceiling of this run", "measure again while the machine is quiet"
        )
    dots = tuple(dot for case in report.plan.shown if (dot := _dot(report, case)))
    if not dots:
        raise FfnbenchError("no case of this run has a latency and a number of FLOPs", "the table says why")
    drawn = [dot.case.label for dot in dots]
    reading = {label: found[label][Bound.BYTES] for label in drawn if Bound.BYTES in found.get(label, {})}
    held = [line for label, line in reading.items() if (share := report.share(label)) and share.bound is Bound.BYTES]
    return Roofline(
        dots=dots,
        products=_apart(found[label][Bound.PRODUCTS] for label in drawn if Bound.PRODUCTS in found.get(label, {})),
        bytes_=_apart(held or sorted(reading.values(), key=lambda line: line.rate)[:1]),
    )


def at(line: Ceiling, intensity: float) -> float:
    """The most FLOPs per second that a ceiling allows a case of this intensity."""
    return line.rate * intensity if line.roof.bound is Bound.BYTES else line.rate


def _apart(lines: Iterable[Ceiling]) -> tuple[Ceiling, ...]:
    """The fastest first, without those that would lie on a faster one of the same kind."""
    kept: list[Ceiling] = []
    for line in sorted(lines, key=lambda line: -line.rate):
        alike = (other for other in kept if _kind(other.roof) == _kind(line.roof))
        if all(line.rate < (1 - ALIKE) * other.rate for other in alike):
            kept.append(line)
    return tuple(kept)


def _kind(roof: Roof) -> tuple[str, int, str]:
    return roof.level, roof.threads, roof.dtype if roof.bound is Bound.PRODUCTS else ""


def _dot(report: Report, case: Case) -> Dot | None:
    """None for a case that failed or was not timed, or whose FLOPs nobody knows."""
    latency, needed = report.estimate(case.label, LATENCY), needed_by(case, report.cost(case.label))
    if latency is None or report.failure(case.label) or not needed.flops:
        return None
    low, high = latency.low or latency.value, latency.high or latency.value
    return Dot(
        case=case,
        intensity=needed.flops / needed.bytes,
        rate=needed.flops / latency.value,
        low=needed.flops / high,
        high=needed.flops / low,
    )
