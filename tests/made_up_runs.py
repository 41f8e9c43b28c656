"""Runs whose samples are written by hand, for all that is computed from samples."""

from __future__ import annotations

from dataclasses import replace

from fake_machine import planned

from ffnbench.plan.metrics import LATENCY
from ffnbench.plan.plan import Plan, Probe, control_of, cost_of
from ffnbench.record.result import CaseCost, Report, Run, Sample

WAITS, QUIET = (
    0.5,
    0.01,
)  # share of a sample that the threads of a disturbed one waited, and of a clean one


def plan_of(variants: str = "a=relu,b=gelu", **options: object) -> Plan:
    return planned(variants=variants, d_model=64, **options).with_device("cpu")


def with_control(plan: Plan) -> Plan:
    """A plan whose reference is measured twice, as `check` and `ab` do."""
    return replace(plan, cases=(*plan.cases, control_of(plan.cases, plan.reference)))


def run_of(plan: Plan, values: dict[str, list[list[float]]], **changes: object) -> Run:
    """values[label][worker][round] in seconds."""
    samples = tuple(
        Sample(case=label, metric=LATENCY, worker=w, round=r, order=0, value=value, calls=1)
        for label, workers in values.items() for w, rounds in enumerate(workers) for r, value in enumerate(rounds)
    )  # fmt: skip
    run = Run(
        plan=plan,
        samples=samples,
        failures=(),
        warnings=(),
        environment=None,
        interrupted=False,
        wall_s=1.0,
    )
    return replace(run, **changes)


def with_waits(done: Run, waits: dict[tuple[str, int, int], float | None]) -> Run:
    """The run with what the samples of (case, worker, round) waited; nothing else of
    them changes.
    """
    samples = tuple(
        replace(s, waited=waits.get((s.case, s.worker, s.round), QUIET))
        for s in done.samples
    )
    return replace(done, samples=samples)


def ten_rounds(
    ratio: float = 1.0, disturbed: float = 1.3, clean: int = 10, workers: int = 4
) -> Run:
    """b takes `ratio` of a's second, and `disturbed` in the rounds after the first
    `clean` ones, where it waits.
    """
    plan = plan_of(workers=workers, rounds=10)
    b = [
        [
            (ratio if r < clean else disturbed) * (1 + 0.001 * w + 0.0003 * (r % 3))
            for r in range(10)
        ]
        for w in range(workers)
    ]
    waits = {("b", w, r): WAITS for w in range(workers) for r in range(clean, 10)}
    return with_waits(run_of(plan, {"a": [[1.0] * 10] * workers, "b": b}), waits)


def with_costs(report: Report) -> Report:
    """With what its cases cost."""
    costs = tuple(
        CaseCost(case=case.label, cost=cost_of(case, Probe()))
        for case in report.plan.cases
    )
    return replace(report, costs=costs)
