"""What checks are asked and counted for: false alarms on unchanged rows, slow-downs
that are found. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import log, sqrt

from exam.plans import latency_plan
from exam.text import table
from ffnbench.common.units import percent
from ffnbench.gate.decision import Finding, Policy, Status
from ffnbench.plan.metrics import LATENCY
from ffnbench.plan.plan import Case, Plan

TOLERANCE = 0.01
ROW = "swiglu"  # the row that is slowed down
FALSE_AT_MOST = 0.01  # of checks
NO_ANSWER = (Status.MISSING, Status.INCOMPARABLE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Alarm:
    """What one check said of one row. `injected` is by how much the check's ROW was
    slowed down, 0 for not at all.
    """

    condition: str
    repeat: int
    injected: float
    row: str
    status: str
    change: float | None
    low: float | None
    high: float | None
    seconds: float  # the whole check, its second look included

    @property
    def truth(self) -> float:
        """What the change of this row should be."""
        return 1 + self.injected if self.row == ROW else 1.0


def check_plan(
    variants: str = "relu,gelu,swiglu", precision: float | None = 100 * TOLERANCE / 3
) -> Plan:
    """The main job, measured well enough to be a baseline for the tolerance."""
    return latency_plan(variants, d_model=768, precision=precision)


def check_policy(tolerance: float = TOLERANCE) -> Policy:
    """One tolerance for every row."""
    return Policy(tolerances=(("", LATENCY, tolerance),))


def slowed(plan: Plan, share: float) -> Plan:
    """The plan with ROW slowed down: what the code under test has become."""

    def changed(case: Case) -> Case:
        return (
            replace(case, workload=replace(case.workload, slowdown=share))
            if case.label == ROW
            else case
        )

    return replace(plan, cases=tuple(map(changed, plan.cases)))


def alarms_of(
    findings: Iterable[Finding],
    *,
    condition: str,
    repeat: int,
    injected: float,
    seconds: float,
) -> list[Alarm]:
    """What a check's findings say of its latency rows."""
    return [
        Alarm(
            condition=condition, repeat=repeat, injected=injected, row=f.case, status=f.status.value,
            change=f.change.value if f.change else None, low=f.change.low if f.change else None,
            high=f.change.high if f.change else None, seconds=seconds,
        )
        for f in findings
    ]  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """What the checks of one condition came to, at one injected slow-down."""

    checks: int
    false_alarms: int  # checks that accuse a row which has not changed
    found: int  # checks that accuse the slowed row
    unclear: int  # checks that decide a row neither way
    without: int  # checks with a row that has no answer at all
    seconds: float  # mean
    error: float | None  # rms error of the log of the change, over all rows
    # share of the intervals, over all rows, that hold the true change
    covered: float | None


def counts(alarms: list[Alarm], condition: str | None, injected: float) -> Counts:
    """Count the checks of a condition, or of all."""
    of = [
        a for a in alarms if condition in (None, a.condition) and a.injected == injected
    ]

    def checks_with(wanted: tuple[str, ...], rows: list[Alarm]) -> int:
        return len({(a.condition, a.repeat) for a in rows if a.status in wanted})

    errors = [log(a.change / a.truth) ** 2 for a in of if a.change]
    covered = [a.low <= a.truth <= a.high for a in of if a.low and a.high]
    regressed = (Status.REGRESSED,)
    return Counts(
        checks=len({(a.condition, a.repeat) for a in of}),
        false_alarms=checks_with(regressed, [a for a in of if a.truth == 1]),
        found=checks_with(regressed, [a for a in of if a.truth != 1]),
        unclear=checks_with((Status.UNCLEAR,), of),
        without=checks_with(NO_ANSWER, of),
        seconds=sum(a.seconds for a in of) / len(of) if of else 0.0,
        error=sqrt(sum(errors) / len(errors)) if errors else None,
        covered=sum(covered) / len(covered) if covered else None,
    )


def slowed_by(alarms: list[Alarm]) -> dict[str, float]:
    """The slow-downs that were injected, by how they are called."""
    return {
        f"+{share:.0%}": share
        for share in sorted({alarm.injected for alarm in alarms})
        if share
    }


def report(alarms: list[Alarm], tolerance: float) -> str:
    """One row a condition, all of them together in the last."""
    found = [f"finds {name}" for name in slowed_by(alarms)]
    head = ("", "false alarms", *found, "unclear", "no answer", "error", "a check")
    named = list(dict.fromkeys(alarm.condition for alarm in alarms))
    rows = [_row(name, alarms, name) for name in named] + [
        _row("all", alarms, None)
    ] * (len(named) > 1)
    beside = [a for a in alarms if a.injected and a.row != ROW and a.change is not None]
    accused = sum(a.status == Status.REGRESSED for a in beside)
    held = {
        f"+{share:.0%}": counts(alarms, None, share).covered
        for share in sorted({a.injected for a in alarms})
    }
    notes = (
        f"a tolerance of {percent(tolerance)}, unchanged code, and code whose {ROW} is slower",
        "false alarms, unclear: checks of unchanged code that end so; finds: checks that accuse the slowed row",
        f"of {len(beside)} unchanged rows beside the slowed one, {accused} were accused",
        "intervals that hold the true change: "
        + ", ".join(f"{percent(of)} at {name}" for name, of in held.items() if of),
    )
    return "\n".join((table(head, rows), "", *notes))


def _row(name: str, alarms: list[Alarm], condition: str | None) -> tuple[str, ...]:
    every = [
        counts(alarms, condition, share) for share in (0.0, *slowed_by(alarms).values())
    ]
    unchanged, *slowed = every
    errors = [of.error**2 for of in every if of.error is not None]
    seconds = [of.seconds for of in every if of.checks]
    return (
        name,
        *(f"{hits} of {of.checks}" for hits, of in (
            (unchanged.false_alarms, unchanged), *((of.found, of) for of in slowed), (unchanged.unclear, unchanged),
        )),
        str(sum(of.without for of in every)),
        percent(sqrt(sum(errors) / len(errors))) if errors else "-",
        f"{sum(seconds) / len(seconds):.0f} s" if seconds else "-",
    )  # fmt: skip


def broken_promises(alarms: list[Alarm]) -> list[str]:
    """Whether there are more false alarms than promised, in words; empty where there
    are not.
    """
    of_all = [
        counts(alarms, None, share) for share in (0.0, *slowed_by(alarms).values())
    ]
    wrong, asked = (
        sum(of.false_alarms for of in of_all),
        sum(of.checks for of in of_all),
    )
    return [f"{wrong} false alarms"] if wrong > int(FALSE_AT_MOST * asked) else []
