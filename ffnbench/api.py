"""The whole journey of a question, for the command line and for notebooks: request -> plan -> run -> report."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ffnbench import jsonable
from ffnbench.bench.environment import usable_cpus
from ffnbench.bench.group import Launch
from ffnbench.bench.prober import Prober
from ffnbench.bench.runner import run
from ffnbench.bench.session import Session, WorkerLost
from ffnbench.errors import FfnbenchError
from ffnbench.models.configs import UnknownFamily
from ffnbench.models.model import CountedModel, count_model
from ffnbench.models.presets import model_of
from ffnbench.plan import CONTROL, OWN, Arm, NoProbe, Plan, cost_of
from ffnbench.planning.block import is_block
from ffnbench.planning.compare import build as build_plan
from ffnbench.planning.effort import check_timeout
from ffnbench.report.block import block_tables
from ffnbench.report.compare import compare_table, cost_table
from ffnbench.report.store import load as load_report
from ffnbench.report.table import Table
from ffnbench.report.text import html_fragment, plain, renderable
from ffnbench.request import Request
from ffnbench.result import CaseCost, Progress, Report
from ffnbench.stats.enough import Answered
from ffnbench.stats.verdict import refuse_blind, summarise
from ffnbench.version import __version__

if TYPE_CHECKING:
    from torch import nn

DEFAULTS = Request()
TIMEOUT_S = 300.0


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ShownReport(Report):
    """A Report that shows itself as its table: in a notebook, in a terminal and with rich."""

    @property
    def table(self) -> Table:
        """The table that belongs to this report: a block's, measured variants, or costs alone."""
        if is_block(self.plan):
            return block_tables(self)
        return compare_table(self) if self.environment else cost_table(self)

    def __repr__(self) -> str:
        return plain(self.table)

    def _repr_html_(self) -> str:
        return html_fragment(self.table)

    def __rich_console__(self, console: Any, options: Any) -> Any:
        yield renderable(self.table, options.max_width)


def price(request: Request) -> ShownReport:
    """Costs only: no measuring, and no torch unless a module of the user's own has to be counted."""
    plan, costs = _plan(request)
    return _report(plan.with_device("cpu"), costs)


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A plan with its costs, ready to be measured."""

    plan: Plan
    costs: tuple[CaseCost, ...]

    def measure(
        self,
        on_progress: Callable[[Progress], None] = lambda _: None,
        launch: Launch = Session,
        answered: Answered | None = None,
    ) -> ShownReport:
        """Run it. Raises Unfinished where no worker starts, FfnbenchError where the device is not there."""
        done = run(self.plan, on_progress=on_progress, launch=launch, answered=answered)
        measured, comparisons, warnings = summarise(done)
        return replace(
            _report(done.plan, self._priced(done.plan)),
            environment=done.environment,
            measured=measured,
            comparisons=comparisons,
            failures=done.failures,
            warnings=(*done.warnings, *warnings),
            samples=done.samples,
            interrupted=done.interrupted,
            stopped=done.stopped,
            limit=done.limit,
            timer=done.timer,
            sides=done.sides,
            wall_s=done.wall_s,
        )

    def priced(self) -> ShownReport:
        """The costs alone."""
        return _report(self.plan.with_device("cpu"), self.costs)

    def _priced(self, plan: Plan) -> tuple[CaseCost, ...]:
        """The costs with the device known: dropout's mask is smaller on CUDA. What was counted stays."""
        counted = {c.case for c in self.costs if c.cost.counted}
        return tuple(
            c if c.case in counted else CaseCost(case=c.case, cost=cost_of(plan.case(c.case), NoProbe()))
            for c in self.costs
        )


def prepare(request: Request) -> Prepared:
    """Everything that can fail before measuring, done."""
    plan, costs = _plan(request)
    refuse_blind(plan)
    return Prepared(plan=plan, costs=costs)


def price_plan(plan: Plan) -> Prepared:
    """A plan that is there already, with its costs as they are now."""
    with Prober(plan.protocol.timeout_s) as prober:
        check_arms(plan.arms, prober)
        costs = tuple(CaseCost(case=case.label, cost=cost_of(case, prober)) for case in plan.cases)
    return Prepared(plan=plan, costs=costs)


def check_arms(arms: Iterable[Arm], prober: Prober) -> None:
    """Raise FfnbenchError for an arm whose interpreter is missing or has no torch."""
    probers = [prober.within(arm) for arm in arms if arm != OWN and arm.name != CONTROL]
    for one in probers:
        one.start()  # all of them, before the first is waited for
    for one in probers:
        one.facts_of_torch()


def _plan(request: Request) -> tuple[Plan, tuple[CaseCost, ...]]:
    if request.threads is None:
        request = replace(request, threads=usable_cpus())
    with Prober(check_timeout(request.timeout)) as prober:
        plan = build_plan(request, prober)
        check_arms(plan.arms, prober)
        costs = tuple(CaseCost(case=case.label, cost=cost_of(case, prober)) for case in plan.cases)
    return plan, costs


def _report(plan: Plan, costs: tuple[CaseCost, ...]) -> ShownReport:
    return ShownReport(
        plan=plan, costs=costs, created=datetime.now(UTC).isoformat(timespec="seconds"), version=__version__
    )


def _request(variants: str | Iterable[str], options: dict[str, Any]) -> Request:
    known = {f.name for f in fields(Request)}
    for name in options:
        if name not in known:
            near = get_close_matches(name, known, n=1)
            raise TypeError(f"unexpected argument {name!r}" + (f"; did you mean {near[0]!r}?" if near else ""))
    if "dtype" in options:
        options = {**options, "dtype": str(options["dtype"]).removeprefix("torch.")}
    return Request(variants=variants if isinstance(variants, str) else ",".join(variants), **options)


def compare(variants: str | Iterable[str] = DEFAULTS.variants, **options: Any) -> ShownReport:
    """Measure variants side by side; the options are the flags of `ffnbench compare` (see request.Request).

    >>> report = ffnbench.compare("relu,swiglu", d_model=256, quick=True)
    >>> report.frame()[["label", "params", "latency_s", "ratio", "verdict"]]
    """
    return prepare(_request(variants, options)).measure()


def cost(variants: str | Iterable[str] = DEFAULTS.variants, **options: Any) -> ShownReport:
    """Count parameters, FLOPs and bytes of variants without measuring; the options are those of `compare`."""
    return price(_request(variants, options))


def build(variant: str, *, d_model: int, device: Any = None, dtype: Any = None, **options: Any) -> nn.Module:
    """The nn.Module of a variant, in this process: maps (..., d_model) to (..., d_model).

    Widths follow the same rules as in `compare`: a gated form has the parameters of the classic one at 4 * d_model
    unless d_ff, rule or match="none" say otherwise. `dtype` is torch's or a name, and `@dtype=` and `@device=` work.
    """
    import torch

    from ffnbench.bench.building import build as build_module
    from ffnbench.bench.probing import InProcess

    named = {"dtype": dtype} if dtype is not None else {}
    plan = build_plan(_request(variant, {"d_model": d_model, **named, **options}), InProcess())
    if len(plan.cases) > 1:
        raise FfnbenchError(f"{variant!r} names {len(plan.cases)} variants", "build one at a time")
    case = plan.cases[0]
    if case.arm != OWN:
        raise FfnbenchError(f"{case.arm} is of another process", "a module is built in this one")
    own_device = None if case.workload.device == "auto" else case.workload.device
    place = {"device": device or own_device, "dtype": getattr(torch, case.workload.dtype)}
    return build_module(case.ffn, **place)


def recompute(report: ShownReport) -> tuple[ShownReport, str]:
    """The report with every figure computed anew from its samples, and what to say where they were not the same."""
    if report.environment is None:
        return report, ""
    measured, comparisons, warnings = summarise(report.run)
    known = set(report.warnings)
    fresh = replace(
        report,
        measured=measured,
        comparisons=comparisons,
        warnings=(*report.warnings, *(note for note in warnings if note not in known)),
    )
    if _figures(fresh) == _figures(report):
        return fresh, ""
    return fresh, f"the figures stored in the file (by ffnbench {report.version}) are not those of its samples"


def _figures(report: Report) -> list[tuple[str, str, str, str]]:
    """What is compared, to nine digits: sums of floats may differ in the last ones between machines."""
    found = [(m.case, m.metric, f"{m.estimate.value:.9g}", "") for m in report.measured]
    for c in report.comparisons:
        found.append((c.case, c.metric, f"{c.ratio.value:.9g}" if c.ratio else "", c.verdict.value))
    return found


def load(path: str) -> ShownReport:
    """A report that `-o run.json` wrote; raises FfnbenchError for a file that is none, or is of another schema."""
    report = load_report(path)
    return ShownReport(**{f.name: getattr(report, f.name) for f in fields(Report)})


def inspect(name: str) -> CountedModel:
    """The FFNs of a preset or of a config.json in numbers."""
    try:
        return count_model(model_of(name))
    except UnknownFamily as problem:
        return _count_by_transformers(name, problem)


def _count_by_transformers(path: str, unknown: UnknownFamily) -> CountedModel:
    """Ask a worker; where transformers can't help, what was unknown is the error."""
    session = Session()
    try:
        answer = session.ask({"do": "hf_layers", "source": str(Path(path).expanduser().resolve())}, TIMEOUT_S)
    except WorkerLost as lost:
        raise FfnbenchError(unknown.message, f"{unknown.hint}; building it: {lost}") from lost
    finally:
        session.close()
    if "failure" in answer:
        raise FfnbenchError(unknown.message, f"{unknown.hint}; {answer['message']}")
    return jsonable.decode(CountedModel, answer["model"])
