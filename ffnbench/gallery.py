"""The journeys of `plot-activations` and `activations`: check, ask the workers, draw or tell."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ffnbench.bench.environment import usable_cpus
from ffnbench.bench.prober import Prober
from ffnbench.bench.runner import Launch, run
from ffnbench.bench.session import Session
from ffnbench.errors import EXIT_INTERRUPTED, FfnbenchError, Unfinished
from ffnbench.ffn.spec import ActivationSpec, require_positive
from ffnbench.ffn.variants import GATED_BY_ACTIVATION
from ffnbench.report.activations import Answer, facts_records, facts_table, timing_records, timing_table
from ffnbench.report.store import Outputs
from ffnbench.report.table import Table
from ffnbench.result import Curve, Progress, Run
from ffnbench.selection import (
    CHOSEN,
    Block,
    TimingRequest,
    block_plan,
    every_activation,
    every_gated_form,
    parse_range,
    select,
    timing_plan,
)
from ffnbench.stats import summarise

PICTURES = (".png", ".svg", ".pdf", ".csv")
CURVE_POINTS, SURFACE_POINTS = 1601, 161
Told = tuple[list[dict[str, Any]], list[Table], int]  # records, tables, exit code


def draw(
    activations: str | None,
    range_: str,
    derivative: bool,
    gated: bool,
    size: str | None,
    dpi: int,
    style: str,
    out: list[str],
) -> list[str]:
    """Write the pictures; gives the lines that tell what was written. Nothing is left behind by a mistake."""
    from ffnbench.report import plots

    low, high = parse_range(range_)
    width, height = _size(size, (11.0, 7.0) if gated else (10.0 if derivative else 6.0, 4.6))
    look = plots.Look(width=width, height=height, dpi=require_positive("dpi", dpi), style=style)
    with Outputs(out, "activations", PICTURES) as outputs, Prober() as prober:
        chosen = select(activations or (every_gated_form() if gated else CHOSEN), prober, gated=gated)
        points = SURFACE_POINTS if gated else CURVE_POINTS
        curves = {label: prober.curve(spec, low, high, points) for label, spec in chosen.items()}
        if gated:
            figure = plots.gated_figure(curves, _titles(chosen), look=look)
        else:
            facts = {label: prober.facts(spec) for label, spec in chosen.items()}
            figure = plots.curves_figure(curves, facts, derivative=derivative, look=look)

        def render(suffix: str) -> bytes:
            return _points(curves, gated).encode() if suffix == ".csv" else plots.render(figure, suffix, look)

        paths = outputs.write(render)
    many = "s" if len(chosen) > 1 else ""
    what = f"gated surface{many}" if gated else f"activation{many}" + (f" with derivative{many}" if derivative else "")
    return [f"{len(chosen)} {what} on [{low:g}, {high:g}] -> {path}" for path in paths]


def _size(text: str | None, default: tuple[float, float]) -> tuple[float, float]:
    if text is None:
        return default
    width, cross, height = text.lower().partition("x")
    try:
        size = float(width), float(height)
    except ValueError:
        size = 0.0, 0.0
    if not cross or not all(1 <= side <= 60 for side in size):
        raise FfnbenchError(f"cannot read the size {text!r}", "inches, between 1 and 60: --size 10x4.5")
    return size


def _titles(chosen: dict[str, ActivationSpec]) -> dict[str, str]:
    """`swiglu: silu(g) · u`."""
    titles = {}
    for label, spec in chosen.items():
        name = GATED_BY_ACTIVATION.get(spec.activation, label)
        titles[label] = f"{name if label == spec.activation else label}: {spec.activation.rpartition(':')[2]}(g) · u"
    return titles


def _points(curves: dict[str, Curve], gated: bool) -> str:
    """Every point in full precision."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("gate", "up", "activation", "value") if gated else ("x", "activation", "value", "derivative"))
    for label, curve in curves.items():
        if gated:
            writer.writerows((g, u, label, y * u) for u in curve.x for g, y in zip(curve.x, curve.y, strict=True))
        else:
            writer.writerows((x, label, y, s) for x, y, s in zip(curve.x, curve.y, curve.slope, strict=True))
    return text.getvalue()


def tell_facts(activations: str | None, timeout: float) -> Told:
    """Find the facts of activations."""
    with Prober(timeout) as prober:
        chosen = select(activations or every_activation(), prober)
        facts = {label: prober.facts(spec) for label, spec in chosen.items()}
    return facts_records(chosen, facts), [facts_table(chosen, facts)], 0


def refuse_without_time(**given: object) -> None:
    """Flags that would be ignored are a mistake."""
    for name, value in given.items():
        if value is not None:
            raise FfnbenchError(f"--{name} needs --time", "facts are not measured, they are found in float64")


def timing_request(
    elements: str | None,
    dtypes: str | None,
    device: str,
    threads: int | None,
    workers: int | None,
    rounds: int | None,
    quick: bool,
    seed: int,
    timeout: float,
) -> TimingRequest:
    """The flags of --time, with the machine's own number of threads."""
    defaults = TimingRequest()
    return TimingRequest(
        elements=elements or defaults.elements,
        dtypes=dtypes or defaults.dtypes,
        device=device,
        threads=usable_cpus() if threads is None else require_positive("threads", threads),
        workers=workers,
        rounds=rounds,
        quick=quick,
        seed=seed,
        timeout=timeout,
    )


def tell_times(
    activations: str | None,
    request: TimingRequest,
    on_progress: Callable[[Progress], None] = lambda _: None,
    launch: Launch = Session,
) -> Told:
    """Measure the operations: all sizes, dtypes and directions in the same rounds, ratios within their block."""
    with Prober(request.timeout) as prober:
        chosen = select(activations or every_activation().removeprefix("identity,"), prober)
    plan, blocks = timing_plan(chosen, request)
    done = run(plan, on_progress=on_progress, launch=launch)
    if done.failures and len(done.failures) == len(plan.cases):
        raise Unfinished("nothing could be measured: every case failed", done.failures[0].message)
    answers = [_answer(done, block) for block in blocks]
    work = done.plan.cases[0].workload
    where = (
        f"{work.device} ({work.threads} thread{'s' if work.threads > 1 else ''})"
        if work.device == "cpu"
        else work.device
    )
    protocol = (
        f"{plan.protocol.workers} fresh processes x {plan.protocol.rounds} shuffled rounds; "
        "± and [ ] are 95% intervals over processes"
    )
    tables = []
    for i in range(0, len(blocks), 2):  # forward, backward
        what = f"The operation itself: {blocks[i].elements:,} elements, {blocks[i].dtype}, {where}"
        pair = ((blocks[i], answers[i]), (blocks[i + 1], answers[i + 1]))
        tables.append(timing_table(*pair, done.failures, (what, protocol)))
    code = EXIT_INTERRUPTED if done.interrupted else 0
    return timing_records(blocks, answers, done.failures), tables, code


def _answer(done: Run, block: Block) -> Answer:
    measured, comparisons, _ = summarise(replace(done, plan=block_plan(done.plan, block)))
    return {m.case: m.estimate for m in measured}, {c.case: c for c in comparisons}
