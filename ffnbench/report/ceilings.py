"""How near a row is to what the machine can do: its columns, and the line that says what the ceilings are."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ffnbench.errors import FfnbenchError
from ffnbench.metrics import CEILINGS
from ffnbench.plan import MatmulPrecision, Mode, Plan
from ffnbench.report.frame import Row
from ffnbench.result import Bound, Ceiling, Report, Roof
from ffnbench.units import IEC, TIME, counted, digits, quantity

GIGA = 1e9
DISTURBED = "disturbed"
MOST = 3  # ceilings of one bound that are told


def no_ceilings() -> FfnbenchError:
    """What to say of a run that is asked for its roofline, and has none."""
    return FfnbenchError("this run has no ceilings", "measure with --metrics latency,ceilings")


def has_ceilings(what: Plan | Report) -> bool:
    """Whether a plan asks for ceilings; whether a run has some."""
    return CEILINGS in what.metrics if isinstance(what, Plan) else bool(what.roofs)


def ceiling_lines(report: Report) -> list[str]:
    """What the ceilings of this run are: of each bound the fastest, those first that hold a row back."""
    if not report.shares:
        return []
    bounds = report.figures.ceilings.values()
    ceilings = {ceiling.roof.name: ceiling for found in bounds for ceiling in found.values()}.values()
    binding = {share.roof for share in report.shares}
    told: list[str] = []
    for bound in Bound:
        found = [c for c in ceilings if c.roof.bound is bound and (bound is not Bound.CALL or c.roof.name in binding)]
        found.sort(key=lambda c: (c.roof.name not in binding, -c.rate))
        several = len({_kind(c.roof) for c in found[:MOST]}) > 1
        told += [_ceiling_text(report, c, several=several) for c in found[:MOST]]
    return [f"ceilings of this run: {', '.join(told)}"]


def _ceiling_text(report: Report, ceiling: Ceiling, *, several: bool) -> str:
    """`148 GFLOP/s (oneDNN, 512 x 2048 x 768)`; where there are `several`, with what tells them apart."""
    roof, kind = ceiling.roof, [_kind(ceiling.roof)] * several
    if roof.bound is Bound.CALL:
        return f"{quantity(ceiling.seconds, TIME)} (a call of an empty module)"
    if roof.bound is Bound.PRODUCTS:
        which = ": ".join([*kind, roof.path])
        return f"{digits(ceiling.rate / GIGA)} GFLOP/s ({which}, {' x '.join(map(str, roof.shape))})"
    train = any(case.workload.mode != Mode.FORWARD.value for case in report.plan.shown)
    what = "weights + input + output" + " of the forward" * train
    return f"{digits(ceiling.rate / GIGA)} GB/s ({', '.join(filter(None, (*kind, roof.level, what)))})"


def _kind(roof: Roof) -> str:
    """`float32`, with its precision where that is not the highest; of bytes how many are read."""
    if roof.bound is Bound.BYTES:
        return f"{quantity(roof.read_bytes, IEC)} read"
    highest = roof.matmul_precision == MatmulPrecision.HIGHEST.value
    return roof.dtype if highest else f"{roof.dtype}, {roof.matmul_precision} precision"


def machine_records(found: Sequence[Ceiling], disturbed: Collection[str] = ()) -> list[Row]:
    """What `env` says of ceilings: products by dtype and path, bytes by level, the empty call; those are marked whose
    roofs have these names.
    """
    order = list(Bound)
    best = sorted(found, key=lambda ceiling: (order.index(ceiling.roof.bound), -ceiling.rate))
    threads = max((ceiling.roof.threads for ceiling in best), default=1)
    told: dict[str, list[str]] = {"ceilings": [f"with {counted(threads, 'thread')}"]}
    for ceiling in best:
        roof, rate = ceiling.roof, digits(ceiling.rate / GIGA)
        if roof.bound is Bound.PRODUCTS:
            name, value = f"{roof.dtype} GFLOP/s", f"{rate} {roof.path} ({' x '.join(map(str, roof.shape))})"
        elif roof.bound is Bound.BYTES:
            name = f"GB/s from {roof.level or 'bytes'}, {quantity(roof.read_bytes, IEC)}"
            value = f"{rate} {roof.path}"
        else:
            name, value = "empty call", quantity(ceiling.seconds, TIME)
        told.setdefault(name, []).append(f"{value} ({DISTURBED})" if roof.name in disturbed else value)
    return [{"fact": fact, "value": ", ".join(values)} for fact, values in told.items()]
