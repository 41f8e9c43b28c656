"""Numbers on one screen agree: what a reader divides gives what stands beside it.

The oracle is a pocket calculator: it reads the texts that a user gets, and the plan in
the file for what is compared.
"""

from __future__ import annotations

import csv
import io
import math
import random
from pathlib import Path

import pytest
from made_up_runs import (
    QUIET,
    WAITS,
    plan_of,
    run_of,
    with_waits,
)
from paths import committed_runs

from ffnbench.record.result import Run
from ffnbench.report.store import read_report
from ffnbench.stats.verdict import summarise

# a baseline of exact metrics alone has no times
RUNS = [path for path in committed_runs() if path.stem != "baseline"]
CLOSE = 0.0015


@pytest.mark.parametrize("path", RUNS, ids=lambda path: path.stem)
def test_ratios_and_rates_follow_from_the_latencies_of_every_committed_run(
    path: Path, in_process
) -> None:
    """To all digits of the CSV; the goldens hold that a table shows the same."""
    plan = read_report(path).plan
    text = in_process("report", str(path), "-f", "csv")[1]
    rows = list(csv.DictReader(io.StringIO(text)))
    seconds = {row.get("label"): row["latency_s"] for row in rows}
    reference = ""
    for row in rows:
        if "label" in row:
            reference = seconds[plan.reference_of(row["label"])]
        elif row["verdict"] == "reference":
            reference = row["latency_s"]
        if row["ratio"]:
            quotient = float(row["latency_s"]) / float(reference)
            assert quotient == pytest.approx(float(row["ratio"]), rel=CLOSE)
        if row.get("tokens_per_s"):
            tokens = int(row["batch"]) * int(row["seq_len"])
            rate = tokens / float(row["latency_s"])
            assert rate == pytest.approx(float(row["tokens_per_s"]), rel=CLOSE)
            passes = {"train": ("forward", "backward")}.get(row["mode"], [row["mode"]])
            flops = sum(int(row[f"flops_{each}"]) for each in passes)
            assert flops * rate == pytest.approx(float(row["flops_per_s"]), rel=CLOSE)


def drifting(rng: random.Random, *, disturbed: str) -> tuple[Run, dict[str, float]]:
    """A machine that slows down by 30 %. c is there in the first half only; of one row
    half of each worker's rounds are disturbed, the early ones. With the run, the
    seconds of each row at the machine's mean speed.
    """
    plan = plan_of("a=relu,b=gelu,c=silu,d=mish", workers=8, rounds=10)
    effects = {"a": 0.0, "b": 0.4, "c": -0.3, "d": 0.02}
    values: dict[str, list[list[float]]] = {label: [] for label in effects}
    waits: dict[tuple[str, int, int], float | None] = {}
    for worker in range(8):
        for label, effect in effects.items():
            if label == "c" and worker >= 4:
                continue
            layout, logs = rng.gauss(0, 0.003), []
            for number in range(10):
                waited = label == disturbed and number < 5
                waits[label, worker, number] = WAITS if waited else QUIET
                machine = 0.3 * (worker + number / 9) / 8
                logs.append(
                    effect + machine + layout + rng.gauss(0, 0.004) + 0.5 * waited
                )
            values[label].append([math.exp(log) for log in logs])
    return with_waits(run_of(plan, values), waits), {
        label: math.exp(one + 0.15) for label, one in effects.items()
    }


@pytest.mark.parametrize("disturbed", ["", "a", "b"])
def test_seconds_are_those_of_one_machine_whichever_rounds_a_row_has(
    disturbed: str,
) -> None:
    """The truth is known. By their own rounds c would be 8 % too fast, and a disturbed
    row 1 % too slow.
    """
    rng = random.Random(3)
    for _ in range(5):
        done, truth = drifting(rng, disturbed=disturbed)
        measured, comparisons, _ = summarise(done)
        seconds = {one.case: one.estimate.value for one in measured}
        assert seconds == {
            label: pytest.approx(true, rel=0.015) for label, true in truth.items()
        }
        for one in comparisons:
            assert seconds[one.case] / seconds["a"] == pytest.approx(
                one.ratio.value, rel=1e-9
            )
