"""What is said around a table: above it the question, below it the answer in words and how far to trust it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ffnbench.metrics import LATENCY
from ffnbench.plan import ACTIVE_PARAMS, CONTROL, Group, MatmulPrecision, NoteKind, Plan, Sizing
from ffnbench.report.tables.ceilings import ceiling_lines
from ffnbench.report.tables.conditions import in_title, latency_line, untested_note
from ffnbench.report.tables.groups import heading, misses, workload_words
from ffnbench.report.tables.words import (
    INTERVALS,
    SAME,
    VERDICTS,
    backend_text,
    error_text,
    half_width,
    interval_text,
    listed,
    side_lines,
    sizing_text,
)
from ffnbench.result import Against, Estimate, Report, Run, Verdict
from ffnbench.stats.fastest import Fastest, fastest
from ffnbench.stats.interval import CONFIDENCE
from ffnbench.stats.verdict import NOISES
from ffnbench.units import counted, digits, percent

if TYPE_CHECKING:
    from ffnbench.gate.history import History

TOO_NOISY = 0.5
LONGEST_S = 1800
OVER = 1.3
MOST = 8  # rows whose mean over several runs is told


def effort(report: Report | Run) -> str:
    """`5 fresh processes x 15-22 shuffled rounds`: what was really run."""
    rounds = Counter(s.worker for s in {(s.worker, s.round): s for s in report.samples if s.metric == LATENCY}.values())
    workers = len(rounds) or report.plan.protocol.workers
    fewest, most = min(rounds.values(), default=0), max(rounds.values(), default=report.plan.protocol.rounds)
    span = f"{most}" if fewest == most else f"{fewest}-{most}"
    each = " of each side" if len(report.plan.arms) > 1 else ""
    return f"{counted(workers, 'fresh process')}{each} x {span} shuffled round{'s' * (most > 1)}"


def workload_line(plan: Plan, keys: tuple[str, ...] = ("dtype", "device", "mode"), *, backends: bool = True) -> str:
    """What all rows have in common of the workload."""
    parts = workload_words(plan, keys)
    if backends and len(found := {backend_text(case.workload) for case in plan.shown}) == 1:
        parts += found
    return ", ".join([*parts, *(in_title(plan) if "device" in keys else [])])


def _sizing_line(plan: Plan) -> str:
    """Where the widths come from: one phrase for all but the reference, or one for each."""
    others: set[Sizing] = set()
    for group in plan.groups:
        reference = plan.case(group.reference)
        beside = [case for case in group.cases if case.label != group.reference]
        unlike = [case for case in beside if (case.ffn, case.sizing) != (reference.ffn, reference.sizing)]
        others |= {case.sizing for case in unlike or beside}  # a row of another backend is as wide as its twin
    matched_on = {sizing.what if sizing.how == "matched" else None for sizing in others}
    if matched_on and matched_on <= {plan.match, ACTIVE_PARAMS}:
        widths = listed(f"{plan.case(group.reference).ffn.d_ff:,}" for group in plan.groups)
        what = f"{plan.match} (active ones of experts)" if len(matched_on) > 1 else next(iter(matched_on))
        reference_ = plan.name_of(plan.reference)
        how = f"matched on {what} to {reference_} (d_ff {widths}), multiple of {plan.multiple_of}{misses(plan)}"
    else:
        groups: dict[str, dict[str, None]] = {}
        for case in plan.shown:
            groups.setdefault(sizing_text(case.sizing), {})[plan.name_of(case.label)] = None
        how = "; ".join(f"{sizing} ({', '.join(labels)})" for sizing, labels in groups.items())
    return f"d_ff {how}; 1 MAC = 2 FLOPs"


def compare_header(report: Report) -> tuple[str, ...]:
    """What was measured, on what, how often."""
    timed = LATENCY in report.plan.metrics
    how = f"{effort(report)}; {INTERVALS}" if timed else "exact metrics only: measured once, in one process"
    return (f"FFN compare: {workload_line(report.plan)}", _sizing_line(report.plan), how, *latency_line(report))


def cost_header(report: Report) -> tuple[str, ...]:
    """What was counted."""
    return (f"FFN cost: {workload_line(report.plan, ('dtype', 'mode'), backends=False)}", _sizing_line(report.plan))


def summary(report: Report) -> tuple[str, ...]:
    """The answer in words, and how far it can be trusted."""
    return (
        *(line for group in report.plan.groups if (line := _answer(report, group))),
        *suspect_lines(report),
        *map(_fastest, fastest(report)),
        *_resolves(report),
        *_limit(report),
        *_control(report),
        *ceiling_lines(report),
        *_over_runs(report),
        *side_lines(report.sides),
        *_closing(report),
    )


def of_the_run(report: Report) -> tuple[str, ...]:
    """How far a run can be trusted, where its answer is not in one line."""
    return (*suspect_lines(report), *_over_runs(report), *_closing(report))


def _closing(report: Report) -> tuple[str, ...]:
    return (*judged_lines(report), *untested_note(report), *notes_of_run(report), *ended_early(report))


def noise_line(report: Report) -> tuple[str, ...]:
    """What noise did to a run, in one line: what was seen of it, and what to trust then; nothing of a quiet one."""
    found = [note for note in report.notes("") if note.kind in NOISES]
    if busy := [note.text for note in found if note.kind is NoteKind.BUSY]:
        # who was there, and what to do: symptoms of the same would only say it again
        return ("; ".join([*busy, *(n.text for n in found if n.kind not in (NoteKind.BUSY, NoteKind.MOVES))]),)
    told = [note.text for note in found]
    told += ["trust ratios, not seconds"] if any(note.kind is NoteKind.MOVES for note in found) else []
    return (f"noise: {'; '.join(told)}",) if told else ()


def notes_of_run(report: Report) -> list[str]:
    """The line of noise, and what else a reader should know of the whole run."""
    return [*noise_line(report), *(note.text for note in report.notes("") if note.kind not in NOISES)]


def _answer(report: Report, group: Group) -> str:
    """Who is slower than the reference of a group and who is not, in one line."""
    found = [c for case in group.cases if (c := report.comparison(case.label))]
    names: dict[Verdict, list[str]] = {}
    for comparison in found:
        decided = comparison.ratio and comparison.verdict in (Verdict.SLOWER, Verdict.FASTER)
        times = f" ({comparison.ratio.value:.2f}x the time)" if comparison.ratio and decided else ""
        names.setdefault(comparison.verdict, []).append(group.name(comparison.case) + times)
    said = verdicts_text(names)
    where = f"{heading(group)}: " if group.values else ""
    return f"{where}against {group.name(group.reference)}, {said}" if said else ""


def verdicts_text(names: dict[Verdict, list[str]]) -> str:
    """`slower: a, b; can't tell (~): c`."""
    return "; ".join(f"{words}: {', '.join(names[verdict])}" for verdict, words in VERDICTS.items() if verdict in names)


def _resolves(report: Report) -> list[str]:
    """How small a difference the run could have shown, and what it took."""
    if report.resolution is None:
        return []
    wall = f", measured in {report.wall_s:.0f} s" if report.wall_s else ""
    if report.resolution < TOO_NOISY:
        return [f"this run resolves differences of {percent(report.resolution)}{wall}"]
    return [f"too noisy for less than {digits(1 + report.resolution, 2)}x the time{wall}; see `ffnbench env`"]


def suspect_lines(report: Report) -> tuple[str, ...]:
    """Which rows have numbers that can't be true, or are another function's."""
    cases = [case.label for case in report.plan.shown if report.suspect(case.label)]
    own = {failure.case for failure in report.failures}
    twice = [f"{label} ({report.suspect(label)})" if label not in own else label for label in cases]
    return (f"suspect, and without a verdict: {', '.join(twice)}",) if cases else ()


def judged_lines(report: Report) -> Iterator[str]:
    """How many outputs of timed calls were judged, against what, and the largest error of those that passed."""
    for against, what in ((True, "float64"), (False, "the other side's")):
        found = [one for one in report.judged if one.outputs and (one.against is not Against.SIDE) is against]
        if not found:
            continue
        gradients = sum(one.gradients for one in found)
        errors: dict[str, float] = {}
        for one in found:
            if one.error is not None and not report.failure(one.case):
                work = report.plan.case(one.case).workload
                exact = work.dtype != "float32" or work.matmul_precision == MatmulPrecision.HIGHEST.value
                dtype = work.dtype if exact else f"{work.dtype} at {work.matmul_precision}"
                errors[dtype] = max(one.error, errors.get(dtype, 0.0))
        largest = [error_text(e) + f" ({dtype})" * (len(errors) > 1) for dtype, e in errors.items()]
        yield (
            f"outputs of {counted(sum(one.outputs for one in found), 'timed call')}"
            + f", and gradients of {gradients:,}," * bool(gradients)
            + f" were held against {what}"
            + f": largest error {', '.join(largest)}" * bool(largest)
        )


def _fastest(found: Fastest) -> str:
    """`fastest of swiglu: onednn, 0.42 [0.41, 0.43] of eager's time`."""
    backends = {case.label: backend_text(case.workload) for case in found.cases}
    names = backends if len(set(backends.values())) == len(backends) else {label: label for label in backends}
    eager = [case.label for case in found.cases if case.workload.eager]
    first, _, rest = found.cases[0].label.partition("@backend=")
    stem = eager[0] if eager else "@".join([first, *rest.split("@")[1:]])
    which = listed(names[label] for label in found.first)
    ratios = ", ".join(map(interval_text, found.ratios))
    times = "" if found.against in found.first else f", {ratios} of {names[found.against]}'s time"
    if found.verdict in (Verdict.FASTER, Verdict.SAME):
        return f"fastest of {stem}: {which}{f', the {SAME}' * (found.verdict is Verdict.SAME)}{times}"
    return f"can't tell which is fastest of {stem}: {which}{times}"


def _over_runs(report: Report) -> tuple[str, ...]:
    """The mean over all runs of a file that holds several; the table shows the first."""
    if not report.repeats:
        return ()
    from ffnbench.gate.decision import Policy, past_of  # few files hold several runs

    past = past_of(report, Policy())
    means = [f"{label} {_over(history)}" for (label, _), history in past.rows.items() if history]
    over = f"; over all of them, what moves between runs included: {', '.join(means[:MOST])}" if means else ""
    over += f" and {len(means) - MOST} more" if len(means) > MOST else ""
    return (f"this is the first of {len(report.runs)} runs{over}",)


def _over(history: History) -> str:
    low, high = map(math.exp, history.over_runs.interval(CONFIDENCE) or (-math.inf, math.inf))
    return interval_text(Estimate(value=math.exp(history.mean), low=low, high=high))


def ended_early(report: Report) -> tuple[str, ...]:
    """What is said under the table of a run that did not come to its end."""
    if not (report.interrupted or report.stopped):
        return ()
    done = len({sample.worker for sample in report.samples if sample.metric == LATENCY})
    return (f"ended early, in worker {done}; this is what was measured by then",)


def _limit(report: Report) -> tuple[str, ...]:
    """Which limit ended the run, and what another one would do."""
    protocol = report.plan.protocol
    if protocol.precision is None or protocol.budget_s is None or report.resolution is None:
        return ()
    wanted, budget = percent(protocol.precision), f"{protocol.budget_s:g} s"
    if report.limit == "precision":
        return (f"stopped when every ratio was known to ±{wanted} (--precision)",)
    if report.limit == "workers":
        made = counted(len({s.worker for s in report.samples}), "worker")
        return (f"stopped after {made} before ±{wanted} was reached",)
    if report.limit != "budget":
        return ()
    if any(c.verdict is Verdict.BUSY for c in report.comparisons):
        return (f"stopped at the budget of {budget}",)
    if (report.wall_s or 0) > OVER * protocol.budget_s:
        return (f"the fewest workers and rounds there may be took longer than the budget of {budget}",)
    widest = max((half_width(c.ratio) or 0 for c in report.comparisons if c.ratio), default=0)
    more = math.ceil((report.wall_s or protocol.budget_s) * max(1.3, (widest / protocol.precision) ** 2) / 5) * 5
    hint = f"--budget {more} should do" if more <= LONGEST_S else "this machine is too noisy for that now"
    return (f"stopped at the budget of {budget} before ±{wanted} was reached; {hint}",)


def _control(report: Report) -> tuple[str, ...]:
    """What the reference differs from itself by."""
    found = report.comparison(CONTROL)
    if found is not None and found.verdict is Verdict.BUSY:
        return ("control: too few of its rounds were clean for it to say anything",)
    if found is None or found.ratio is None or found.ratio.low is None or found.ratio.high is None:
        return ()
    words = {Verdict.SAME: "as it should be", Verdict.UNCLEAR: "too wide to say much"}
    said = words.get(found.verdict, "which is more than chance")
    return (f"control: {report.plan.reference} against itself is {interval_text(found.ratio)}, {said}",)
