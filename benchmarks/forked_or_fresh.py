"""Whether forked workers measure what fresh interpreters do: `python
benchmarks/forked_or_fresh.py --d-model 768`.

Workers of both kinds take turns in one run, `--pairs` of each: a fork of one of two
starters, and an interpreter of its own. Each opens relu, gelu and swiglu, leaves a
round out and makes `--rounds`. Told are, of each row, the ratio to relu of the forked
over that of the fresh ones with its 95 % interval, the standard deviation of a worker's
ratio in both kinds, and the seconds of both: of a worker, and of a call. Let nothing
else run.
"""

from __future__ import annotations

import argparse
import math
import random
import time
from collections import defaultdict
from statistics import fmean, median, stdev

from ffnbench.messages import Begin, Open, Preload, TakeSample
from ffnbench.plan import Plan
from ffnbench.planning.compare import plan_compare
from ffnbench.request import CompareRequest
from ffnbench.run.worker_process import ForkedWorker, WorkerProcess
from ffnbench.stats.interval import Mean, student

FORKED, FRESH = "forked", "fresh"
STARTERS = 2
TIMEOUT_S = 300.0
Seconds = dict[str, float]  # of a call, by case


def measured(
    worker: WorkerProcess | ForkedWorker,
    plan: Plan,
    calls: dict[str, int],
    block: str,
    rounds: int,
) -> Seconds:
    """The median seconds of each case in one worker."""
    worker.ask(Begin(plan=plan, layout_seed=block), TIMEOUT_S)
    for case in plan.cases:
        known = calls.get(case.label)
        opened = worker.ask(
            Open(label=case.label, calls=known, checked=known is not None), TIMEOUT_S
        )
        calls[case.label] = opened.calls
    found: dict[str, list[float]] = defaultdict(list)
    labels = [case.label for case in plan.cases]
    for number in range(rounds + 1):
        random.Random(f"{block}/{number}").shuffle(labels)
        for label in labels:
            sampled = worker.ask(
                TakeSample(label=label, calls=calls[label], salt=number), TIMEOUT_S
            )
            if number:
                found[label].append(sampled.value)
    return {label: median(seconds) for label, seconds in found.items()}


def main() -> None:
    """Measure, and print a row for each form."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--d-model", type=int, default=768)
    parser.add_argument("--mode", default="forward")
    parser.add_argument("--backend", default="eager")
    parser.add_argument("--seq-len", type=int, default=512)
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=8)
    asked = parser.parse_args()
    plan = plan_compare(
        CompareRequest(
            variants="relu,gelu,swiglu", d_model=asked.d_model, mode=asked.mode, backend=asked.backend, device="cpu",
            seq_len=asked.seq_len, metrics="latency",
        )
    )  # fmt: skip
    reference = plan.cases[0].label
    starters = [WorkerProcess() for _ in range(STARTERS)]
    for starter in starters:
        starter.greeting()
        starter.ask(Preload(compiles=asked.backend == "compile"), TIMEOUT_S)
    calls: dict[str, int] = {}
    with_child = starters[0].fork(TIMEOUT_S)
    assert with_child is not None
    measured(with_child, plan, calls, "first", 1)  # finds the number of calls
    with_child.close()
    found: dict[str, list[Seconds]] = defaultdict(list)
    took: dict[str, list[float]] = defaultdict(list)
    try:
        for pair in range(asked.pairs):
            for kind in random.Random(pair).sample((FORKED, FRESH), 2):
                start = time.monotonic()
                worker = (
                    WorkerProcess()
                    if kind == FRESH
                    else starters[pair % STARTERS].fork(TIMEOUT_S)
                )
                assert worker is not None
                found[kind].append(
                    measured(worker, plan, calls, f"{pair}/{kind}", asked.rounds)
                )
                worker.close()
                took[kind].append(time.monotonic() - start)
    finally:
        for starter in starters:
            starter.close()
    a_worker = ", ".join(
        f"{kind} {median(seconds):.2f} s" for kind, seconds in took.items()
    )
    print(
        f"{asked.backend}, {asked.mode}, d_model {asked.d_model}, {asked.seq_len} tokens; a worker: {a_worker}"
    )
    for case in plan.cases[1:]:
        logs = {
            kind: [math.log(one[case.label] / one[reference]) for one in all_]
            for kind, all_ in found.items()
        }
        print(
            f"  {case.label:8} forked/fresh {told(logs)}, sd {stdev(logs[FORKED]):.1%} and {stdev(logs[FRESH]):.1%}"
        )
    of_calls = {
        kind: median(one[reference] for one in all_) for kind, all_ in found.items()
    }
    print(
        f"  {reference:8} a call {of_calls[FORKED] * 1e3:.2f} and {of_calls[FRESH] * 1e3:.2f} ms"
    )


def told(logs: dict[str, list[float]]) -> str:
    """The ratio of both kinds with its interval (Welch)."""
    errors = {kind: stdev(values) ** 2 / len(values) for kind, values in logs.items()}
    error = math.sqrt(sum(errors.values()))
    freedom = error**4 / sum(
        part**2 / (len(logs[kind]) - 1) for kind, part in errors.items()
    )
    mean = Mean(fmean(logs[FORKED]) - fmean(logs[FRESH]), error, freedom)
    return f"{math.exp(mean.mean):.4f} +- {student(freedom, 0.95) * error:.2%}"


if __name__ == "__main__":
    main()
