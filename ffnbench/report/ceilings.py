"""How near a row is to what the machine can do: its columns, and the line that says what the ceilings are."""

from __future__ import annotations

from ffnbench.metrics import LATENCY
from ffnbench.plan import Case, MatmulPrecision, Mode
from ffnbench.report.records import Record
from ffnbench.report.table import UNKNOWN, Cell, Column, Field, text_field
from ffnbench.result import Bound, Estimate, MachineCeilings, Report, Roof, Share
from ffnbench.stats.ceilings import Ceiling, ceilings_of, needed_by, read_bytes
from ffnbench.units import IEC, TIME, decimals, digits, quantity

PRIORITY = 8  # the first columns to go
BESIDE_BACKENDS = 2  # the share is what they are measured for
GIGA = 1e9
MOST = 3  # ceilings of one bound that are told


def ceiling_record(report: Report, case: Case) -> Record:
    """What a row does a second, its share of the ceiling that binds it, and which that is; empty where not known."""
    latency, share = report.estimate(case.label, LATENCY), report.share(case.label)
    needed = needed_by(case, report.cost(case.label))
    roof = roof_of(report, share)
    return {
        "flops_per_s": needed.flops / latency.value if latency and needed.flops else None,
        "bytes_per_s": needed.bytes / latency.value if latency else None,
        "ceiling_share": share.share.value if share else None,
        "ceiling_share_low": share.share.low if share else None,
        "ceiling_share_high": share.share.high if share else None,
        "bound_by": bound_text(roof) if roof else None,
        "ceiling_path": roof.path if roof else None,
    }


def roof_of(report: Report, share: Share | None) -> Roof | None:
    """The roof that a share is of."""
    return next((roof for roof in report.roofs if share and roof.name == share.roof), None)


def bound_text(roof: Roof) -> str:
    """`products`, `call`, or where the bytes are read from: `L3`, `memory`."""
    return (roof.level or roof.bound.value) if roof.bound is Bound.BYTES else roof.bound.value


def ceiling_fields(report: Report) -> list[Field]:
    """The columns, where ceilings were measured."""
    if not report.shares:
        return []

    def share(row: Record) -> Cell:
        found = report.share(row["label"])
        return Cell(text=UNKNOWN) if found is None else Cell(text=share_text(found.share), value=found.share.value)

    backends = any(not case.workload.eager for case in report.plan.shown)
    priority = BESIDE_BACKENDS if backends else PRIORITY
    return [
        (Column(title="of ceiling", unit="% [95%]", priority=priority, key="ceiling_share"), share),
        text_field("bound_by", "bound by", PRIORITY, left=True),
    ]


def rate_fields() -> list[Field]:
    """What was reached: FLOPs of what was timed, and bytes that it can't do without, over its seconds."""

    def rate(key: str, title: str, priority: int) -> Field:
        def cell(row: Record) -> Cell:
            value = row[key]
            return Cell(text=UNKNOWN if value is None else digits(value / GIGA), value=value)

        return Column(title=title, priority=priority, key=key), cell

    return [rate("flops_per_s", "GFLOP/s", 6), rate("bytes_per_s", "GB/s", 7)]


def share_text(share: Estimate) -> str:
    """`87.3 [86.1, 88.4]`, in percent."""
    if share.low is None or share.high is None:
        return f"{100 * share.value:.1f}"
    places = min(2, decimals(50 * (share.high - share.low)))
    value, low, high = (f"{100 * one:.{places}f}" for one in (share.value, share.low, share.high))
    return f"{value} [{low}, {high}]"


def ceiling_lines(report: Report) -> list[str]:
    """What the ceilings of this run are: the fastest roofs, and what is meant by bytes."""
    if not report.shares:
        return []
    ceilings = {ceiling.roof.name: ceiling for found in ceilings_of(report.run, report.costs).values()
                for ceiling in found.values()}.values()  # fmt: skip
    binding = {share.roof for share in report.shares}
    told: list[str] = []
    for bound in Bound:
        found = [c for c in ceilings if c.roof.bound is bound and (bound is not Bound.CALL or c.roof.name in binding)]
        found.sort(key=lambda c: (c.roof.name not in binding, -c.rate))
        several = (
            len({_kind_of_product(c.roof) if bound is Bound.PRODUCTS else read_bytes(c.roof) for c in found[:MOST]}) > 1
        )
        told += [_ceiling_text(report, c, several=several) for c in found[:MOST]]
    return [f"ceilings of this run: {', '.join(told)}"]


def _ceiling_text(report: Report, ceiling: Ceiling, *, several: bool) -> str:
    """`148 GFLOP/s (oneDNN, 512 x 2048 x 768)`; where there are `several`, with what tells them apart."""
    roof = ceiling.roof
    if roof.bound is Bound.CALL:
        return f"{quantity(ceiling.seconds, TIME)} (a call of an empty module)"
    if roof.bound is Bound.PRODUCTS:
        dtype = f"{_kind_of_product(roof)}: " if several else ""
        return f"{digits(ceiling.rate / GIGA)} GFLOP/s ({dtype}{roof.path}, {' x '.join(map(str, roof.shape))})"
    train = any(case.workload.mode != Mode.FORWARD.value for case in report.plan.shown)
    size = f"{quantity(read_bytes(roof), IEC)} read" if several else ""
    what = "weights + input + output" + (" of the forward" if train else "")
    return f"{digits(ceiling.rate / GIGA)} GB/s ({', '.join(filter(None, (size, roof.level, what)))})"


def _kind_of_product(roof: Roof) -> str:
    """`float32`, or `float32, high` where its precision is not the highest."""
    highest = roof.matmul_precision == MatmulPrecision.HIGHEST.value
    return roof.dtype if highest else f"{roof.dtype}, {roof.matmul_precision} precision"


def machine_records(found: MachineCeilings) -> list[Record]:
    """What `env` says of ceilings: products by dtype and path, bytes by level, the empty call, the peak beside them."""
    best = sorted(zip(found.roofs, found.seconds, strict=True), key=lambda one: one[1] / one[0].amount)
    threads = max((roof.threads for roof in found.roofs), default=1)
    plural = "s" if threads > 1 else ""
    records = [{"fact": "ceilings", "value": f"measured {found.created[:10]}, with {threads} thread{plural}"}]
    for dtype in dict.fromkeys(r.dtype for r in found.roofs if r.bound is Bound.PRODUCTS):
        by_path = [f"{_rate(r, s)} {r.path} ({' x '.join(map(str, r.shape))})" for r, s in best
                   if r.bound is Bound.PRODUCTS and r.dtype == dtype]  # fmt: skip
        records.append({"fact": f"{dtype} GFLOP/s", "value": ", ".join(by_path)})
    records += [
        {"fact": f"{dtype} peak", "value": f"at most {digits(flops / GIGA)} GFLOP/s by clock, width and cores"}
        for dtype, flops in found.peaks
    ]
    reads = [(r, s) for r, s in best if r.bound is Bound.BYTES]
    for level, size in dict.fromkeys((r.level, read_bytes(r)) for r in found.roofs if r.bound is Bound.BYTES):
        by_path = [f"{_rate(r, s)} {r.path}" for r, s in reads if read_bytes(r) == size]
        where = f"{level or 'bytes'}, {quantity(size, IEC)}"
        records.append({"fact": f"GB/s from {where}", "value": ", ".join(by_path)})
    records += [
        {"fact": "empty call", "value": quantity(seconds, TIME)} for roof, seconds in best if roof.bound is Bound.CALL
    ]
    return records


def _rate(roof: Roof, seconds: float) -> str:
    return digits(roof.amount / seconds / GIGA)
