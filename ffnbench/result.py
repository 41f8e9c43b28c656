"""The answer: samples, estimates, comparisons, failures and where they were made. Plain data, to and from JSON.

Base units (seconds, bytes); unknown is None. Nothing is decided here (stats.py) and nothing is formatted
(report/). `rows` is the flat view that CSV and pandas share: a contract, one row a case.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from enum import Enum
from typing import TYPE_CHECKING, Any

from ffnbench.ffn.cost import Cost
from ffnbench.ffn.spec import FFNSpec, Gate
from ffnbench.jsonable import LATER
from ffnbench.plan import COMPILE, CONTROL, DEAD, HIT, LATENCY, LOAD, PEAK, SAVED, ZEROS, Case, Note, Plan

if TYPE_CHECKING:
    import pandas as pd


SCHEMA = 1


class Verdict(Enum):
    """What the interval of a ratio allows to say. UNCLEAR is an answer: this run can't tell."""

    REFERENCE = "reference"
    SLOWER = "slower"
    FASTER = "faster"
    SAME = "same"
    UNCLEAR = "unclear"


class FailureKind(Enum):
    """Why a case has no numbers."""

    OOM = "oom"
    UNSUPPORTED = "unsupported"
    CRASH = "crash"
    TIMEOUT = "timeout"
    MISMATCH = "mismatch"
    RECOMPILED = "recompiled"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One measured value of one case: mean over `calls` calls, at place `order` of a round of a worker."""

    case: str
    metric: str
    worker: int
    round: int
    order: int
    value: float
    calls: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A case that could not be measured: a row of the table, never a crash."""

    case: str
    kind: FailureKind
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A value and its interval over `workers` independent processes; exact metrics have no interval."""

    value: float
    low: float | None = None
    high: float | None = None
    confidence: float = 0.95
    workers: int = 1
    samples: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """The estimate of one metric of one case."""

    case: str
    metric: str
    estimate: Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """A case's metric against the reference's, as a ratio measured within the same rounds."""

    case: str
    reference: str
    metric: str
    ratio: Estimate | None
    verdict: Verdict
    reason: str = ""
    resolution: float | None = None  # the smallest relative difference that this row could have shown


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """Where the numbers were made. `fingerprint` names the kind of machine and software that latency depends on."""

    fingerprint: str
    cpu: str
    cpus: int
    usable_cpus: int
    memory_bytes: int | None
    system: str
    python: str
    ffnbench: str
    torch: str | None = None
    torch_threads: int | None = None
    cpu_capability: str | None = None
    blas: str | None = None
    gpu: str | None = None
    gpu_memory_bytes: int | None = None
    cuda: str | None = None
    git_commit: str | None = None
    git_dirty: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Timer:
    """What measuring itself costs in a worker: a call of an empty module, and one tick of the clock, in seconds."""

    empty_call_s: float
    resolution_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Where a run is: what the runner tells whoever listens."""

    done: float  # share of the whole run, 0 to 1
    text: str
    eta_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One arm of a run: its cases, and those facts (name, value) that not all arms share."""

    name: str
    cases: tuple[str, ...]
    facts: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """Outputs of base and head on one input with the base's weights: relative errors (Frobenius), unknown is None.

    `error` is head against base in the case's dtype, `exact_error` the same with both run in float64, `base_error` and
    `head_error` each against its own run in float64. `apart` says why the weights could not be carried over, and then
    each side has its own of the same seed. `tolerance` is what rounding explains.
    """

    error: float | None
    tolerance: float
    exact_error: float | None = None
    base_error: float | None = None
    head_error: float | None = None
    apart: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What the bench room hands back: raw samples, before any statistics."""

    plan: Plan  # the device resolved
    samples: tuple[Sample, ...]
    failures: tuple[Failure, ...]
    warnings: tuple[Note, ...]
    environment: Environment | None
    interrupted: bool
    wall_s: float
    stopped: str = ""  # why the run ended early, where it was not by hand
    limit: str = ""  # which limit ended an adaptive run: precision, budget or workers
    timer: Timer | None = None
    sides: tuple[Side, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """An activation traced: x, f(x) and f'(x) in float64, and the intervals where f' is exactly zero.

    The slope is NaN, a gap, where f has no finite derivative.
    """

    x: tuple[float, ...]
    y: tuple[float, ...]
    slope: tuple[float, ...]
    flat: tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseCost:
    """The cost of one case."""

    case: str
    cost: Cost


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The whole answer, with the question and every sample: each figure can be computed again from it."""

    plan: Plan
    costs: tuple[CaseCost, ...]
    created: str
    version: str
    environment: Environment | None = None
    measured: tuple[Measured, ...] = ()
    comparisons: tuple[Comparison, ...] = ()
    failures: tuple[Failure, ...] = ()
    warnings: tuple[Note, ...] = ()
    samples: tuple[Sample, ...] = field(default=(), repr=False)
    interrupted: bool = False
    stopped: str = ""
    limit: str = ""
    timer: Timer | None = None
    sides: tuple[Side, ...] = field(default=(), metadata=LATER)  # where arms differ, if there are several
    wall_s: float | None = None
    seal: str = ""  # of the cases and their costs, made when the file was written: an edit shows
    schema: int = SCHEMA

    def cost(self, label: str) -> Cost:
        """The cost of a case."""
        return next(c.cost for c in self.costs if c.case == label)

    def estimate(self, label: str, metric: str) -> Estimate | None:
        """The estimate of a metric of a case, or None."""
        return next((m.estimate for m in self.measured if (m.case, m.metric) == (label, metric)), None)

    def comparison(self, label: str) -> Comparison | None:
        """The comparison of a case's latency with the reference's, or None."""
        return next((c for c in self.comparisons if c.case == label), None)

    def failure(self, label: str) -> Failure | None:
        """Why a case failed, or None."""
        return next((f for f in self.failures if f.case == label), None)

    @property
    def resolution(self) -> float | None:
        """The smallest relative difference that every row of this run could have shown."""
        told = (c.resolution for c in self.comparisons if c.case != CONTROL)
        return max((r for r in told if r is not None), default=None)

    @property
    def run(self) -> Run:
        """What was measured, without what was computed from it: every figure can be computed again."""
        shared = {f.name for f in fields(Run)} - {"wall_s"}
        return Run(**{name: getattr(self, name) for name in shared}, wall_s=self.wall_s or 0.0)

    def rows(self) -> list[dict[str, Any]]:
        """One flat record a case, in the order and with the names of the CSV contract."""
        return [_row(self, case) for case in self.plan.shown]

    def frame(self) -> pd.DataFrame:
        """The rows as a pandas DataFrame, one row a case, unknown as missing."""
        import pandas as pd

        return pd.DataFrame(self.rows())


def _row(report: Report, case: Case) -> dict[str, Any]:
    """The contract of the CSV: these columns in this order; further ones may follow."""
    cost, work = report.cost(case.label), case.workload
    latency = report.estimate(case.label, LATENCY)
    comparison, failure = report.comparison(case.label), report.failure(case.label)
    ratio = comparison.ratio if comparison else None
    own = case.ffn if isinstance(case.ffn, FFNSpec) else None
    return {
        "label": case.label,
        "variant": case.variant,
        "d_model": case.ffn.d_model,
        "d_ff": case.ffn.d_ff,
        "activation": own.activation if own else None,
        "gated": own.gate is not Gate.NONE if own else None,
        "gate": own.gate.value if own else None,
        "bias": own.bias if own else None,
        "dtype": work.dtype,
        "device": work.device,
        "mode": work.mode,
        "backend": work.backend,
        "batch": work.batch,
        "seq_len": work.seq_len,
        "threads": work.threads,
        "params": cost.params,
        "params_active": cost.params_active,
        "flops_forward": cost.flops_forward,
        "flops_backward": cost.flops_backward,
        "flops_elementwise": cost.flops_elementwise,
        "latency_s": latency.value if latency else None,
        "latency_low_s": latency.low if latency else None,
        "latency_high_s": latency.high if latency else None,
        "ratio": ratio.value if ratio else None,
        "ratio_low": ratio.low if ratio else None,
        "ratio_high": ratio.high if ratio else None,
        "verdict": comparison.verdict.value if comparison else None,
        "tokens_per_s": work.tokens / latency.value if latency else None,
        "peak_bytes": _bytes(report, case, PEAK, cost.peak_bytes),
        "saved_bytes": _bytes(report, case, SAVED, cost.saved_bytes),
        "weight_bytes": cost.weight_bytes,
        "workers": latency.workers if latency else None,
        "rounds": _rounds(report, case.label) if latency else None,
        "failure": f"{failure.kind.value}: {failure.message}" if failure else None,
        "flops_elementwise_backward": cost.flops_elementwise_backward,
        "macs_forward": cost.flops_forward // 2 if cost.flops_forward is not None else None,
        "params_formula": cost.params_formula,
        "beta": own.beta if own else None,
        "dropout": own.dropout if own else None,
        "init": own.init.value if own else None,
        "sizing": case.sizing,
        "residual": case.residual,
        "counted": cost.counted,
        "zero_share": _value(report, case, ZEROS),
        "dead_share": _value(report, case, DEAD),
        "resolution": comparison.resolution if comparison else None,
        "slowdown": work.slowdown,
        **_experts(report, case, cost),
        **_compiling(report, case),
    }


def _experts(report: Report, case: Case, cost: Cost) -> dict[str, Any]:
    """The columns about experts and clamped gates, empty without them."""
    own = case.ffn if isinstance(case.ffn, FFNSpec) else None
    moe = own.moe if own else None
    return {
        "limit": own.limit if own else None,
        "up_offset": own.up_offset if own else None,
        "experts": moe.experts if moe else None,
        "top_k": moe.top_k if moe else None,
        "shared_d_ff": moe.shared_d_ff if moe else None,
        "dispatch": moe.dispatch.value if moe else None,
        "routing": case.workload.routing,
        "expert_load_max": _value(report, case, LOAD),
        "experts_hit": _value(report, case, HIT),
        "weight_bytes_touched": cost.weight_bytes_touched,
    }


def _compiling(report: Report, case: Case) -> dict[str, Any]:
    """Seconds of a cold compilation, empty where nothing is compiled."""
    found = report.estimate(case.label, COMPILE)
    return {
        "compile_s": found.value if found else None,
        "compile_low_s": found.low if found else None,
        "compile_high_s": found.high if found else None,
    }


def _rounds(report: Report, label: str) -> int:
    """Rounds that a worker really made, at most: an interrupted one made fewer than planned."""
    made = (s.round + 1 for s in report.samples if s.case == label and s.metric == LATENCY)
    return max(made, default=report.plan.protocol.rounds)


def _value(report: Report, case: Case, metric: str) -> float | None:
    estimate = report.estimate(case.label, metric)
    return estimate.value if estimate else None


def _bytes(report: Report, case: Case, metric: str, closed_form: int | None) -> int | None:
    """What was measured; where nothing was meant to be, as in `cost`, the closed form (tests hold the two equal)."""
    estimate = report.estimate(case.label, metric)
    return int(estimate.value) if estimate else closed_form if report.environment is None else None
