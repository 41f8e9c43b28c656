"""`--match time`: the widths at which variants take as long as the reference, found by
a few short runs, and then measured anew.

What chooses a width and what answers for it are different data: the figures are those
of the last run alone, whose workers and seed are its own.
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

MULTIPLE = 64  # of a width, where @multiple_of says nothing else
PRECISION = 0.01  # finer than half a step, of most widths
NOT_FOUND = "no width could be found, the short runs were too disturbed; this is the one of equal parameters"

Widths = Mapping[str, int]  # d_ff by the label of a case


def plan_to_match(request: CompareRequest, probe: Probe | None = None) -> Plan:
    """The plan from which the search starts: equal parameters, in multiples of 64.

    Raises FfnbenchError for what has no one width for each variant.
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
            case = _to_match(case)
        cases.append(case)
    multiples = {case.sizing.multiple_of for case in cases if _is_matched(case)}
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


def _to_match(case: Case) -> Case:
    """A case whose width is to be found, at the nearest multiple to start from."""
    keys = parse_variant(case.variant).spec_keys
    multiple = read_positive("multiple_of", keys.get("multiple_of", MULTIPLE))
    sized = replace(
        case,
        sizing=Sizing(how=BY_TIME, multiple_of=multiple),
        residual=None,
    )
    return _at_width(sized, round_nearest(_width_of(case), multiple))


def _is_matched(case: Case) -> bool:
    """Whether the width of a case is found by time."""
    return case.sizing.how == BY_TIME


def _width_of(case: Case) -> int:
    assert isinstance(case.ffn, FFNSpec | ImportedSpec)
    return case.ffn.d_ff


def _at_width(case: Case, d_ff: int) -> Case:
    """The case at another width."""
    ffn = case.ffn
    assert isinstance(ffn, FFNSpec | ImportedSpec)
    if isinstance(ffn, ImportedSpec) and ffn.like is not None:
        ffn = replace(ffn, like=replace(ffn.like, d_ff=d_ff))
    return replace(case, ffn=replace(ffn, d_ff=d_ff))


def answer_by_time(ctx: typer.Context, request: CompareRequest) -> int:
    """The command `compare --match time`: gives the exit code.

    Raises FfnbenchError where jobs are to measure: each run of a search waits for the
    one before.
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
    """Find the widths by short runs, then measure them: the report of the last run, or
    where the search was interrupted that of its own last one, with what it found.

    Raises FfnbenchError where no width can be found, before anything is measured.
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
    searches = _searches_of(plan.protocol)
    tell_duration(plan, world, following.progress, searches.most_s)
    with world.lock(following.progress.tell) as other_run:
        alone = replace(world, lock=lambda tell: nullcontext(other_run))
        search = WidthSearch(prepared, alone, following, searches)
        interrupted = search.run()
        if interrupted is not None:
            return interrupted
        last = alone if plan.protocol.bound else alone.from_now
        number = searches.runs + 1
        return measure_run(
            search.prepared_at(search.final_plan(), search.widths),
            last,
            replace(following.part(number, number, "run"), resumed=lambda: None),
        )


def _refuse_fixed(plan: Plan) -> None:
    """Raise FfnbenchError where no case has a width to be found."""
    if any(map(_is_matched, plan.cases)):
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
class _Searches:
    """How many short runs are made at most, by which protocol, and how long all takes
    at most, where that is known.
    """

    runs: int
    protocol: Protocol
    most_s: float | None


def _searches_of(protocol: Protocol) -> _Searches:
    """Short runs by a protocol. A budget that was typed is for all runs, and at least 5
    s of it are left for the last one.
    """
    budget_s = protocol.budget_s
    if protocol.precision is None or budget_s is None:
        short = replace(protocol, workers=min(MIN_WORKERS, protocol.workers))
        return _Searches(runs=MOST_SEARCHES, protocol=short, most_s=None)
    short_s = max(LEAST_BUDGET_S, SEARCH_SHARE * budget_s)
    precision = max(PRECISION, protocol.precision)
    short = replace(protocol, budget_s=short_s, precision=precision)
    if not protocol.bound:
        most_s = budget_s + MOST_SEARCHES * short_s
        return _Searches(runs=MOST_SEARCHES, protocol=short, most_s=most_s)
    fitting = int((budget_s - LEAST_BUDGET_S) / short_s)
    return _Searches(runs=min(MOST_SEARCHES, fitting), protocol=short, most_s=budget_s)


@dataclass(slots=True)
class WidthSearch:
    """The short runs, and what they have found: the trials of each case, and the widths
    that are next.
    """

    prepared: Prepared
    world: World
    following: Following
    searches: _Searches
    trials: dict[str, list[Trial]] = field(default_factory=dict)
    widths: dict[str, int] = field(default_factory=dict)

    def run(self) -> ShownReport | None:
        """Measure until no width changes any more, or all runs are made. Gives the
        report of the last one where it was interrupted.
        """
        self.widths = {
            case.label: _width_of(case)
            for case in self.prepared.plan.cases
            if _is_matched(case)
        }
        complete = None
        for number in range(1, self.searches.runs + 1):
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
        """The plan of the last run. A width of which no run could tell anything is that
        of equal parameters still, and a note says so.
        """
        plan = self.prepared.plan
        cases = []
        notes = list(plan.notes)
        for case in plan.cases:
            if _is_matched(case) and case.label not in self.trials:
                case = replace(case, sizing=GIVEN)
                notes.append(Note(label=case.label, text=NOT_FOUND))
            cases.append(case)
        return replace(plan, cases=tuple(cases), notes=tuple(notes))

    def _measure(self, number: int) -> ShownReport:
        """One short run at the widths that are next."""
        plan = self.prepared.plan
        protocol = self.searches.protocol
        seed = (protocol.seed + number) % 2**63
        short = replace(
            plan,
            cases=tuple(
                replace(case, sizing=GIVEN) if _is_matched(case) else case
                for case in plan.cases
            ),
            protocol=replace(protocol, seed=seed),
            metrics=(LATENCY,),
        )
        of_run = self.following.part(number, self.searches.runs + 1, "run")
        return measure_run(
            self.prepared_at(short, self.widths),
            self.world.from_now,
            replace(of_run, journal=UNFOLLOWED.journal),
        )

    def prepared_at(self, plan: Plan, widths: Widths) -> Prepared:
        """A plan at these widths, with costs: code of the user's is counted anew."""
        cases = tuple(
            _at_width(case, widths[case.label]) if case.label in widths else case
            for case in plan.cases
        )
        with self.world.prober(plan.protocol.timeout_s) as prober:
            return with_costs(replace(plan, cases=cases), prober, lenient=True)

    def _learn(self, report: ShownReport) -> None:
        """Keep the ratio of each case that has one; a busy one teaches nothing."""
        for label, d_ff in self.widths.items():
            comparison = report.comparison(label)
            if comparison is not None and comparison.ratio is not None:
                trial = Trial(d_ff, comparison.ratio.value)
                self.trials.setdefault(label, []).append(trial)

    def _choose(self, report: ShownReport) -> bool:
        """Choose the next widths, after this report; whether another run could change
        them.
        """
        plan = self.prepared.plan
        if report.failure(plan.reference):
            return False
        open_still = False
        for case in plan.cases:
            trials = self.trials.get(case.label, [])
            if not _is_matched(case) or report.failure(case.label):
                continue
            if trials:
                multiple = case.sizing.multiple_of or MULTIPLE
                self.widths[case.label] = next_width(trials, multiple)
            measured = {trial.d_ff for trial in trials}
            if self.widths[case.label] not in measured:
                open_still = True
        return open_still

    def _so_far(self, report: ShownReport) -> ShownReport:
        """The report of an interrupted search, with what was found by then."""
        ratios = []
        for label, trials in self.trials.items():
            tried = ", ".join(f"{each.ratio:.3f} at {each.d_ff:,}" for each in trials)
            ratios.append(f"{label} {tried}")
        text = "widths were still being found"
        if ratios:
            text += f": time against {self.prepared.plan.reference} so far: {'; '.join(ratios)}"
        note = Note(text=text)
        return replace(report, interrupted=True, warnings=(*report.warnings, note))
