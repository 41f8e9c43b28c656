"""Numbers on one screen agree: what a reader divides gives what stands beside it.

The oracle is a pocket calculator: it reads the texts that a user gets, and the plan in
the file for what is compared.
"""

from __future__ import annotations

import csv
import io
import math
import random
import re
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
NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?")


def table_rows(text: str) -> list[list[str]]:
    """The cells of a markdown table; a heading of a group is a row with one text."""
    lines = [
        line
        for line in text.splitlines()
        if line.startswith("| ") and not line.startswith(("| :", "| --"))
    ]
    return [
        [cell.strip() for cell in line.removeprefix("|").removesuffix("|").split(" | ")]
        for line in lines
    ]


def rounded(text: str) -> tuple[float, float]:
    """The ends of what a number may be that is rounded to this text."""
    number = NUMBER.search(text)[0].replace(",", "")
    half = 0.5 * 10.0 ** -len(number.partition(".")[2])
    return float(number) - half, float(number) + half


def agree(one: str, other: str, ratio: str) -> bool:
    """Whether one over other may be the ratio, each as far as it is shown."""
    (low, high), (other_low, other_high), (ratio_low, ratio_high) = map(
        rounded, (one, other, ratio)
    )
    return low / other_high <= ratio_high and ratio_low <= high / other_low


@pytest.mark.parametrize("path", RUNS, ids=lambda path: path.stem)
def test_latencies_divided_are_the_ratio_beside_them_in_every_committed_run(
    path: Path, in_process
) -> None:
    """To all digits of the CSV, and to the digits that the table shows; of a training
    run by step.
    """
    plan = read_report(path).plan
    code, out, _ = in_process("report", str(path), "-f", "csv")
    assert code == 0
    rows, compared = list(csv.DictReader(io.StringIO(out))), 0
    times = ("step",) if "step_s" in rows[0] else ("",)
    for of in times:
        seconds, ratio = (f"{of}_s", f"{of}_ratio") if of else ("latency_s", "ratio")
        for number, row in enumerate(rows):
            if "label" in row:
                against = plan.reference_of(row["label"])
                reference = next(one for one in rows if one["label"] == against)
            else:  # of one reference after another
                verdict = f"{of}_verdict" if of else "verdict"
                reference = next(
                    one
                    for one in reversed(rows[: number + 1])
                    if one[verdict] == "reference"
                )
            if row[ratio]:
                quotient = float(row[seconds]) / float(reference[seconds])
                assert quotient == pytest.approx(float(row[ratio]), rel=CLOSE)
                compared += row is not reference
    columns = ("--columns", "label,latency,ratio") if "label" in rows[0] else ()
    heads, *shown = table_rows(in_process("report", str(path), "-f", "md", *columns)[1])
    for place, head in enumerate(heads):
        if "time vs" not in head:
            continue
        reference = ""
        for cells in shown:
            # what was only seen is shown in two digits
            compared -= len(cells) == len(heads) and "~" in cells[place]
            if len(cells) == len(heads) and NUMBER.match(cells[place]):
                reference = cells[place - 1] if cells[place] == "1" else reference
                assert agree(cells[place - 1], reference, cells[place]), cells
                compared -= cells[place] != "1"
                digits = (
                    NUMBER.search(cells[place - 1])[0]
                    .replace(",", "")
                    .replace(".", "")
                    .lstrip("0")
                )
                assert len(digits) >= 3, cells
    assert compared == 0  # every ratio of the CSV was seen in the table


@pytest.mark.parametrize("path", RUNS, ids=lambda path: path.stem)
def test_rates_follow_from_the_latency_beside_them(path: Path, in_process) -> None:
    text = in_process("report", str(path), "-f", "csv")[1]
    for row in csv.DictReader(io.StringIO(text)):
        if not row.get("tokens_per_s"):
            continue
        tokens = int(row["batch"]) * int(row["seq_len"])
        latency = float(row["latency_s"])
        assert tokens / latency == pytest.approx(float(row["tokens_per_s"]), rel=CLOSE)
        forward, backward = (
            int(row[f"flops_{pass_}"]) for pass_ in ("forward", "backward")
        )
        flops = {
            "forward": forward,
            "backward": backward,
            "train": forward + backward,
        }[row["mode"]]
        assert tokens * flops / latency == pytest.approx(
            float(row["flops_per_s"]), rel=CLOSE
        )


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


def test_the_interval_of_seconds_is_that_of_the_rows_own_processes() -> None:
    """By hand: b's three processes take 1.9, 2.0 and 2.1 s, in all rounds, and a's 1 s:
    no row moves another.
    """
    plan = plan_of(workers=3, rounds=4)
    measured = summarise(
        run_of(plan, {"a": [[1.0] * 4] * 3, "b": [[v] * 4 for v in (1.9, 2.0, 2.1)]})
    )[0]
    one, other = (m.estimate for m in measured[:2])
    logs = [math.log(v) for v in (1.9, 2.0, 2.1)]
    mean = sum(logs) / 3
    half = 4.302653 * math.sqrt(sum((log - mean) ** 2 for log in logs) / 2 / 3)
    assert other.value / one.value == pytest.approx(math.exp(mean))
    assert (other.low, other.high) == (
        pytest.approx(other.value * math.exp(-half), rel=1e-6), pytest.approx(other.value * math.exp(half), rel=1e-6),
    )  # fmt: skip
