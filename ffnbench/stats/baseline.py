"""Whether a stored run can serve as a baseline, for what policy, and what is to be said where it can't. Pure."""

from __future__ import annotations

import shlex
from dataclasses import replace

from ffnbench.errors import FfnbenchError
from ffnbench.ffn.spec import FFNSpec
from ffnbench.metrics import LATENCY
from ffnbench.plan import METHOD, NoProbe, cost_of
from ffnbench.planning.effort import check_budget
from ffnbench.request import (
    BlockRequest,
    CheckRequest,
    CompareRequest,
    SidesRequest,
    TimingRequest,
    command_line,
)
from ffnbench.result import Environment, Report
from ffnbench.stats.looks import FINEST_PART, blind_row
from ffnbench.stats.regression import EXACT, SECONDS, TIMED, Policy, exact_value, parse_tolerances
from ffnbench.stats.rounds import without_quiet
from ffnbench.units import percent


def policy_for(before: Report, request: CheckRequest) -> Policy:
    """The policy of a check; raises FfnbenchError for what is no usable baseline, or no usable policy for it."""
    _refuse_unusable(before, request)
    labels = [case.label for case in before.plan.shown]
    policy = Policy(
        tolerances=parse_tolerances(request.tolerance, labels),
        across_machines=request.across_machines,
        absolute=request.absolute,
    )
    if request.exact_only and (timed := next((m for _, m, _ in policy.tolerances if m in TIMED), None)):
        raise FfnbenchError(f"--exact-only checks no {timed}", "leave one of the two out")
    check_budget(request.budget)
    if is_timed(before) and not request.exact_only and before.plan.protocol.method == METHOD:
        _refuse_unresolvable(before, policy, request)
    return policy


def policy_of_sides(request: SidesRequest, label: str) -> Policy:
    """The policy of `ab`: the tolerances are those of head's row; raises FfnbenchError for what can't be."""
    check_budget(request.budget)
    texts = list(request.tolerance)
    if request.fail_above is not None:
        if any("latency" in text for text in texts):
            raise FfnbenchError("--fail-above and --tolerance both speak of latency", "give one of the two")
        texts.append(f"{LATENCY}={request.fail_above}")
    if any(text.startswith(SECONDS) for text in texts):
        raise FfnbenchError("ab checks the ratio of head to base, not seconds", "for example --fail-above 5%")
    return Policy(tolerances=parse_tolerances(texts, [label]))


def is_timed(report: Report) -> bool:
    """Whether a run has latencies."""
    return "latency" in report.plan.metrics and report.environment is not None


def unpredicted(before: Report, priced: Report) -> bool:
    """Whether the baseline has exact metrics that no closed form predicts, so that they must be measured again."""
    return any(
        exact_value(before, case.label, metric) is not None and exact_value(priced, case.label, metric) is None
        for case in before.plan.shown
        for metric in EXACT
        if metric.job
    )


def refuse_another_machine(path: str, before: Environment | None, here: Environment) -> None:
    """--absolute checks seconds, and they mean nothing on another machine."""
    if before is None or before.fingerprint == here.fingerprint:
        return
    shared = ("cpu", "usable_cpus", "cpu_capability", "torch", "blas", "gpu", "cuda")
    differs = [
        f"{name} {getattr(before, name)} then, {getattr(here, name)} now"
        for name in shared
        if getattr(before, name) != getattr(here, name)
    ]
    raise FfnbenchError(
        f"--absolute needs the machine of {path!r}: {'; '.join(differs) or 'another fingerprint'}",
        "check ratios (leave --absolute out), or make a baseline here",
    )


def refuse_another_reference(path: str, before: Report, now: Report) -> None:
    """Two runs whose ratios are relative to different cases can't be compared."""
    if now.plan.reference != before.plan.reference:
        raise FfnbenchError(
            f"{path!r} compares with {now.plan.reference!r}, the baseline with {before.plan.reference!r}",
            f"measure it with --reference {shlex.quote(before.plan.reference)}",
        )


def of_another_method(path: str, run: Report) -> str:
    """Why the latencies of a run can't be compared, with the command that makes it anew; nothing where they can."""
    method = run.plan.protocol.method
    if method == METHOD:
        return ""
    told = f"{path!r} was measured by method {method}, now it is {METHOD}, and ratios of the two can't be compared"
    return f"{told}; {made_anew(path, run)}"


def made_anew(path: str, run: Report) -> str:
    """The command that makes a run anew, as precisely as it was asked for; older files know their plan alone."""
    asked = run.plan.request
    if asked is None or isinstance(asked, SidesRequest):
        return f"make it anew: ffnbench check {shlex.quote(path)} --update"
    return f"make it anew: {_command(asked)} -o {shlex.quote(path)}"


def _command(asked: CompareRequest | BlockRequest | TimingRequest) -> str:
    match asked:
        case CompareRequest():
            return command_line("compare", asked, always=("variants",))
        case BlockRequest():
            return command_line("block", asked, always=("variants",))
        case TimingRequest():
            return command_line("activations --time", asked)


def _refuse_unusable(before: Report, request: CheckRequest) -> None:
    path, again = request.baseline, _made_again(request.baseline, before)
    if not before.seal and _costs_differ(before):
        raise FfnbenchError(f"{path!r} was edited: its specs and its costs disagree", again)
    if before.interrupted or before.stopped:
        raise FfnbenchError(f"{path!r} ended early and is no baseline", again)
    if is_timed(before):
        sampled = {sample.case for sample in before.samples if sample.metric == LATENCY}
        for case in before.plan.shown:
            if case.label not in sampled:
                raise FfnbenchError(f"{path!r} has no samples of {case.label!r}", again)
        _refuse_disturbed(path, before, again)


def _refuse_disturbed(path: str, before: Report, again: str) -> None:
    """A baseline without clean rounds says nothing of its rows."""
    if lacking := without_quiet(before.plan, before.samples):
        raise FfnbenchError(f"{path!r} was made beside other work: it has no clean rounds of {lacking[0]!r}", again)


def _costs_differ(before: Report) -> bool:
    """Whether a closed form gives something else for a spec than what stands beside it."""
    own = [case for case in before.plan.shown if isinstance(case.ffn, FFNSpec)]
    return any(cost_of(case, NoProbe()).params != before.cost(case.label).params for case in own)


def _refuse_unresolvable(before: Report, policy: Policy, request: CheckRequest) -> None:
    """A tolerance that can't be told apart from noise: a change of three times of it could be missed."""
    blind = blind_row(before, policy, request.budget)
    if blind is None:
        return
    half, tolerance = percent(blind.half), percent(blind.tolerance)
    if blind.by_baseline:
        raise FfnbenchError(
            f"the baseline knows {blind.case!r} to +-{half} only, the tolerance is {tolerance}",
            _made_again(request.baseline, before, precision=100 * blind.tolerance / FINEST_PART),
        )
    raise FfnbenchError(
        f"{request.budget:g} s can't resolve a tolerance of {tolerance} for {blind.case!r}: about +-{half} is in reach",
        "give more --budget, or more --tolerance",
    )


def _made_again(path: str, before: Report, precision: float = 0.5) -> str:
    """The command that makes a better baseline: what was asked, more precisely."""
    asked, out = before.plan.request, f"-o {shlex.quote(path)}"
    if isinstance(asked, CompareRequest | BlockRequest):
        same = replace(asked, workers=None, rounds=None, quick=False, precision=None, budget=None)
        return f"make a better one: {_command(same)} --precision {precision:.2g} {out}"
    if isinstance(asked, TimingRequest):
        same_operations = replace(asked, workers=None, rounds=None, quick=False)
        more = 2 * before.plan.protocol.workers + 4
        return f"make a better one: {_command(same_operations)} --workers {more} {out}"
    return f"make a better one with the flags that made this one, and --precision {precision:.2g} {out}"
