"""Every command as a few short sentences, for the terminal and for Python. The only place that joins rooms.

    compare      show(measure(plan of the request))
    block        show(measure(plan of the request))
    time         show(measure(plan of the request))
    check        show(decide(the baseline's plan, measured again))
    ab           show(decide(both sides in one plan, measured))

A request is planned and priced with the help of a prober, which looks at code of the user's; it is measured into a
report; an `Ending` shows it. Called from Python it is shown by whoever called: python/ has the functions for that.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from ffnbench import jsonable
from ffnbench.activations.facts import Facts
from ffnbench.bench import named_files
from ffnbench.bench.caches import caches
from ffnbench.bench.checkouts import placed, prober_within
from ffnbench.bench.devices import listed, why_not_seen
from ffnbench.bench.environment import (
    advice,
    auto_device,
    describe,
    memory_for,
    physical_cpus,
    usable_cpus,
    usable_memory,
    why_no_gpu,
)
from ffnbench.bench.machine_noise import others_now
from ffnbench.bench.memory_limits import check_fits, fit_into, room_for_ceilings
from ffnbench.bench.nvml import advice as device_advice
from ffnbench.bench.peak import peaks
from ffnbench.bench.prober import Prober
from ffnbench.bench.roofs import roofs_of_machine
from ffnbench.bench.runner import run
from ffnbench.bench.session import Session, WorkerLost
from ffnbench.bench.trust import Named, refuse_reached, refuse_untrusted, remember
from ffnbench.bench.turn import turn
from ffnbench.bench.worker_group import Launch, Worker
from ffnbench.errors import FfnbenchError, Unfinished, Unsupported, termination_as_interruption
from ffnbench.ffn.cost import uncounted
from ffnbench.ffn.dtypes import DTYPES
from ffnbench.ffn.spec import ActivationSpec
from ffnbench.models.configs import Unanswered
from ffnbench.models.model import CountedModel, WholeModel, count_model
from ffnbench.models.model import whole_model as whole_of
from ffnbench.models.presets import config_path, model_of
from ffnbench.plan import CONTROL, OWN, Arm, Case, NoProbe, Note, NoteKind, Plan, Probe, cost_of
from ffnbench.planning.activations import CHOSEN, every_activation, every_gated_form, parse_range, plan_timing, select
from ffnbench.planning.block import plan_block
from ffnbench.planning.compare import plan_compare
from ffnbench.planning.effort import check_timeout, pause_of
from ffnbench.planning.foreseen import Foreseen, foreseen
from ffnbench.planning.grammar import Variant
from ffnbench.planning.sides import BASE, plan_sides, sides_asked, variant_of_sides
from ffnbench.planning.workload import device_of, refuse_time
from ffnbench.report.activations import facts_view
from ffnbench.report.ceilings import machine_records
from ffnbench.report.ceilings_cache import keep_ceilings, kept_ceilings
from ffnbench.report.findings import check_view, foretold_text
from ffnbench.report.formats import Write
from ffnbench.report.listing import (
    backends_view,
    device_records,
    environment_records,
    records_view,
    timer_records,
    trusted_record,
    workers_record,
)
from ffnbench.report.models import model_view
from ffnbench.report.output import Ending, Silent
from ffnbench.report.parts import parts_view
from ffnbench.report.progress import wait_text
from ffnbench.report.shown_report import ShownReport, as_shown, difference, recompute
from ffnbench.report.side_by_side import side_by_side_view
from ffnbench.report.store import load as load_report
from ffnbench.report.views import report_view
from ffnbench.report.whole_model import whole_model_view
from ffnbench.request import (
    AnyRequest,
    Apart,
    BlockRequest,
    CheckRequest,
    CompareRequest,
    FactsRequest,
    PictureRequest,
    SelftestRequest,
    SidesRequest,
    TimingRequest,
)
from ffnbench.result import CaseCost, Environment, Failure, FailureKind, MachineCeilings, Progress, Report
from ffnbench.stats.baseline import (
    is_timed,
    of_another_method,
    policy_for,
    policy_of_sides,
    refuse_another_machine,
    refuse_another_reference,
    refuse_append,
    unpredicted,
)
from ffnbench.stats.ceilings import shares_of
from ffnbench.stats.enough import Answered
from ffnbench.stats.history import KEPT
from ffnbench.stats.looks import Look, expected, foretell, look, look_back
from ffnbench.stats.regression import (
    Checked,
    Expected,
    Finding,
    Policy,
    Status,
    exact_findings,
    incomparable,
    kind,
    latency_findings,
    output_finding,
    paired_findings,
    past_of,
    without_gain,
)
from ffnbench.stats.rounds import table_of
from ffnbench.stats.verdict import refuse_blind, summarise, with_suspects
from ffnbench.version import __version__

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from torch import nn

A = TypeVar("A", bound=AnyRequest)
T = TypeVar("T", CountedModel, WholeModel)
SILENT = Silent()
COUNT_TIMEOUT_S = 300.0
NO_DEVICE = {
    "cuda": "use --device cpu, or a CUDA build of torch on a machine with a GPU",
    "xpu": "use --device cpu, or an XPU build of torch on a machine with a GPU of Intel's",
    "mps": "use --device cpu, or a Mac with a GPU of Apple's",
}
CEILINGS_S = 4.5  # of looking for those of the machine; with what comes before and after it five
CURVE_POINTS, SURFACE_POINTS = 1601, 161
PLANS: dict[type, Callable[[Any, Probe], Plan]] = {
    CompareRequest: plan_compare,
    BlockRequest: plan_block,
    TimingRequest: plan_timing,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """The world outside: what starts a worker, and what looks at code without measuring it."""

    launch: Launch = Session
    judge: Launch | None = None  # of the process that judges outputs; None where there are none, as in a simulation
    prober: Callable[[float], Prober] = Prober
    no_gpu: Callable[[str], str] = lambda kind: ""  # why there is none of a kind, where that is known without torch
    others: Callable[[int], float | None] = lambda threads: None  # CPUs that others use now, where that disturbs


MACHINE = Machine(judge=Session, no_gpu=why_no_gpu, others=others_now)  # the one seam: a test puts one of its own here


# The commands


def compare(request: CompareRequest, ending: Silent = SILENT) -> ShownReport:
    """Measure variants side by side."""
    return _shown(measure(prepare(request, ending), ending), ending)


def cost(request: CompareRequest, ending: Silent = SILENT) -> ShownReport:
    """Count parameters, FLOPs and bytes of variants without measuring."""
    return _shown(prepare(request, ending, counts=True).priced(), ending)


def block(request: BlockRequest, ending: Silent = SILENT) -> ShownReport:
    """An FFN beside the attention of its block, by length of the sequence."""
    prepared = prepare(request, ending, counts=request.cost_only)
    return _shown(prepared.priced() if request.cost_only else measure(prepared, ending), ending)


def time_activations(request: TimingRequest, ending: Silent = SILENT) -> ShownReport:
    """The operations of activations, forward and backward, each against relu's."""
    return _shown(measure(prepare(request, ending), ending), ending)


def check(request: CheckRequest, ending: Silent = SILENT, *, update: bool = False, append: bool = False) -> Checked:
    """A baseline's own plan measured again, or a saved run, held against it.

    `update` says that what is found shall replace the baseline: one of another method is then measured as well, on its
    own kind of machine, though the two can't be compared. `append` says that it shall be added to it, and raises
    FfnbenchError where it can't be.
    """
    before = load(request.baseline)
    ending.known(before)
    for text in ending.said(None):
        ending.tell(f"note: {text}")
    own = [] if request.current else refuse_untrusted(before.plan, request.baseline, request.trust)
    policy = policy_for(before, request)
    here = cache(partial(_environment_here, before.plan))
    if append:
        now = load(request.current) if request.current else replace(before, environment=here())
        refuse_append(before, now, request.baseline, measured_here=request.current is None)
    foreseen = _foretold(before, policy, request, ending)
    looks = _look_again(before, policy, request, ending, here, own, update=update)
    exact = exact_findings(before, looks.now, policy)
    return _decided((*exact, *looks.findings), before, looks, ending, against=request.baseline, expected=foreseen)


def ab(request: SidesRequest, ending: Silent = SILENT) -> Checked:
    """Base and head in the same minutes. Raises FfnbenchError where a side can't be had, and leaves nothing behind."""
    variant = variant_of_sides(request)
    policy = policy_of_sides(request, variant.label)
    if request.base_python is None and request.head_python is None:
        _refuse_device(request.device)
    with placed(sides_asked(request, variant)) as sides, tempfile.TemporaryDirectory(prefix="ffnbench-") as folder:
        prepared, output, shared = _prepare_sides(request, variant, (sides[0].arm, sides[1].arm), folder, ending)
        looks = _look_at_sides(request, prepared, output, policy, ending, folder if shared else "")
    before, now = (_one_side(looks.now, side, variant.label) for side in (BASE, variant.label))
    exact = exact_findings(before, now, policy)
    suspect = before.suspect(variant.label) or now.suspect(variant.label)
    held = [] if suspect else [output]  # what was found before timing says nothing of rows like that
    findings = (*without_gain(looks.findings, output), *held, *without_gain(exact, output))
    return _decided(findings, before, looks, ending, sides=(sides[0].words, sides[1].words))


def report(path: str, ending: Silent = SILENT) -> tuple[ShownReport, str]:
    """A saved run again, every figure computed anew; and what to say where the file's own figures are others."""
    stored = load(path)
    ending.known(stored)
    fresh = recompute(stored)
    ending.show(lambda: report_view(fresh).ending(0))  # whatever it ended with: it can be shown
    return fresh, difference(stored, fresh)


def reports(paths: Sequence[str], ending: Silent = SILENT) -> list[ShownReport]:
    """Saved runs beside the first of them, row by row: old, new and the change with its interval; nothing is judged."""
    found = [recompute(load(path)) for path in paths]
    view = side_by_side_view(paths, found)
    ending.show(lambda: view)
    return found


def whole_model(request: BlockRequest, ending: Silent = SILENT) -> None:
    """All layers of a model, and all its parameters, counted."""
    view = whole_model_view(request)
    ending.show(lambda: view)


def facts(request: FactsRequest, ending: Silent = SILENT) -> None:
    """What is true of activations, found in float64 by a worker."""
    with MACHINE.prober(check_timeout(request.timeout)) as prober:
        chosen = select(every_activation() if request.activations is None else request.activations, prober)
        remember(chosen.values())
        found = {label: prober.facts(spec) for label, spec in chosen.items()}
    ending.show(lambda: facts_view(chosen, found))


def plot_activations(request: PictureRequest, ending: Ending) -> list[str]:
    """Curves of activations or surfaces of gated forms, into files; gives the lines that tell what was written."""
    from ffnbench.report.activation_pictures import told

    _, files, chosen = draw_activations(request)
    return told(request, chosen, ending.write(files))


def draw_activations(request: PictureRequest) -> tuple[Figure, dict[str, Write], dict[str, ActivationSpec]]:
    """The same as a figure, with what writes it by suffix, and the activations that it shows."""
    from ffnbench.report.activation_pictures import canvas_of, picture_figure, picture_files

    low, high = parse_range(request.range_)
    canvas = canvas_of(request)
    with MACHINE.prober(check_timeout(request.timeout)) as prober:
        default = every_gated_form() if request.gated else CHOSEN
        chosen = select(default if request.activations is None else request.activations, prober, gated=request.gated)
        remember(chosen.values())
        points = SURFACE_POINTS if request.gated else CURVE_POINTS
        curves = {label: prober.curve(spec, low, high, points) for label, spec in chosen.items()}
        found = {} if request.gated else _facts_where_finite(prober, chosen)
    figure = picture_figure(request, canvas, chosen, curves, found)
    return figure, picture_files(request, canvas, figure, curves), chosen


def _facts_where_finite(prober: Prober, chosen: dict[str, ActivationSpec]) -> dict[str, Facts]:
    """Facts for the marks of a picture; none for a function that is finite where it is drawn, and not elsewhere."""
    found = {}
    for label, spec in chosen.items():
        try:
            found[label] = prober.facts(spec)
        except FfnbenchError:
            continue
    return found


def inspect(name: str, ending: Silent = SILENT) -> CountedModel:
    """The FFNs of a preset or of a config.json in numbers; what is not known is counted by transformers."""
    try:
        found = count_model(model_of(name))
    except Unanswered as problem:
        found = _asked_of_transformers("hf_layers", name, problem, CountedModel)
    ending.show(lambda: model_view(found))
    return found


def inspect_whole(name: str, ending: Silent = SILENT) -> WholeModel:
    """All parameters of a preset or of a config.json by part; what the table does not know transformers counts."""
    try:
        found = whole_of(model_of(name))
        if found.params is None:
            found = _counted_besides(name, found)
    except Unanswered as problem:
        found = _asked_of_transformers("hf_whole", name, problem, WholeModel)
    ending.show(lambda: parts_view(found))
    return found


def _counted_besides(name: str, found: WholeModel) -> WholeModel:
    """The same by transformers; where that can't help, what is not known stays so, and the note says why."""
    unknown = Unanswered("the whole model is not known", "")
    try:
        return _asked_of_transformers("hf_whole", name, unknown, WholeModel)
    except FfnbenchError as problem:
        return replace(found, note="; ".join(filter(None, (found.note, problem.hint.strip("; ")))))


def environment(
    timer: bool, ending: Silent = SILENT, *, ceilings: bool = False, settings: Iterable[tuple[str, str]] = ()
) -> None:
    """Where numbers would be made, with what the harness itself costs and what the machine can do where that is asked
    for; what it could do when that was last asked is shown as such. `settings` are further facts, with their values.
    """
    worker = MACHINE.launch()
    try:
        told = _greeting(worker)
        of_device = _device_facts(worker, auto_device(told))
        overhead = timer_records(worker.ask({"do": "timer"}, COUNT_TIMEOUT_S)) if timer else []
        found = describe(told | of_device)
        reached = _ceilings_here(worker, found, ending) if ceilings else kept_ceilings(found.fingerprint)
    finally:
        worker.close()
    set_ = [{"fact": name, "value": value} for name, value in settings]
    devices = device_records(_devices(told), of_device)
    set_.append(workers_record(told.get("forks", False)))
    set_.append(trusted_record(str(named_files.named_path()), len(named_files.known())))
    records = [*environment_records(found), *devices, *set_, *overhead, *(machine_records(reached) if reached else [])]
    noisy = [*advice(), *(device_advice(of_device) if of_device else [])]
    ending.show(lambda: records_view(records, [f"noise: {text}" for text in noisy]))


def _devices(told: dict[str, Any]) -> str:
    """The accelerators that a worker sees, or why it sees none; "" where there is nothing to tell."""
    if told["gpus"]:
        return listed(told)
    if why := why_not_seen(told):
        return f"cpu alone: {why[0]}; {why[1]}"
    return f"cpu alone: {reason}" if (reason := MACHINE.no_gpu("cuda")) else ""


def _device_facts(worker: Worker, device: str) -> dict[str, Any]:
    """What a worker says of a device; nothing of the CPU, nor of one that can't be used."""
    if device == "cpu":
        return {}
    try:
        answer = worker.ask({"do": "device", "device": device}, COUNT_TIMEOUT_S)
    except WorkerLost as lost:
        raise Unfinished(f"a worker was lost over its device: {lost}", "does `nvidia-smi` work?") from lost
    return {} if "failure" in answer else answer


def backends(ending: Silent = SILENT) -> None:
    """What there is to run a forward by, and which of it can run here, on the device that `auto` would choose."""
    worker = MACHINE.launch()
    try:
        device = auto_device(_greeting(worker))
        found = worker.ask({"do": "backends", "device": device}, COUNT_TIMEOUT_S)
    except WorkerLost as lost:
        raise Unfinished(f"a worker could not say what can run: {lost}", "`ffnbench env` shows the machine") from lost
    finally:
        worker.close()
    ending.show(lambda: backends_view(found["backends"], device, found.get("bfloat16", {})))


def _ceilings_here(worker: Worker, found: Environment, ending: Silent) -> MachineCeilings:
    """What this machine can do, measured now and kept for display."""
    threads = usable_cpus()
    asked = roofs_of_machine(threads, DTYPES.names(), caches(), room_for_ceilings((), usable_memory()))
    request = {"do": "ceilings", "roofs": [jsonable.encode(roof) for roof in asked], "seconds": CEILINGS_S}
    with turn(ending.waits, ending.tell):
        answer = worker.ask(request, COUNT_TIMEOUT_S)
    if "failure" in answer:
        raise Unfinished(f"the ceilings could not be measured: {answer['message']}", "`ffnbench env` tells the rest")
    now = datetime.now(UTC).isoformat(timespec="seconds")
    peak = peaks(min(threads, physical_cpus()))
    reached = jsonable.decode(
        MachineCeilings, {**answer, "fingerprint": found.fingerprint, "created": now, "peaks": peak}
    )
    if not keep_ceilings(reached):
        ending.tell("note: the ceilings could not be kept in the cache folder: a later `ffnbench env` has none")
    return reached


def selftest(request: SelftestRequest, ending: Silent = SILENT) -> None:
    """How often ffnbench is wrong on this machine."""
    from ffnbench.report.selftest import selftest_view
    from ffnbench.selftest.exam import exam, measure

    asked = exam(request)
    _tell_seconds(ending, asked.wait, asked.plan.cases[0].workload.threads)
    with turn(ending.waits, ending.tell), ending.progress() as listener:
        told = measure(asked, listener)
    ending.show(lambda: selftest_view(told, asked.repeats))


def build(request: CompareRequest, device: Any = None) -> nn.Module:
    """The nn.Module of a request's one variant, in this process, on a device of torch's."""
    import torch

    from ffnbench.bench.building import build as build_module
    from ffnbench.bench.probe_jobs import InProcess

    plan = plan_compare(request, InProcess())
    if len(plan.cases) > 1:
        raise FfnbenchError(f"{request.variants!r} names {len(plan.cases)} variants", "build one at a time")
    case = plan.cases[0]
    if case.arm != OWN:
        raise FfnbenchError(f"{case.arm} is of another process", "a module is built in this one")
    own_device = None if case.workload.device == "auto" else case.workload.device
    return build_module(case.ffn, device=device or own_device, dtype=getattr(torch, case.workload.dtype))


def load(path: str) -> ShownReport:
    """A report that `-o run.json` wrote; raises FfnbenchError for a file that is none, or is of another schema."""
    return as_shown(load_report(path))


# The journey: a request is prepared, measured, shown


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A plan with the cost of each case: everything that can fail before measuring is done."""

    plan: Plan
    costs: tuple[CaseCost, ...]

    def priced(self) -> ShownReport:
        """The costs alone."""
        failed = [
            Failure(case=one.case, kind=FailureKind.UNSUPPORTED, message=one.cost.failed)
            for one in self.costs
            if one.cost.failed
        ]
        return replace(_new_report(self.plan.with_device("cpu"), self.costs), failures=tuple(failed))

    def costs_of(self, plan: Plan) -> tuple[CaseCost, ...]:
        """The costs of a plan's cases, its device known: dropout's mask is smaller on CUDA. What was counted stays.

        What was not priced is the control, and costs what its reference does.
        """
        known = {found.case: found for found in self.costs}
        return tuple(
            replace(found, case=case.label) if found.cost.counted else _price(case, NoProbe())
            for case in plan.cases
            if (found := known.get(case.label) or known[plan.reference])
        )


def prepare(request: AnyRequest, ending: Silent = SILENT, *, counts: bool = False) -> Prepared:
    """Plan a request and price it; raises FfnbenchError for every mistake that can be found before measuring.

    `counts` says that nothing will be measured, so that no GPU need be here.
    """
    if isinstance(request, Apart):
        pause_of(request.runs, request.pause)
        if not counts:
            _refuse_device(request.device)
    with MACHINE.prober(check_timeout(request.timeout)) as prober:
        plan = replace(PLANS[type(request)](_with_threads(request), prober), request=request)
        remember(case.ffn for case in plan.cases if case.arm == OWN)
        ending.known(plan)
        return _priced(_with_defaults(plan, ending), prober, lenient=isinstance(request, CompareRequest))


def _with_defaults(plan: Plan, ending: Silent) -> Plan:
    """The plan, with a note of the defaults that a file has set for it."""
    notes = tuple(Note(text=text, kind=NoteKind.GENERAL) for text in ending.said(plan))
    return replace(plan, notes=(*plan.notes, *notes))


def _with_threads(request: A) -> A:
    """The request with the CPUs that this process may use, where none were typed."""
    return replace(request, threads=usable_cpus()) if request.threads is None else request


def _priced(plan: Plan, prober: Prober, *, lenient: bool = False) -> Prepared:
    """A plan that is there already, with its costs as they are now; raises FfnbenchError for an arm without torch, and
    where a case can't be counted: if that is to be a row that failed, where none can.
    """
    _start_all(prober, plan.arms)
    costs, problems = [], []
    for case in plan.cases:
        try:
            costs.append(_price(case, prober))
        except Unsupported as problem:
            problems.append(problem)
            if not lenient or len(problems) == len(plan.cases):
                raise
            costs.append(CaseCost(case=case.label, cost=uncounted(problem.message)))
    return Prepared(plan=plan, costs=tuple(costs))


def _start_all(prober: Prober, arms: Iterable[Arm]) -> None:
    """Look whether each arm has torch; all of them are started before the first is waited for."""
    probers = [prober.within(arm) for arm in arms if arm != OWN and arm.name != CONTROL]
    for one in probers:
        one.start()
    for one in probers:
        one.torch_or_error()


def _price(case: Case, probe: Probe) -> CaseCost:
    return CaseCost(case=case.label, cost=cost_of(case, probe))


def measure(prepared: Prepared, ending: Silent = SILENT, launch: Launch | None = None) -> ShownReport:
    """Measure what was prepared; raises FfnbenchError where memory does not hold it, or it could tell nothing."""
    plan = fit_into(prepared.plan, memory_for(prepared.plan))
    refuse_blind(plan)
    _refuse_at_once(plan)
    prepared, asked = replace(prepared, plan=plan), plan.request
    runs, pause = (asked.runs, pause_of(asked.runs, asked.pause)) if isinstance(asked, Apart) else (1, 0.0)
    _tell_wait(prepared, ending, runs=runs, pause=pause)
    if runs == 1:
        return _measured(prepared, ending, launch)
    return _several(prepared, ending, launch, runs, pause)


def _refuse_at_once(plan: Plan) -> None:
    """Raise FfnbenchError where the plan can't be measured here, as far as that is known without torch."""
    for case in plan.cases:
        if case.arm == OWN:
            _refuse_device(case.workload.device)
    if all(MACHINE.no_gpu(kind) for kind in NO_DEVICE) and all(case.arm == OWN for case in plan.cases):
        refuse_time(plan.with_device("cpu"))
    available = memory_for(plan)
    if available is not None:
        check_fits(plan.with_device("cpu"), available)


def _refuse_device(device: str) -> None:
    kind = device_of(device).partition(":")[0]
    if kind in NO_DEVICE and (why := MACHINE.no_gpu(kind)):
        raise FfnbenchError(f"device {device!r} was asked for, but {why}", NO_DEVICE[kind])


def _tell_wait(
    prepared: Prepared, ending: Silent, *, runs: int = 1, pause: float = 0.0, budget: float | None = None
) -> None:
    """One line before anything is measured: how long it will take, and that this machine is busy now."""
    if not ending.tells:
        return
    plan = prepared.plan
    known = {found.case: found.cost for found in prepared.costs}
    flops = {}
    for case in plan.cases:
        cost = known.get(case.label) or known[plan.reference]
        backward = (cost.flops_backward or 0) * case.workload.train
        flops[case.label] = case.workload.tokens * ((cost.flops_forward or 0) + backward)
    once = foreseen(plan, flops) if budget is None else Foreseen(seconds=budget, at_most=True)
    _tell_seconds(ending, once.times(runs, pause), max(case.workload.threads for case in plan.cases))


def _tell_seconds(ending: Silent, wait: Foreseen, threads: int) -> None:
    if ending.tells:
        busy = MACHINE.others(threads)
        ending.tell(wait_text(wait.seconds, at_most=wait.at_most, others=busy, cpus=os.cpu_count() or 1))


def _several(prepared: Prepared, ending: Silent, launch: Launch | None, runs: int, pause: float) -> ShownReport:
    """So many runs apart in one report. One that is lost, without clean rounds or any row, is made up for, at most half
    as many times as runs were asked for. One that is interrupted is not kept.
    """
    found = _measured(prepared, ending.within(1, runs), launch)
    if found.interrupted or found.stopped or found.failed_wholly:
        return found
    kept = int(not table_of(found).without_quiet())
    for _ in range(runs - 1 + (runs + 1) // 2):
        if kept == runs:
            return found
        turn = ending.within(kept + 1, runs)
        try:
            with termination_as_interruption():
                _pause(pause, turn)
            now = _measured(prepared, turn, launch)
        except KeyboardInterrupt:
            return _cut_short(found, runs)
        found, now = with_suspects(found, now), with_suspects(now, found)
        if now.interrupted or now.stopped:
            return _cut_short(found, runs)
        if not now.failed_wholly and not table_of(now).without_quiet():
            found = found.with_repeat(now, KEPT) if kept else now
            kept += 1
    text = f"{len(found.runs)} of {runs} runs could be kept: the others have no clean rounds of a row"
    return found if kept == runs else replace(found, warnings=(*found.warnings, Note(text=text, kind=NoteKind.GENERAL)))


def _cut_short(found: ShownReport, runs: int) -> ShownReport:
    text = f"ended early: {len(found.runs)} of {runs} runs are whole, and kept"
    return replace(found, cut_short=True, warnings=(*found.warnings, Note(text=text, kind=NoteKind.GENERAL)))


def _pause(seconds: float, ending: Silent) -> None:
    """Wait, and say for how long."""
    end = time.monotonic() + seconds
    with ending.progress() as listener:
        while (left := end - time.monotonic()) > 0:
            listener(Progress(done=0.0, text="waiting for the next run", eta_s=left))
            time.sleep(min(1.0, left))


def _measured(
    prepared: Prepared,
    ending: Silent,
    launch: Launch | None = None,
    answered: Answered | None = None,
    weights: str = "",
) -> ShownReport:
    costs = prepared.costs_of(prepared.plan)
    keep = ending.journal(_new_report(prepared.plan, costs))
    timed = "latency" in prepared.plan.metrics  # bytes are the same beside anyone
    with turn(ending.waits, ending.tell) if timed else nullcontext("") as beside, ending.progress() as listener:
        done = run(
            prepared.plan,
            on_progress=listener,
            on_found=keep,
            launch=launch or MACHINE.launch,
            answered=answered,
            weights=weights,
            costs=costs,
            judge=None if launch else MACHINE.judge,
        )
    costs = prepared.costs_of(done.plan)
    measured, comparisons, warnings = summarise(done)
    told = (Note(text=beside, kind=NoteKind.SEEN),) if beside else ()
    return replace(
        _new_report(done.plan, costs),
        environment=done.environment,
        measured=measured,
        comparisons=comparisons,
        failures=done.failures,
        warnings=(*told, *done.warnings, *warnings),
        samples=done.samples,
        interrupted=done.interrupted,
        stopped=done.stopped,
        limit=done.limit,
        timer=done.timer,
        sides=done.sides,
        around=done.around,
        roofs=done.roofs,
        shares=shares_of(done, costs),
        judged=done.judged,
        inputs=done.inputs,
        judging_s=done.judging_s,
        devices=done.devices,
        wall_s=done.wall_s,
    )


def _shown(found: ShownReport, ending: Silent) -> ShownReport:
    ending.show(lambda: report_view(found))
    return found


# The parts of a check


def _foretold(before: ShownReport, policy: Policy, request: CheckRequest, ending: Silent) -> Expected | None:
    """What a check can come to, told before anything is measured; None without timing."""
    timed = is_timed(before) and not request.exact_only and not of_another_method(request.baseline, before)
    if not timed or request.current is not None:
        return None
    found = expected(foretell(before, policy, request.budget))
    ending.tell(foretold_text(found, len(before.runs)))
    return found


def _look_again(
    before: ShownReport,
    policy: Policy,
    request: CheckRequest,
    ending: Silent,
    environment: Callable[[], Environment],
    own: list[Named],
    *,
    update: bool,
) -> Look:
    """What a check sees: a saved run, exact metrics alone, or latency as well. `own` is code that may run
    where its file defines it.
    """
    if request.current is not None:
        return _look_at_saved(before, load(request.current), policy, request)
    _refuse_at_once(before.plan)
    with MACHINE.prober(before.plan.protocol.timeout_s) as prober:
        refuse_reached(own, request.baseline, prober.home)
        prepared = _priced(before.plan.by_todays_method(), prober)
    if request.exact_only or not is_timed(before):
        return Look(findings=(), now=_exact(before, prepared, ending))
    if reason := of_another_method(request.baseline, before):
        at_home = request.across_machines or kind(before.environment) == kind(environment())
        now = measure(prepared, ending) if update and at_home else _exact(before, prepared, ending)
        return Look(findings=tuple(incomparable(before, policy, reason)), now=now)
    here = environment()
    if request.absolute:
        refuse_another_machine(request.baseline, before.environment, here)
    if kind(here) != kind(before.environment) and not request.across_machines:
        now = replace(_exact(before, prepared, ending), environment=here)
        return Look(findings=tuple(latency_findings(past_of(before, policy), now, policy)), now=now)

    def measured(plan: Plan, answered: Answered) -> Report:
        return _measured(replace(prepared, plan=plan), ending, answered=answered)

    _tell_wait(prepared, ending, budget=request.budget)
    return look_back(before, policy, request.budget, measured)


def _look_at_saved(before: ShownReport, now: ShownReport, policy: Policy, request: CheckRequest) -> Look:
    """A run that was saved: nothing is measured."""
    refuse_another_reference(str(request.current), before, now)
    if not is_timed(before) or request.exact_only:
        return Look(findings=(), now=now)
    runs = ((request.baseline, before), (str(request.current), now))
    if reasons := [reason for path, run_ in runs if (reason := of_another_method(path, run_))]:
        return Look(findings=tuple(incomparable(before, policy, "; ".join(reasons))), now=now)
    return Look(findings=tuple(latency_findings(past_of(before, policy), now, policy)), now=now)


def _exact(before: ShownReport, prepared: Prepared, ending: Silent) -> ShownReport:
    """The costs as they are now; bytes are measured only where the baseline has some that no closed form predicts."""
    now = prepared.priced()
    if not unpredicted(before, now):
        return now
    return _measured(replace(prepared, plan=replace(prepared.plan, metrics=("memory",))), ending)


def _environment_here(plan: Plan) -> Environment:
    """Where a plan would be measured: the device that it asks for, as far as it is there."""
    worker = MACHINE.launch()
    try:
        told = _greeting(worker)
        used = plan.with_device(auto_device(told)).cases[0].workload.device
        there = used.partition(":")[0] == auto_device(told)
        return describe(told | (_device_facts(worker, used) if there else {}))
    finally:
        worker.close()


def _greeting(worker: Worker) -> dict[str, Any]:
    """What a worker says of its torch; raises Unfinished for one that ends while it starts."""
    try:
        return worker.greeting()
    except WorkerLost as lost:
        raise Unfinished(f"a worker could not start: {lost}", "try `python -c 'import torch'`") from lost


def _prepare_sides(
    request: SidesRequest, variant: Variant, arms: tuple[Arm, Arm], folder: str, ending: Silent
) -> tuple[Prepared, Finding, bool]:
    """Both sides looked at where they run: what they are, what they cost, and whether they compute the same.

    The base's weights stay in the folder; the last one tells whether the head can take them over.
    """
    with MACHINE.prober(request.timeout) as prober:
        _start_all(prober, arms)
        probes = (prober_within(prober, arms[0], variant), prober_within(prober, arms[1], variant))
        plan = replace(plan_sides(_with_threads(request), arms, probes), request=request)
        ending.known(plan)
        plan = _with_defaults(plan, ending)
        prepared = _priced(plan, prober)
        base, head = plan.cases
        if not head.arm.python and head.arm.source in ("", os.getcwd()):
            remember([head.ffn])
        probes[0].keep(base, request.seed, folder)
        agreement = probes[1].hold(head, request.seed, folder)
    output = output_finding(variant.label, agreement, allowed=request.allow_mismatch)
    return prepared, output, not agreement.apart


def _look_at_sides(
    request: SidesRequest, prepared: Prepared, output: Finding, policy: Policy, ending: Silent, weights: str
) -> Look:
    """The latency, or one worker of each side for the exact metrics alone; none at another function."""

    def measured(plan: Plan, answered: Answered | None = None) -> ShownReport:
        return _measured(replace(prepared, plan=plan), ending, answered=answered, weights=weights)

    if output.status is Status.REGRESSED:
        return Look(findings=(), now=prepared.priced())
    _tell_wait(prepared, ending, budget=None if request.exact_only else request.budget)
    if request.exact_only:
        return Look(findings=(), now=measured(prepared.plan))

    def find(now: Report, confidence: float) -> list[Finding]:
        return paired_findings(now, policy, confidence)

    return look(prepared.plan, find, policy, request.budget, measured)


def _decided(findings: tuple[Finding, ...], before: Report, looks: Look, ending: Silent, **told: Any) -> Checked:
    checked = Checked(findings=findings, before=before, now=looks.now, **told)
    ending.show(lambda: check_view(checked))
    return checked


def _one_side(found: Report, side: str, label: str) -> Report:
    """One side by itself, under the name of the variant: so that the two can be compared as two runs are."""
    case = replace(found.plan.case(side), label=label)
    return replace(
        found,
        plan=replace(found.plan, cases=(case,), reference=label),
        costs=(CaseCost(case=label, cost=found.cost(side)),),
        measured=tuple(replace(m, case=label) for m in found.measured if m.case == side),
        failures=tuple(replace(f, case=label) for f in found.failures if f.case == side),
        judged=tuple(replace(j, case=label) for j in found.judged if j.case == side),
        inputs=tuple(replace(i, case=label) for i in found.inputs if i.case == side),
    )


def _new_report(plan: Plan, costs: tuple[CaseCost, ...]) -> ShownReport:
    now = datetime.now(UTC).isoformat(timespec="seconds")
    return ShownReport(plan=plan, costs=costs, created=now, version=__version__)


def _asked_of_transformers(job: str, path: str, unknown: Unanswered, answer_as: type[T]) -> T:
    """Ask a worker; where transformers can't help, what was unknown is the error."""
    worker = MACHINE.launch()
    try:
        answer = worker.ask({"do": job, "source": str(Path(config_path(path)).expanduser().resolve())}, COUNT_TIMEOUT_S)
    except WorkerLost as lost:
        raise FfnbenchError(unknown.message, f"{unknown.hint}; building it: {lost}") from lost
    finally:
        worker.close()
    if "failure" in answer:
        raise FfnbenchError(unknown.message, f"{unknown.hint}; {answer['message']}")
    return jsonable.decode(answer_as, answer["model"])
