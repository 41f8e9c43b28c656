"""Whether a stored run can serve as a baseline, for what policy, and what is to be said where it can't. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Set

from ffnbench.common.errors import FfnbenchError
from ffnbench.common.units import read_share
from ffnbench.gate.decision import EXACT, IDENTITY, Policy, exact_value, parse_tolerances
from ffnbench.metrics import LATENCY
from ffnbench.plan import METHOD, Plan, Value, added_kind, value_of
from ffnbench.planning.effort import check_budget
from ffnbench.report.files.store import made_anew
from ffnbench.request import CheckRequest, SidesRequest
from ffnbench.result import Environment, FailureKind, Report
from ffnbench.stats.history import SECONDS
from ffnbench.stats.rounds import table_of

FEWEST_WORKERS = 5  # of a run in a baseline for time
BETTER = {"workers": 2 * FEWEST_WORKERS, "rounds": None, "quick": False, "precision": None, "budget": None}


def policy_for(before: Report, request: CheckRequest) -> Policy:
    """The policy of a check; raises FfnbenchError for what is no usable baseline, or no usable policy for it."""
    if added := added_kind(before.plan.kind):
        told = f"{request.baseline!r} says {added.says}, and a check is of time and counts"
        raise FfnbenchError(told, "a baseline is a file of compare: -o baseline.json")
    for number, run in enumerate(before.runs, start=1):
        told = f"run {number} of {request.baseline!r}, of {run.created}," if before.repeats else repr(request.baseline)
        without = 'take it out of "repeats"' if number > 1 else ""
        hint = without or made_anew(request.baseline, before)
        _refuse_run(told, run, hint)
        if request.exact_only:
            continue
        _refuse_latencies(told, run, hint)
        if few := too_few(run):
            raise FfnbenchError(f"{told} {few}", without or made_anew(request.baseline, before, **BETTER))
    labels = [case.label for case in before.plan.shown]
    policy = Policy(
        tolerances=parse_tolerances(request.tolerance, labels),
        across_machines=request.across_machines,
        absolute=request.absolute,
    )
    check_budget(request.budget)
    return policy


def policy_of_sides(request: SidesRequest, label: str) -> Policy:
    """The policy of `ab`: the tolerances are those of head's row; raises FfnbenchError for what can't be."""
    check_budget(request.budget)
    texts = list(request.tolerance)
    if request.fail_above is not None:
        if any("latency" in text or "=" not in text for text in texts):
            raise FfnbenchError("--fail-above and --tolerance both set the limit of latency", "give one of the two")
        try:
            if read_share(request.fail_above) <= 0:
                raise FfnbenchError(f"{request.fail_above!r} must be above zero", "for example --fail-above 5%")
        except FfnbenchError as problem:
            raise FfnbenchError(f"--fail-above {problem.message}", problem.hint) from None
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
    shared = ("cpu", "usable_cpus", "cpu_capability", "torch", "blas", "gpu", "cuda", "hip", "driver")
    both = [(name, getattr(before, name), getattr(here, name)) for name in shared]
    differs = [f"{name} {was} then, {now} now" for name, was, now in both if was != now] or ["another fingerprint"]
    raise FfnbenchError(
        f"--absolute needs the machine that measured {path!r}: {'; '.join(differs)}",
        "check ratios (leave --absolute out), or make a baseline here",
    )


def refuse_another_plan(request: CheckRequest, before: Plan, now: Plan) -> None:
    """A saved run is of another plan where it answers another command, has no row of the baseline's, or all rows that
    both have are fed otherwise, or one is held against another reference. What else differs in a row is a finding.
    """
    common = {case.label for case in before.shown} & {case.label for case in now.shown}
    then, here = (_asked(plan, common) for plan in (before, now))
    differ = [name for name, was in then.items() if here[name].isdisjoint(was)]
    differ += ["reference"] * (not differ and here["reference"] != then["reference"])
    if differ:
        told = [
            f"{name} {' '.join(map(str, then[name]))} then, {' '.join(map(str, here[name]))} now" for name in differ
        ]
        words = f"{shlex.quote(request.baseline)}{' --exact-only' * request.exact_only}"
        raise FfnbenchError(
            f"{request.current!r} is of another plan: {'; '.join(told[:1] if differ[0] == 'command' else told)}",
            f"`ffnbench check {words}` measures the baseline's own",
        )


def _asked(plan: Plan, common: Set[str]) -> dict[str, Set[Value]]:
    """What a plan asks, of the rows that two have in common; of all where there are none."""
    cases = [case for case in plan.shown if case.label in common] or plan.shown
    found: dict[str, Set[Value]] = {"command": {plan.kind: None}.keys()}
    found |= {name: dict.fromkeys(value_of(case, name) for case in cases).keys() for name in ("d_model", *IDENTITY)}
    found["reference"] = dict.fromkeys(plan.reference_of(case.label) for case in cases).keys()
    return found | {"rows": dict.fromkeys(case.label for case in cases).keys()}


def of_another_method(path: str, run: Report) -> str:
    """Why the latencies of a run can't be compared, with the command that makes it anew; nothing where they can."""
    method = run.plan.protocol.method
    if method == METHOD:
        return ""
    told = f"{path!r} was measured with method {method}, now it is {METHOD}: their ratios can't be compared"
    return f"{told}; {made_anew(path, run)}"


def _refuse_run(told: str, run: Report, hint: str) -> None:
    """A run that ended early is no part of a baseline."""
    if run.interrupted or run.stopped:
        raise FfnbenchError(f"{told} is incomplete and can't be a baseline", hint)


def _refuse_latencies(told: str, run: Report, hint: str) -> None:
    """A run of time that has a row that is wrong, or nothing clean to say of one, is no part of a baseline."""
    if not is_timed(run):
        return
    if wrong := next((failure for failure in run.failures if failure.kind is FailureKind.MISMATCH), None):
        raise FfnbenchError(f"{told} can't be a baseline: {wrong.case!r} is wrong: {wrong.message}", hint)
    latencies = [sample for sample in run.samples if sample.metric == LATENCY]
    for case in run.plan.shown:
        if case.label not in {sample.case for sample in latencies}:
            raise FfnbenchError(f"{told} has no samples of {case.label!r}", hint)
    if lacking := table_of(run).labels_without_clean():
        raise FfnbenchError(f"{told} was measured on a busy machine: no undisturbed round of {lacking[0]!r}", hint)


def too_few(run: Report) -> str:
    """Why the interval of a run may be luck; nothing where it is not."""
    table = table_of(run)
    known = min((len(table.row(label).clean) for label in table.labels), default=FEWEST_WORKERS)
    told = f"has {known} undisturbed process{'es' * (known != 1)}, and fewer than {FEWEST_WORKERS} may agree by chance"
    return told if known < FEWEST_WORKERS else ""
