"""`--match time`: finds the widths at which variants take as long as the reference, by
a few short runs, and then measures these widths.

The data that choose a width are not those of its figures: all figures are of the last
run alone, which has its own workers and seed.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field, replace

import typer

from ffnbench.api.measuring import measure_run, refuse_short, tell_duration
from ffnbench.api.preparing import Prepared, refuse_at_once, with_costs
from ffnbench.choices import Match
from ffnbench.cli.commands import answer_request
from ffnbench.common.errors import FfnbenchError
from ffnbench.ffn.spec import FFNSpec, ImportedSpec, read_positive
from ffnbench.ffn.width_rules import round_nearest
from ffnbench.following import UNFOLLOWED, Following
from ffnbench.metrics import LATENCY
from ffnbench.plan import GIVEN, Case, Note, Plan, Probe, Protocol, Sizing
from ffnbench.planning.compare import plan_compare
from ffnbench.planning.effort import LEAST_BUDGET_S, MIN_WORKERS
from ffnbench.planning.variant_text import parse_variant
from ffnbench.report.shown_report import ShownReport
from ffnbench.request import CompareRequest
from ffnbench.run.world import World
from ffnbench.stats.matching import (
    BY_TIME,
    MOST_SEARCHES,
    SEARCH_SHARE,
    Trial,
    next_width,
)

MULTIPLE = 64  # a width is a multiple of this, unless @multiple_of states another
PRECISION = 0.01  # of a short run: less than half a step between most widths
NOT_FOUND = "no width could be found, the short runs were too disturbed; this is the one of equal parameters"

Widths = Mapping[str, int]  # d_ff by the label of a case


def plan_to_match(request: CompareRequest, probe: Probe | None = None) -> Plan:
    """The plan from which the search starts: widths of equal parameters, in multiples
    of 64.

    Raises FfnbenchError for a request that does not have one width for each variant.
    """
    _refuse_request(request)
    plan = plan_compare(replace(request, match=Match.PARAMS), probe)
    if plan.is_sweep:
        raise FfnbenchError(
            f"--match time finds widths for one group, and the lists make {len(plan.groups)}",
            "give each flag one value; a sweep over widths is `swiglu@d_ff=1536..2560/128`",
        )
    cases = []
    for case in plan.cases:
        if case.sizing.how == "matched" and not plan.is_reference(case.label):
            case = _to_find(case)
        cases.append(case)
    # the plan states the multiple of its cases, or where they have several the default
    multiples = {case.sizing.multiple_of for case in cases if _is_found_by_time(case)}
    multiple = MULTIPLE
    if len(multiples) == 1:
        multiple = multiples.pop() or MULTIPLE
    return replace(
        plan, cases=tuple(cases), match=Match.TIME.value, multiple_of=multiple
    )


def _refuse_request(request: CompareRequest) -> None:
    """Raise FfnbenchError for flags that do not go with a search."""
    for name in ("backend", "weights"):
        first, comma, second = getattr(request, name).partition(",")
        if comma:
            raise FfnbenchError(
                f"--match time finds one width for each variant, and --{name} has a list",
                f"--{name} {first}, and a variant for another: swiglu@{name}={second.partition(',')[0]}",
            )
    if LATENCY not in request.metrics.split(","):
        raise FfnbenchError(
            "--match time needs the latency, and --metrics leaves it out",
            f"--metrics {LATENCY},{request.metrics}",
        )
    if request.state:
        raise FfnbenchError(
            "--state has weights of one width, and --match time tries several",
            "leave one of the two out",
        )
    if request.runs > 1:
        raise FfnbenchError(
            "--match time makes runs of its own, and --runs repeats one",
            "find the widths first, then repeat with them stated: swiglu@d_ff=...",
        )
    typed = request.budget
    if typed is not None and LEAST_BUDGET_S <= typed < 2 * LEAST_BUDGET_S:
        raise FfnbenchError(
            f"--match time takes {2 * LEAST_BUDGET_S:g} s at least: a run to find widths, and one to measure them",
            f"--budget {2 * LEAST_BUDGET_S:g}s",
        )


def _to_find(case: Case) -> Case:
    """The case as one whose width is to be found: the search starts at the nearest
    multiple.
    """
    keys = parse_variant(case.variant).spec_keys
    multiple = read_positive("multiple_of", keys.get("multiple_of", MULTIPLE))
    sized = replace(
        case,
        sizing=Sizing(how=BY_TIME, multiple_of=multiple),
        residual=None,
    )
    return _at_width(sized, round_nearest(_width_of(case), multiple))


def _is_found_by_time(case: Case) -> bool:
    """Whether the width of a case is, or is to be, found by time."""
    return case.sizing.how == BY_TIME


def _width_of(case: Case) -> int:
    assert isinstance(case.ffn, FFNSpec | ImportedSpec)
    return case.ffn.d_ff


def _at_width(case: Case, d_ff: int) -> Case:
    """The case with this width."""
    ffn = case.ffn
    assert isinstance(ffn, FFNSpec | ImportedSpec)
    if isinstance(ffn, ImportedSpec) and ffn.like is not None:
        ffn = replace(ffn, like=replace(ffn.like, d_ff=d_ff))
    return replace(case, ffn=replace(ffn, d_ff=d_ff))


def answer_by_time(ctx: typer.Context, request: CompareRequest) -> int:
    """Answer the command `compare --match time`; gives the exit code.

    Raises FfnbenchError where jobs are to measure, since each run of a search needs the
    result of the one before.
    """
    if ctx.params["on"] or ctx.params["slurm"]:
        raise FfnbenchError(
            "--on measures groups as jobs, and --match time measures one group several times",
            "leave --on out, or submit the command itself",
        )
    return answer_request(ctx, request, "compare", plan_to_match, own=measure_matched)


def measure_matched(
    prepared: Prepared, world: World, following: Following = UNFOLLOWED
) -> ShownReport:
    """Find the widths by short runs, then measure them; gives the report of the last
    run. Where the search was interrupted, it is that of the last short run, with what
    was found.

    Raises FfnbenchError where no case has a width to be found, before anything is
    measured.
    """
    plan = prepared.plan
    _refuse_fixed(plan)
    if following.resumed():
        raise FfnbenchError(
            "--resume goes on with widths that are known, and --match time searches for them",
            "leave one of the two out",
        )
    refuse_at_once(plan, world)
    refuse_short(plan)
    world = replace(world, began=world.now() - world.spent_s)
    short_runs = _short_runs_by(plan.protocol)
    tell_duration(plan, world, following.progress, short_runs.most_s)
    with world.lock(following.progress.tell) as other_run:
        # all runs are made under one lock
        locked_world = replace(world, lock=lambda tell: nullcontext(other_run))
        search = WidthSearch(prepared, locked_world, following, short_runs)
        interrupted = search.run()
        if interrupted is not None:
            return interrupted
        # a budget that was typed is for all runs, another one for the last run alone
        if not plan.protocol.bound:
            locked_world = locked_world.from_now
        runs = short_runs.most + 1
        return measure_run(
            search.prepared_at(search.final_plan(), search.widths),
            locked_world,
            following.part(runs, runs, "run"),
        )


def _refuse_fixed(plan: Plan) -> None:
    """Raise FfnbenchError where no case has a width to be found."""
    if any(map(_is_found_by_time, plan.cases)):
        return
    others = [case for case in plan.cases if not plan.is_reference(case.label)]
    if not others:
        raise FfnbenchError(
            "--match time needs a variant beside the reference",
            "for example gelu,swiglu",
        )
    unread = [case for case in others if case.sizing.how == "unread"]
    if unread:
        raise FfnbenchError(
            f"--match time has no width to find: {unread[0].label!r} does not read d_ff",
            "give its constructor an argument d_ff, or use --match none",
        )
    raise FfnbenchError(
        f"--match time has no width to find: {others[0].label!r} states its own",
        "leave @d_ff, @rule and @ratio out, or name a form: gelu,swiglu",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _ShortRuns:
    """How many short runs are made at most, by which protocol, and how long these and
    the last run take at most, where that is known.
    """

    most: int
    protocol: Protocol
    most_s: float | None


def _short_runs_by(protocol: Protocol) -> _ShortRuns:
    """The short runs of a search whose last run has this protocol. A budget that was
    typed is for all runs, and at least LEAST_BUDGET_S of it is left for the last one.
    """
    budget_s = protocol.budget_s
    if protocol.precision is None or budget_s is None:
        short = replace(protocol, workers=min(MIN_WORKERS, protocol.workers))
        return _ShortRuns(most=MOST_SEARCHES, protocol=short, most_s=None)
    short_s = max(LEAST_BUDGET_S, SEARCH_SHARE * budget_s)
    precision = max(PRECISION, protocol.precision)
    short = replace(protocol, budget_s=short_s, precision=precision)
    if not protocol.bound:
        most_s = budget_s + MOST_SEARCHES * short_s
        return _ShortRuns(most=MOST_SEARCHES, protocol=short, most_s=most_s)
    fitting = int((budget_s - LEAST_BUDGET_S) / short_s)
    return _ShortRuns(most=min(MOST_SEARCHES, fitting), protocol=short, most_s=budget_s)


@dataclass(slots=True)
class WidthSearch:
    """Makes the short runs. `trials` are what each case has shown, and `widths` are
    those of the next run, by the labels of cases.
    """

    prepared: Prepared
    world: World
    following: Following
    short_runs: _ShortRuns
    trials: dict[str, list[Trial]] = field(default_factory=dict)
    widths: dict[str, int] = field(default_factory=dict)

    def run(self) -> ShownReport | None:
        """Measure until no width changes any more, or all short runs are made.

        Gives None then, and where the search was interrupted the report of the last
        run that tells something.
        """
        self.widths = {
            case.label: _width_of(case)
            for case in self.prepared.plan.cases
            if _is_found_by_time(case)
        }
        complete = None
        for number in range(1, self.short_runs.most + 1):
            try:
                report = self._measure(number)
            except KeyboardInterrupt:
                if complete is None:
                    raise
                return self._so_far(complete)
            self._learn(report)
            if report.interrupted:
                if complete is None or report.measured:
                    return self._so_far(report)
                return self._so_far(complete)
            complete = report
            if not self._choose(report):
                return None
        return None

    def final_plan(self) -> Plan:
        """The plan of the last run. Where no run could tell anything of a case, its
        width is still that of equal parameters, and a note says so.
        """
        plan = self.prepared.plan
        cases = []
        notes = list(plan.notes)
        for case in plan.cases:
            if _is_found_by_time(case) and case.label not in self.trials:
                case = replace(case, sizing=GIVEN)
                notes.append(Note(label=case.label, text=NOT_FOUND))
            cases.append(case)
        return replace(plan, cases=tuple(cases), notes=tuple(notes))

    def _measure(self, number: int) -> ShownReport:
        """Make one short run at the next widths."""
        plan = self.prepared.plan
        protocol = self.short_runs.protocol
        # only the last run has the seed that was asked for
        seed = (protocol.seed + number) % 2**63
        short = replace(
            plan,
            cases=tuple(
                replace(case, sizing=GIVEN) if _is_found_by_time(case) else case
                for case in plan.cases
            ),
            protocol=replace(protocol, seed=seed),
            metrics=(LATENCY,),
        )
        of_run = self.following.part(number, self.short_runs.most + 1, "run")
        return measure_run(
            self.prepared_at(short, self.widths),
            self.world.from_now,
            replace(of_run, journal=UNFOLLOWED.journal),
        )

    def prepared_at(self, plan: Plan, widths: Widths) -> Prepared:
        """The plan with these widths, and with its costs; code of the user is counted
        again.
        """
        cases = tuple(
            _at_width(case, widths[case.label]) if case.label in widths else case
            for case in plan.cases
        )
        with self.world.prober(plan.protocol.timeout_s) as prober:
            return with_costs(replace(plan, cases=cases), prober, lenient=True)

    def _learn(self, report: ShownReport) -> None:
        """Keep the ratio of each case; a busy case has none."""
        for label, d_ff in self.widths.items():
            comparison = report.comparison(label)
            if comparison is not None and comparison.ratio is not None:
                trial = Trial(d_ff, comparison.ratio.value)
                self.trials.setdefault(label, []).append(trial)

    def _choose(self, report: ShownReport) -> bool:
        """Choose the next widths after this report; gives whether another run could
        change them.
        """
        plan = self.prepared.plan
        if report.failure(plan.reference):
            return False
        open_still = False
        for case in plan.cases:
            trials = self.trials.get(case.label, [])
            if not _is_found_by_time(case) or report.failure(case.label):
                continue
            if trials:
                multiple = case.sizing.multiple_of or MULTIPLE
                self.widths[case.label] = next_width(trials, multiple)
            measured = {trial.d_ff for trial in trials}
            if self.widths[case.label] not in measured:
                open_still = True
        return open_still

    def _so_far(self, report: ShownReport) -> ShownReport:
        """The report as that of an interrupted search, with a note of what it found."""
        ratios = []
        for label, trials in self.trials.items():
            tried = ", ".join(f"{each.ratio:.3f} at {each.d_ff:,}" for each in trials)
            ratios.append(f"{label} {tried}")
        text = "widths were still being found"
        if ratios:
            text += f": time against {self.prepared.plan.reference} so far: {'; '.join(ratios)}"
        note = Note(text=text)
        return replace(report, interrupted=True, warnings=(*report.warnings, note))
