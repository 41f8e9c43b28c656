"""What is said around a table: above it the question, below it the answer in words and how far to trust it."""

from __future__ import annotations

import math
from collections import Counter

from ffnbench.gate.history import History
from ffnbench.gate.regression import Policy, past_of
from ffnbench.metrics import LATENCY
from ffnbench.plan import ACTIVE_PARAMS, CONTROL, Group, Plan, Sizing
from ffnbench.report.ceilings import ceiling_lines
from ffnbench.report.conditions import exactness_text, in_title, latency_line, untested_note
from ffnbench.report.groups import heading, listed, misses, swept_line
from ffnbench.report.noise import notes_of_run
from ffnbench.report.words import backend_text, error_text, half_width, interval_text, side_lines, sizing_text
from ffnbench.result import Against, Estimate, Report, Run, Sample, Verdict
from ffnbench.stats.fastest import Fastest, fastest
from ffnbench.stats.interval import CONFIDENCE
from ffnbench.units import counted, digits, percent

TOO_NOISY = 0.5
LONGEST_S = 1800
OVER = 1.3
MOST = 8  # rows whose mean over several runs is told
INTERVALS = "± and [ ] are 95% intervals over processes"


def effort(report: Report | Run) -> str:
    """`5 fresh processes x 15-22 shuffled rounds`: what was really run."""
    rounds = Counter(s.worker for s in {(s.worker, s.round): s for s in report.samples if s.metric == LATENCY}.values())
    workers = len(rounds) or report.plan.protocol.workers
    fewest, most = min(rounds.values(), default=0), max(rounds.values(), default=report.plan.protocol.rounds)
    span = f"{most}" if fewest == most else f"{fewest}-{most}"
    each = " of each side" if len(report.plan.arms) > 1 else ""
    return (
        f"{workers} fresh process{'es' if workers > 1 else ''}{each} x {span} shuffled round{'s' if most > 1 else ''}"
    )


def workload_line(plan: Plan, keys: tuple[str, ...] = ("dtype", "device", "mode"), *, backends: bool = True) -> str:
    """What all rows have in common of the workload."""
    if len(plan.groups) > 1:
        line = swept_line(plan, keys, backends=backends)
        return ", ".join([line, *(in_title(plan) if "device" in keys else [])])
    first = plan.cases[0].workload

    def same(key: str) -> bool:
        return len({getattr(case.workload, key) for case in plan.shown}) == 1

    tokens = (
        f"{counted(first.tokens, 'token')} ({first.batch} x {first.seq_len})"
        if same("batch") and same("seq_len")
        else "tokens vary"
    )
    threads = f" ({counted(first.threads, 'thread')})" if same("threads") and first.device == "cpu" else ""
    parts = [f"d_model {plan.cases[0].ffn.d_model}", tokens]
    parts += [getattr(first, key) + (threads if key == "device" else "") for key in keys if same(key)]
    if backends and len(found := {backend_text(case.workload) for case in plan.shown}) == 1:
        parts += found
    parts += in_title(plan) if "device" in keys else []
    return ", ".join(parts)


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
    how = (
        f"{effort(report)}; {INTERVALS}"
        if "latency" in report.plan.metrics
        else "exact metrics only: measured once, in one process"
    )
    return (f"FFN compare: {workload_line(report.plan)}", _sizing_line(report.plan), how, *latency_line(report))


def cost_header(report: Report) -> tuple[str, ...]:
    """What was counted."""
    return (f"FFN cost: {workload_line(report.plan, ('dtype', 'mode'), backends=False)}", _sizing_line(report.plan))


def summary(report: Report) -> tuple[str, ...]:
    """The answer in words, and how far it can be trusted."""
    lines = [line for group in report.plan.groups if (line := _answer(report, group))]
    lines += suspect_lines(report)
    lines += map(_fastest, fastest(report))
    lines += _resolves(report)
    lines += [*_limit(report), *_control(report), *ceiling_lines(report), *over_runs(report), *side_lines(report.sides)]
    lines += judged_lines(report)
    lines += untested_note(report)
    lines += notes_of_run(report)
    if report.interrupted or report.stopped:
        lines += ended_early(report.samples)
    return tuple(lines)


def _answer(report: Report, group: Group) -> str:
    """Who is slower than the reference of a group and who is not, in one line."""
    groups: dict[Verdict, list[str]] = {}
    for comparison in [c for case in group.cases if (c := report.comparison(case.label))]:
        ratio = comparison.ratio
        decided = comparison.verdict in (Verdict.SLOWER, Verdict.FASTER)
        times = f" ({ratio.value:.2f}x the time)" if ratio and decided else ""
        groups.setdefault(comparison.verdict, []).append(group.name(comparison.case) + times)
    words = {
        Verdict.SLOWER: "slower",
        Verdict.FASTER: "faster",
        Verdict.SAME: "the same within 2%",
        Verdict.UNCLEAR: "can't tell (~)",
        Verdict.BUSY: "no verdict (busy)",
    }
    said = "; ".join(f"{words[v]}: {', '.join(groups[v])}" for v in words if v in groups)
    where = f"{heading(group)}: " if group.values else ""
    return f"{where}against {group.name(group.reference)}, {said}" if said else ""


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


def judged_lines(report: Report) -> tuple[str, ...]:
    """How many outputs of timed calls were judged, against what, and the largest error of those that passed."""
    lines = []
    for against, what in ((True, "float64"), (False, "the other side's")):
        found = [one for one in report.judged if one.outputs and (one.against is not Against.SIDE) is against]
        if not found:
            continue
        gradients = sum(one.gradients for one in found)
        errors: dict[str, float] = {}
        for one in found:
            if one.error is not None and not report.failure(one.case):
                dtype = exactness_text(report.plan.case(one.case).workload)
                errors[dtype] = max(one.error, errors.get(dtype, 0.0))
        several = len(errors) > 1
        largest = ", ".join(error_text(e) + f" ({dtype})" * several for dtype, e in errors.items())
        lines.append(
            f"outputs of {counted(sum(one.outputs for one in found), 'timed call')}"
            + f", and gradients of {gradients:,}," * bool(gradients)
            + f" were held against {what}"
            + f": largest error {largest}" * bool(largest)
        )
    return tuple(lines)


def _fastest(found: Fastest) -> str:
    """`fastest of swiglu: onednn, 0.42 [0.41, 0.43] of eager's time`."""
    names = _names(found)
    first = [names[label] for label in found.first]
    listed = " and ".join([", ".join(first[:-1]), first[-1]] if len(first) > 1 else first)
    ratios = ", ".join(map(interval_text, found.ratios))
    times = "" if found.against in found.first else f", {ratios} of {names[found.against]}'s time"
    match found.verdict:
        case Verdict.FASTER:
            return f"fastest of {_stem(found)}: {listed}{times}"
        case Verdict.SAME:
            return f"fastest of {_stem(found)}: {listed}, the same within 2%{times}"
        case _:
            return f"can't tell which is fastest of {_stem(found)}: {listed}{times}"


def _names(found: Fastest) -> dict[str, str]:
    """The backends by label; the labels themselves where two rows have the same one."""
    backends = {case.label: backend_text(case.workload) for case in found.cases}
    return backends if len(set(backends.values())) == len(backends) else {label: label for label in backends}


def _stem(found: Fastest) -> str:
    """What the rows have in common: the label of the eager one, else the first without its backend."""
    for case in found.cases:
        if case.workload.eager:
            return case.label
    first, _, rest = found.cases[0].label.partition("@backend=")
    return "@".join([first, *rest.split("@")[1:]])


def over_runs(report: Report) -> tuple[str, ...]:
    """The mean over all runs of a file that holds several; the table shows the first."""
    if not report.repeats:
        return ()
    past = past_of(report, Policy())
    means = [f"{label} {_over(history)}" for (label, _), history in past.rows.items() if history]
    over = f"; over all of them, what moves between runs included: {', '.join(means[:MOST])}" if means else ""
    over += f" and {len(means) - MOST} more" if len(means) > MOST else ""
    return (f"this is the first of {len(report.runs)} runs{over}",)


def _over(history: History) -> str:
    low, high = map(math.exp, history.over_runs.interval(CONFIDENCE) or (-math.inf, math.inf))
    return interval_text(Estimate(value=math.exp(history.mean), low=low, high=high))


def ended_early(samples: tuple[Sample, ...]) -> tuple[str, ...]:
    """What is said under the table of a run that did not come to its end."""
    done = len({sample.worker for sample in samples if sample.metric == LATENCY})
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
    if report.limit == "budget" and any(c.verdict is Verdict.BUSY for c in report.comparisons):
        return (f"stopped at the budget of {budget}",)
    if report.limit == "budget" and (report.wall_s or 0) > OVER * protocol.budget_s:
        return (f"the fewest workers and rounds there may be took longer than the budget of {budget}",)
    if report.limit == "budget":
        widest = max((half_width(c.ratio) or 0 for c in report.comparisons if c.ratio), default=0)
        more = math.ceil((report.wall_s or protocol.budget_s) * max(1.3, (widest / protocol.precision) ** 2) / 5) * 5
        hint = f"--budget {more} should do" if more <= LONGEST_S else "this machine is too noisy for that now"
        return (f"stopped at the budget of {budget} before ±{wanted} was reached; {hint}",)
    return ()


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
