"""The journey of `activations --time`: flags -> plan -> one run of all operations -> records and tables."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from ffnbench.bench.environment import usable_cpus
from ffnbench.bench.group import Launch
from ffnbench.bench.prober import Prober
from ffnbench.bench.runner import run
from ffnbench.bench.session import Session
from ffnbench.errors import FfnbenchError, Unfinished
from ffnbench.planning.activations import Block, TimingRequest, block_plan, every_activation, select, timing_plan
from ffnbench.report.activations import Answer, timing_records, timing_table
from ffnbench.report.summary import INTERVALS, effort, ended_early
from ffnbench.report.table import Table
from ffnbench.result import Progress, Run
from ffnbench.stats.verdict import refuse_blind, summarise


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What is to be shown, and what is to be said afterwards: by hand, or by a problem, a run may end early."""

    records: list[dict[str, Any]]
    tables: list[Table]
    interrupted: bool = False
    problem: Unfinished | None = None


def refuse_without_time(names: list[str]) -> None:
    """Flags that would be ignored are a mistake."""
    for name in names:
        raise FfnbenchError(f"--{name} needs --time", "facts are not measured, they are found in float64")


def timing_request(
    *, elements: str | None, dtypes: str | None, device: str, threads: int | None, **protocol: Any
) -> TimingRequest:
    """The flags of --time, with the machine's own number of threads."""
    defaults = TimingRequest()
    return TimingRequest(
        elements=defaults.elements if elements is None else elements,
        dtypes=defaults.dtypes if dtypes is None else dtypes,
        device=device,
        threads=usable_cpus() if threads is None else threads,
        **protocol,
    )


def tell_times(
    activations: str | None,
    request: TimingRequest,
    on_progress: Callable[[Progress], None] = lambda _: None,
    launch: Launch = Session,
) -> Told:
    """Measure the operations: all sizes, dtypes and directions in the same rounds, ratios within their block.

    Raises KeyboardInterrupt where the interruption came before anything was measured.
    """
    timing_plan({}, request)  # a mistake in the flags is found before a worker looks at code of the user's
    with Prober(request.timeout) as prober:
        default = every_activation().removeprefix("identity,")
        chosen = select(default if activations is None else activations, prober)
    plan, blocks = timing_plan(chosen, request)
    refuse_blind(block_plan(plan, blocks[0]))
    done = run(plan, on_progress=on_progress, launch=launch)
    if done.interrupted and not done.samples:
        raise KeyboardInterrupt
    general = [note.text for note in done.warnings if not note.label]
    answers = []
    for block in blocks:
        answer, texts = _answer(done, block)
        answers.append(answer)
        general += [text for text in texts if text not in general]
    early = ended_early(done.samples) if done.interrupted or done.stopped else ()
    tables = []
    for i in range(0, len(blocks), 2):  # forward, backward
        header = (_subject(done, blocks[i]), f"{effort(done)}; {INTERVALS}")
        closing = (*general, *early) if i + 2 == len(blocks) else ()
        tables.append(timing_table(answers[i], answers[i + 1], header, closing))
    return Told(
        records=timing_records(answers), tables=tables, interrupted=done.interrupted, problem=_problem(done)
    )  # fmt: skip


def _answer(done: Run, block: Block) -> tuple[Answer, list[str]]:
    """The answer of a block, and what is said of it as a whole."""
    measured, comparisons, noise = summarise(replace(done, plan=block_plan(done.plan, block)))
    notes = [*done.warnings, *noise]
    reasons = {c.case: [c.reason] for c in comparisons if c.reason}
    answer = Answer(
        block=block,
        estimates={m.case: m.estimate for m in measured},
        comparisons={c.case: c for c in comparisons},
        rounds={s.case: s.round + 1 for s in sorted(done.samples, key=lambda s: s.round) if s.case in block.labels},
        failures={f.case: f for f in done.failures if f.case in block.labels},
        notes={
            label: reasons.get(label, []) + [note.text for note in notes if note.label == label]
            for label in block.labels
        },
    )
    return answer, [note.text for note in noise if not note.label]


def _subject(done: Run, block: Block) -> str:
    work = done.plan.cases[0].workload
    threads = f" ({work.threads} thread{'s' if work.threads > 1 else ''})" if work.device == "cpu" else ""
    return f"The operation itself: {block.elements:,} elements, {block.dtype}, {work.device}{threads}"


def _problem(done: Run) -> Unfinished | None:
    if done.stopped:
        return Unfinished(done.stopped, "the table holds what was measured by then")
    if len({failure.case for failure in done.failures}) == len(done.plan.cases):
        return Unfinished("nothing could be measured: every case failed", "the footnotes of the table say why")
    return None
