"""What is known of a machine -> the least time that a call could take on it, and how near such bounds have been. Pure.

A call needs what ceilings.py says: FLOPs of its matrix products, and the bytes that it can't do without. Here they are
set against the peak of its dtype and the bandwidth of memory, as published, or as a run has measured them. Of a form
that is split over devices each has its part of d_ff, and their outputs are added by an all-reduce: in a ring each sends
2 (N - 1) / N of the output's bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from statistics import median, quantiles

from ffnbench.errors import FfnbenchError
from ffnbench.ffn.cost import Cost
from ffnbench.ffn.dtypes import item_bytes
from ffnbench.ffn.spec import FFNSpec
from ffnbench.jsonable import decode, least
from ffnbench.plan import Case, MatmulPrecision, Mode, NoProbe, Workload, cost_of
from ffnbench.result import Bound, CaseCost, Run
from ffnbench.stats.ceilings import MEMORY, Needed, needed_by, reached_in

INSIDE = {MatmulPrecision.HIGH.value: "tf32", MatmulPrecision.MEDIUM.value: "bfloat16"}  # of float32's products
ABOVE_ZERO = least(1e-9)


@dataclass(frozen=True, slots=True, kw_only=True)
class Hardware:
    """A machine, or one device of it: TFLOP/s of dense products by dtype, GB/s of memory, GB of it, GB/s in one
    direction of all its links to neighbours. `clock` says at which the peaks are, `source` and `address` who says so,
    `checked` when that was looked up. Unknown is None.
    """

    name: str
    maker: str = ""
    tflops_float64: float | None = field(default=None, metadata=ABOVE_ZERO)
    tflops_float32: float | None = field(default=None, metadata=ABOVE_ZERO)
    tflops_tf32: float | None = field(default=None, metadata=ABOVE_ZERO)
    tflops_bfloat16: float | None = field(default=None, metadata=ABOVE_ZERO)
    tflops_float16: float | None = field(default=None, metadata=ABOVE_ZERO)
    gb_per_s: float | None = field(default=None, metadata=ABOVE_ZERO)
    memory_gb: float | None = field(default=None, metadata=ABOVE_ZERO)
    link: str = ""
    link_gb_per_s: float | None = field(default=None, metadata=ABOVE_ZERO)
    clock: str = ""
    note: str = ""
    source: str = ""
    address: str = ""
    checked: str = ""

    def peak(self, path: str) -> float | None:
        """FLOPs per second of products of a dtype, or of tf32."""
        tera: float | None = getattr(self, f"tflops_{path}")
        return tera and tera * 1e12


@dataclass(frozen=True, slots=True, kw_only=True)
class Least:
    """The bounds of a case on a machine, of each of so many devices: `needed` and `weights` (bytes) are a device's.

    Seconds are None where the machine's figure is not known, or what the case needs.
    """

    case: Case
    machine: Hardware
    devices: int
    path: str  # whose peak it is: a dtype, or tf32
    needed: Needed | None
    weights: int | None
    products_s: float | None
    bytes_s: float | None
    all_reduce_s: float | None

    @property
    def bound(self) -> Bound | None:
        """Which of the two binds; None where one of them is not known."""
        if self.products_s is None or self.bytes_s is None:
            return None
        return Bound.PRODUCTS if self.products_s > self.bytes_s else Bound.BYTES

    @property
    def device_s(self) -> float | None:
        """The larger of what is known of a device."""
        return max((s for s in (self.products_s, self.bytes_s) if s is not None), default=None)

    @property
    def seconds(self) -> float | None:
        """With the all-reduce behind it, where there are several devices."""
        if self.device_s is None or self.all_reduce_s is None:
            return None
        return self.device_s + self.all_reduce_s

    @property
    def intensity(self) -> float | None:
        """FLOPs per byte."""
        return self.needed.flops / self.needed.bytes if self.needed and self.needed.flops is not None else None

    @property
    def ridge(self) -> float | None:
        """FLOPs per byte from which on products bind on this machine."""
        peak, bandwidth = self.machine.peak(self.path), self.machine.gb_per_s
        return peak / (bandwidth * 1e9) if peak and bandwidth else None


def path_of(work: Workload) -> str:
    """Whose peak bounds a workload: its dtype, or what float32 products may be inside."""
    return INSIDE.get(work.matmul_precision, work.dtype) if work.dtype == "float32" else work.dtype


def least_of(case: Case, cost: Cost, machine: Hardware, devices: int = 1) -> Least:
    """The bounds of a case on a machine, split over so many of it. How code of the user's splits is not known."""
    work, path = case.workload, path_of(case.workload)
    part = split(case, devices)
    if part is not None and devices > 1:
        cost = cost_of(part, NoProbe())
    needed = needed_by(part, cost) if part is not None and not cost.failed else None
    flops, peak, bandwidth = needed.flops if needed else None, machine.peak(path), machine.gb_per_s
    output = work.tokens * case.ffn.d_model * item_bytes(work.dtype)
    sent = 2 * (devices - 1) / devices * output * (2 if work.mode == Mode.TRAIN.value else 1)  # in each pass once
    link = machine.link_gb_per_s
    return Least(
        case=case, machine=machine, devices=devices, path=path, needed=needed,
        weights=cost.weight_bytes if needed else None,
        products_s=None if flops is None or peak is None else flops / peak,
        bytes_s=None if needed is None or bandwidth is None else needed.bytes / (bandwidth * 1e9),
        all_reduce_s=0.0 if devices == 1 else link and sent / (link * 1e9),
    )  # fmt: skip


def split(case: Case, devices: int) -> Case | None:
    """What the device with the largest part of d_ff runs: what has no d_ff (router, output gate) each has whole. None
    for code of the user's; raises FfnbenchError for more devices than d_ff.
    """
    if devices == 1:
        return case
    if not isinstance(case.ffn, FFNSpec):
        return None
    if devices > case.ffn.d_ff:
        raise FfnbenchError(
            f"{case.label} has a d_ff of {case.ffn.d_ff:,}: {devices:,} devices can't share it",
            f"--tensor-parallel {case.ffn.d_ff} is the most",
        )
    moe = case.ffn.moe and replace(case.ffn.moe, shared_d_ff=-(-case.ffn.moe.shared_d_ff // devices))
    return replace(case, ffn=replace(case.ffn, d_ff=-(-case.ffn.d_ff // devices), moe=moe))


def all_least(
    cases: Iterable[Case], costs: Iterable[CaseCost], machines: Iterable[Hardware], devices: int
) -> list[Least]:
    """The bounds of every case on every machine, one machine after the other."""
    known, cases = {found.case: found.cost for found in costs}, tuple(cases)
    return [least_of(case, known[case.label], machine, devices) for machine in machines for case in cases]


def machine_of(name: str, run: Run) -> Hardware:
    """The machine of a run, by the ceilings that were measured in it: the fastest products of each dtype, and reads
    from memory. Raises FfnbenchError where it has none.
    """
    found: dict[str, float] = {}
    for ceiling in reached_in(run):
        roof = ceiling.roof
        if roof.bound is Bound.PRODUCTS:
            precise = roof.dtype == "float32"
            key = f"tflops_{INSIDE.get(roof.matmul_precision, roof.dtype) if precise else roof.dtype}"
            found[key] = max(found.get(key, 0.0), ceiling.rate / 1e12)
        elif roof.level == MEMORY:
            found["gb_per_s"] = max(found.get("gb_per_s", 0.0), ceiling.rate / 1e9)
    if "gb_per_s" not in found:
        raise FfnbenchError(
            f"{name!r} has no ceiling of memory that other work left alone",
            "measure what no cache holds while the machine is quiet, for example --d-model 4096 --seq-len 1",
        )
    return decode(Hardware, {"name": name, "source": "ceilings of that run", **found})


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Measured times over their bounds, of so many shapes: the median, and the ends of the middle 90 %."""

    shapes: int
    median: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class HowNear:
    """How far above their bounds measured times have been, on one machine by its own ceilings, for shapes that were not
    used to make these; None of what too few shapes were bound by.
    """

    machine: str
    measured: str  # the day
    all: Spread
    products: Spread | None = None
    memory: Spread | None = None

    def of(self, bound: Bound | None) -> Spread:
        """Of shapes that the same binds, where there were enough."""
        known = {Bound.PRODUCTS: self.products, Bound.BYTES: self.memory}
        return (known.get(bound) if bound else None) or self.all


FEWEST = 10  # shapes: the ends of 90 % are known of no fewer


def spread_of(quotients: Sequence[float]) -> Spread | None:
    """Of measured times over their bounds; None of too few."""
    if len(quotients) < FEWEST:
        return None
    ends = quantiles(quotients, n=20, method="inclusive")
    return Spread(shapes=len(quotients), median=median(quotients), low=ends[0], high=ends[-1])
