"""The journey of `ab`: two sides -> one plan, measured in one run -> findings. No baseline is stored.

Base and head are two cases of one plan, each in a process of its own and the control in a third; the gate's change is
their ratio within the run. What follows from it is decided by check.py, as for a stored baseline.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from ffnbench.api import Prepared, ShownReport, check_arms
from ffnbench.bench.environment import usable_cpus
from ffnbench.bench.group import Launch
from ffnbench.bench.prober import Prober
from ffnbench.bench.session import Session
from ffnbench.bench.worktree import Repository
from ffnbench.errors import FfnbenchError
from ffnbench.gate import Gate, Listener, costs_of
from ffnbench.plan import CONTROL, LATENCY, OWN, Arm, Plan, Protocol, cost_of
from ffnbench.planning.compare import build as build_plan
from ffnbench.planning.effort import LEAST_BUDGET_S, LONG_BUDGET_S, check_timeout
from ffnbench.planning.grammar import Variant, parse_env, parse_variants
from ffnbench.request import Request
from ffnbench.result import Agreement, CaseCost, Report
from ffnbench.stats.enough import Answered
from ffnbench.stats.looks import Looks, looks_at
from ffnbench.stats.regression import (
    SECONDS,
    Finding,
    Policy,
    Status,
    exact_findings,
    output_finding,
    paired_findings,
    parse_tolerances,
)

BASE, HEAD = "base", "head"


@dataclass(frozen=True, slots=True, kw_only=True)
class SideFlags:
    """One side as its flags say; None is as this process has it, and for head's code the working tree."""

    rev: str | None = None
    source: str | None = None
    python: str | None = None
    env: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """The flags of `ab`."""

    request: Request
    base: SideFlags
    head: SideFlags
    tolerances: tuple[str, ...] = ()
    fail_above: str | None = None
    budget: float = LONG_BUDGET_S
    exact_only: bool = False
    allow_mismatch: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sided:
    """One side: where it runs, and that in words."""

    arm: Arm
    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pair:
    """What is measured: the plan with its costs, the name of head's row, how the sides agree, what they are."""

    prepared: Prepared
    label: str
    agreement: Agreement
    title: str


def ab(
    question: Question,
    on_progress: Listener = lambda _: None,
    launch: Launch = Session,
    prober_of: Callable[[float], Prober] = Prober,
) -> Gate:
    """Measure base and head and decide. Raises FfnbenchError, with nothing left behind, for sides that can't be had."""
    variant, policy = _checked(question)
    with ExitStack() as stack:
        sides = _sides(question, variant, stack)
        with prober_of(question.request.timeout) as prober:
            pair = _prepared(question, variant, sides, prober)
        exact = [output_finding(pair.label, pair.agreement, allowed=question.allow_mismatch)]
        if exact[0].status is Status.REGRESSED:
            return _gate(pair, Looks(findings=(), now=pair.prepared.priced()), policy, exact)
        return _measured(question, pair, policy, exact, on_progress, launch)


def _checked(question: Question) -> tuple[Variant, Policy]:
    """Every mistake that can be found in the flags alone."""
    variants = parse_variants(question.request.variants)
    if len(variants) > 1:
        raise FfnbenchError(f"ab measures one variant, not {len(variants)}", "`ffnbench compare` measures several")
    variant = variants[0]
    if variant.arm != OWN:
        raise FfnbenchError(f"the two sides are not told by {variant.arm}", "use --base-python, --head-python, ...")
    if variant.label in (BASE, CONTROL):
        raise FfnbenchError(f"{variant.label!r} is what the other side is called", "give the variant another label")
    check_timeout(question.request.timeout)
    if not LEAST_BUDGET_S <= question.budget < float("inf"):
        raise FfnbenchError(f"--budget {question.budget:g} is too short", f"give at least {LEAST_BUDGET_S:g} seconds")
    texts = list(question.tolerances)
    if question.fail_above is not None:
        if any("latency" in text for text in texts):
            raise FfnbenchError("--fail-above and --tolerance both speak of latency", "give one of the two")
        texts.append(f"{LATENCY}={question.fail_above}")
    if any(text.startswith(SECONDS) for text in texts):
        raise FfnbenchError("ab gates the ratio of head to base, not seconds", "for example --fail-above 5%")
    return variant, Policy(tolerances=parse_tolerances(texts, [variant.label]))


def _sides(question: Question, variant: Variant, stack: ExitStack) -> tuple[_Sided, _Sided]:
    """Base and head, with the checkouts that they need; those end with the stack."""
    flags = {BASE: question.base, HEAD: question.head}
    if question.base == question.head:
        raise FfnbenchError("base and head are the same", "say what base is: --base-rev REV, --base-python PATH, ...")
    for name, side in flags.items():
        if side.rev is not None and side.source is not None:
            raise FfnbenchError(f"--{name}-rev and --{name}-source both say where the code is", "give one of the two")
    of_code = [name for name, side in flags.items() if side.rev is not None or side.source is not None]
    if of_code and not variant.target:
        raise FfnbenchError(
            f"{variant.text!r} is ffnbench's own and in no revision of yours",
            f"name your code: package.module:Attr or path/to/file.py:Attr --{of_code[0]}-rev ...",
        )
    repository = None
    if any(side.rev is not None for side in flags.values()):
        repository = stack.enter_context(Repository(Path.cwd()))
    base, head = (_one_side(name, side, bool(of_code), repository) for name, side in flags.items())
    return base, head


def _one_side(name: str, side: SideFlags, of_code: bool, repository: Repository | None) -> _Sided:
    """One side. Where either is told by its code, so are both: they must be found in the same way."""
    source, called = "", []
    if side.rev is not None:
        assert repository is not None
        commit = repository.commit(side.rev)
        source = str(repository.checkout(commit))
        called = [
            side.rev if side.rev.startswith(repository.short(commit)) else f"{side.rev} ({repository.short(commit)})"
        ]
    elif side.source is not None:
        source, called = side.source, [side.source]
    elif of_code:
        source, called = str(Path.cwd()), ["working tree"]
        if repository is not None:
            dirty = ", with changes that are not committed" if repository.dirty() else ""
            called = [f"the working tree ({repository.short('HEAD')}{dirty})"]
    if side.python is not None:
        called.append(side.python)
    called += side.env
    arm = Arm(python=side.python or "", source=source, env=parse_env(side.env), name=name)
    return _Sided(arm=arm, words=f"{name} {', '.join(called) or 'this environment'}")


def _prepared(question: Question, variant: Variant, sides: tuple[_Sided, _Sided], prober: Prober) -> _Pair:
    """Both sides looked at where they run: what they are, what they cost, and whether they do the same."""
    request = question.request
    check_arms((side.arm for side in sides), prober)
    if request.threads is None:
        request = replace(request, threads=usable_cpus())
    request = replace(request, variants=variant.text, metrics="memory" if question.exact_only else "latency,memory")
    base_arm, head_arm = (side.arm for side in sides)
    first = build_plan(request, _within(prober, base_arm, variant)).cases[0]
    base = replace(first, label=BASE, arm=base_arm)
    same_width = replace(request, d_ff=base.ffn.d_ff, match="none", rule=None, ratio=None)
    there = build_plan(same_width, _within(prober, head_arm, variant)).cases[0]
    head = replace(base, label=variant.label, ffn=there.ffn, arm=head_arm)
    protocol = Protocol(seed=request.seed, timeout_s=request.timeout)
    plan = Plan(
        cases=(base, head), reference=BASE, protocol=protocol, metrics=tuple(request.metrics.split(",")), match="none",
        multiple_of=1,
    )  # fmt: skip
    costs = tuple(CaseCost(case=case.label, cost=cost_of(case, prober)) for case in plan.cases)
    with tempfile.TemporaryDirectory(prefix="ffnbench-") as folder:
        prober.within(base_arm).keep(base, request.seed, folder)
        agreement = prober.within(head_arm).hold(head, request.seed, folder)
    title = f"FFN A/B of {variant.text}: {sides[0].words}; {sides[1].words}"
    return _Pair(prepared=Prepared(plan=plan, costs=costs), label=variant.label, agreement=agreement, title=title)


def _within(prober: Prober, arm: Arm, variant: Variant) -> Prober:
    """The prober of a side, once it is sure that the code there is the side's own and no installed copy."""
    there = prober.within(arm)
    if variant.target and arm.source:
        file = there.origin(variant.target)
        if not file.is_relative_to(Path(arm.source).expanduser().resolve()):
            raise FfnbenchError(
                f"{arm}: {variant.target.rpartition(':')[0]} is {file}, which is no part of it",
                "run it in the folder that your packages are in (src/ is found), or give --base-source, --head-source",
            )
    return there


def _measured(
    question: Question, pair: _Pair, policy: Policy, exact: list[Finding], on_progress: Listener, launch: Launch
) -> Gate:
    """Two looks at the latency, or one worker of each side for the exact metrics alone."""

    def measure(plan: Plan, answered: Answered | None = None) -> ShownReport:
        return Prepared(plan=plan, costs=costs_of(plan, pair.prepared)).measure(on_progress, launch, answered)

    def find(now: Report) -> list[Finding]:
        return paired_findings(now, policy)

    plan = pair.prepared.plan
    if question.exact_only:
        looks = Looks(findings=(), now=measure(plan))
    else:
        looks = looks_at(plan, find, policy, question.budget, measure)
    return _gate(pair, looks, policy, exact)


def _gate(pair: _Pair, looks: Looks, policy: Policy, exact: list[Finding]) -> Gate:
    """The findings of the looks, and of the exact metrics of both sides."""
    before, now = (_side(looks.now, side, pair.label) for side in (BASE, pair.label))
    findings = (*looks.findings, *exact, *exact_findings(before, now, policy))
    return Gate(findings=findings, before=before, now=looks.now, again=looks.again, title=pair.title)


def _side(report: Report, side: str, label: str) -> Report:
    """One side by itself, under the name of the variant: so that the two can be compared as two runs are."""
    case = replace(report.plan.case(side), label=label)
    return replace(
        report,
        plan=replace(report.plan, cases=(case,), reference=label),
        costs=(CaseCost(case=label, cost=report.cost(side)),),
        measured=tuple(replace(m, case=label) for m in report.measured if m.case == side),
        failures=tuple(replace(f, case=label) for f in report.failures if f.case == side),
    )
