"""Two sides of one run -> findings, by the rules of check.py: their latency, and whether their outputs agree. Pure."""

from __future__ import annotations

from ffnbench.check import Change, Finding, Policy, Status, latency_finding, row_of
from ffnbench.plan import LATENCY
from ffnbench.result import Report
from ffnbench.sides import Agreement
from ffnbench.stats import error_rate, holm

OUTPUT = "output"
EXACT_WITHIN = 1e-6  # of two runs in float64: rounding leaves 1e-15, or 1e-7 where a module casts to float32 inside


def paired_findings(run: Report, policy: Policy) -> list[Finding]:
    """The latency of every row against the reference of the same run: old and new code in the same rounds.

    There is no other run to vary from, so the change is the ratio with its own interval.
    """
    reference = run.plan.reference
    rows = [(case.label, LATENCY) for case in run.plan.shown if case.label != reference]
    centres = {row: row_of(run, *row) for row in rows}
    changes = {
        row: Change(before=0.0, now=centre.mean, difference=centre) if centre and centre.freedom > 0 else None
        for row, centre in centres.items()
    }
    alpha = error_rate(run.plan.protocol)
    worse = holm({row: c.p_above(policy.of(*row)) for row, c in changes.items() if c}, alpha / 2)
    return [latency_finding(row, changes[row], row in worse, policy, run) for row in rows]


def output_finding(label: str, agreement: Agreement, *, allowed: bool) -> Finding:
    """Whether head computes what base does: REGRESSED where it does not, OK where that is `allowed`.

    UNCLEAR where their outputs differ and so do their weights, which could not be carried over.
    """
    errors = {"": agreement.error, " in float64": agreement.exact_error}
    limits = {"": agreement.tolerance, " in float64": min(agreement.tolerance, EXACT_WITHIN)}
    apart = [f"{error:.1e}{how}" for how, error in errors.items() if error is not None and error > limits[how]]
    if agreement.error is None:
        apart = ["infinitely: it is not finite, or has another shape"]
    own = f"; its weights are its own, of the same seed: {agreement.apart}" if agreement.apart else ""
    told = {"base": agreement.base_error, "head": agreement.head_error}
    rounding = ", ".join(f"{side} {error:.1e}" for side, error in told.items() if error is not None)
    against = f"; against its own run in float64: {rounding}" if rounding else ""
    status, reason = Status.OK, own.removeprefix("; ")
    if apart:
        status = Status.OK if allowed else Status.UNCLEAR if agreement.apart else Status.REGRESSED
        reason = f"head's output differs from base's by {' and '.join(apart)}{against}{own}"
        reason += "; allowed by --allow-mismatch" if allowed else ""
        reason += "; nothing was timed: --allow-mismatch goes on" if status is Status.REGRESSED else ""
    return Finding(
        case=label, metric=OUTPUT, status=status, tolerance=agreement.tolerance, now=agreement.error, reason=reason
    )
