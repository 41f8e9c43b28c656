"""What rows of other runtimes are worth: `python benchmarks/runtimes.py`, with one of
these for what is asked.

By itself: rows of ONNX Runtime and OpenVINO beside plain loops at equal settings. By
turns, in the same minutes: a run of ffnbench, and a process that makes the same session
and calls it in a loop, as onnxruntime_perf_test and benchmark_app do: one input, which
stays where it is, and the median over blocks of 10 ms of the mean of a block. Between
two blocks it sleeps for 5 ms, as threads do in ffnbench while the inputs of a sample
are made: a call of few tokens takes longer after that, since its threads sleep too.
Prints the ratio of ffnbench's time to the loop's over the turns, with the spread of the
turns.

`--a-a 20`: how many of so many runs find a difference between a row and itself, for
ONNX Runtime, OpenVINO and torch's int8 by turns. At least 19 of 20 should find none.

`--beside`: the ratio of two rows of eager in a run of their own, and in one with all
runtimes, by turns. Prints the quotient of the two ratios with its interval over the
turns: within 1 % the runtimes do not move eager's figures.

`--errors`: the errors of each runtime and precision beside those that were measured
apart from this project (torch 2.13, ONNX Runtime 1.30), as the mean over seeds.

`--spin`: rows of ONNX Runtime whose threads wait spinning, beside those that sleep.
"""

from __future__ import annotations

import argparse
import csv
import io
import math
import statistics
import subprocess
import sys
from collections import Counter, defaultdict

LOOP = """
import statistics, sys, time
import torch
from ffnbench.choices import Backend
from ffnbench.ffn.spec import FFNSpec, Gate
from ffnbench.plan import Workload
from ffnbench.worker.backends.building import build_module

backend = sys.argv[1]
tokens, threads, d_model, d_ff = map(int, sys.argv[2:])
torch.set_num_threads(threads)
spec = FFNSpec(d_model=d_model, d_ff=d_ff, activation="silu", gate=Gate.INNER)
work = Workload(
    batch=1, seq_len=tokens, dtype="float32", device="cpu", mode="forward", threads=threads, backend=Backend(backend)
)
x = torch.randn(tokens, d_model).numpy()
if backend == "ort":
    from ffnbench.worker.backends.ort import session_of

    session = session_of(build_module(spec), work)
    call = lambda: session.run(None, {"x": x})
else:
    from ffnbench.worker.backends.openvino import infer_request

    request = infer_request(build_module(spec), work)
    call = lambda: request.infer([x], share_inputs=True, share_outputs=True)
until = time.perf_counter() + 0.5
calls = 0
while time.perf_counter() < until:
    call()
    calls += 1
block = max(1, calls // 50)
means = []
for _ in range(200):
    time.sleep(0.005)
    start = time.perf_counter()
    for _ in range(block):
        call()
    means.append((time.perf_counter() - start) / block)
print(statistics.median(means))
"""
# relative Frobenius errors of SwiGLU 768/2048 at 16 tokens on uniform weights, scales
# for groups of 32 columns
MEASURED_APART = {
    ("eager", "int8-dynamic"): 3.3e-2,
    ("eager", "int8"): 6.8e-3,
    ("eager", "int4"): 0.108,
    ("ort", "none"): 5.2e-7,
    ("ort", "int8-dynamic"): 2.9e-2,
    ("ort", "int8"): 1.3e-2,
    ("ort", "int4"): 0.115,
}
WITHIN = 0.10
NO_DIFFERENCE = ("same", "unclear")


def by_a_loop(backend: str, tokens: str, options: argparse.Namespace) -> float:
    """Seconds of a call in a plain loop."""
    numbers = map(str, (tokens, options.threads, options.d_model, options.d_ff))
    command = [sys.executable, "-c", LOOP, backend, *numbers]
    return float(
        subprocess.run(command, capture_output=True, text=True, check=True).stdout
    )


def rows_of(words: str, options: argparse.Namespace) -> dict[str, dict[str, str]]:
    """The rows of a comparison by label, measured with the width and the threads of all
    of these.
    """
    command = f"-m ffnbench compare {words} --d-model {options.d_model} --d-ff {options.d_ff} --threads {options.threads} --format csv -q"
    done = subprocess.run(
        [sys.executable, *command.split()], capture_output=True, text=True, check=False
    )
    if not done.stdout:
        sys.exit(done.stderr)
    return {row["label"]: row for row in csv.DictReader(io.StringIO(done.stdout))}


def against_loops(options: argparse.Namespace) -> None:
    """A line for each runtime and number of tokens."""
    for backend in ("ort", "openvino"):
        for tokens in options.tokens.split(","):
            ratios = []
            words = f"swiglu --backend {backend} --seq-len {tokens} --metrics latency --budget {options.budget or '12s'}"
            for _ in range(options.turns):
                loop = by_a_loop(backend, tokens, options)
                [row] = rows_of(words, options).values()
                if row.get("latency_s"):
                    ratios.append(float(row["latency_s"]) / loop)
            says = "every turn was busy"
            if ratios:
                middle, low, high = statistics.median(ratios), min(ratios), max(ratios)
                says = f"{middle:.3f} of the loop's time [{low:.3f}, {high:.3f}]"
            print(f"{backend:9} {tokens:>4} tokens: {says}", flush=True)


def against_itself(options: argparse.Namespace) -> None:
    """A line for each backend: the verdicts on a row that is the reference again."""
    verdicts: dict[str, Counter[str]] = defaultdict(Counter)
    for turn in range(options.a_a):
        for way in ("@backend=ort", "@backend=openvino", "@weights=int8"):
            words = f"first=swiglu{way},again=swiglu{way} --match none --metrics latency --seed {turn}"
            words += f" --seq-len {options.tokens} --budget {options.budget or '7s'}"
            verdict = rows_of(words, options)["again"].get("verdict")
            verdicts[way][verdict or "not measured"] += 1
    for way, counts in verdicts.items():
        decided = {
            word: count
            for word, count in counts.items()
            if word in ("faster", "slower")
        }
        without = sum(counts[word] for word in NO_DIFFERENCE)
        print(
            f"swiglu{way:20} no difference in {without} of {without + sum(decided.values())}; {dict(counts)}"
        )


def beside_runtimes(options: argparse.Namespace) -> None:
    """What runtimes beside them do to the ratio of two rows of eager."""
    words = f"--match none --metrics latency --seq-len {options.tokens}"
    alone = "swiglu,dynamic=swiglu@weights=int8-dynamic"
    others = [
        f"{name}=swiglu@backend={name}"
        for name in ("onednn", "compile", "ort", "openvino")
    ]
    budget = options.budget or "25s"
    quotients = []
    for _ in range(options.turns):
        without = rows_of(f"{alone} {words} --budget {budget}", options)["dynamic"]
        beside = rows_of(
            f"{','.join([alone, *others])} {words} --budget {budget}", options
        )["dynamic"]
        if without["ratio"] and beside["ratio"]:
            quotients.append(math.log(float(beside["ratio"]) / float(without["ratio"])))
    if len(quotients) < 2:
        print("too many turns were busy")
        return
    count = len(quotients)
    mean = statistics.fmean(quotients)
    from scipy.special import stdtrit

    half = stdtrit(count - 1, 0.975) * statistics.stdev(quotients) / math.sqrt(count)
    low, middle, high = (math.exp(end) for end in (mean - half, mean, mean + half))
    print(
        f"eager's ratio beside runtimes is {middle:.4f} [{low:.4f}, {high:.4f}] of what it is alone, {count} turns"
    )


def errors_apart(options: argparse.Namespace) -> None:
    """A line for each runtime and precision."""
    errors: dict[tuple[str, str], list[float]] = defaultdict(list)
    words = f"swiglu --backend eager,ort,openvino --weights none,int8-dynamic,int8,int4 --seq-len {options.tokens}"
    for seed in range(options.turns):
        for row in rows_of(f"{words} --metrics error --seed {seed}", options).values():
            if row["error"]:
                errors[row["backend"], row["weight_format"]].append(float(row["error"]))
    for way, values in errors.items():
        mean = statistics.fmean(values)
        says = ""
        if way in MEASURED_APART:
            quotient = mean / MEASURED_APART[way]
            word = "within" if abs(quotient - 1) <= WITHIN else "NOT within"
            says = f", {quotient:.2f} of {MEASURED_APART[way]:.2g}: {word} {WITHIN:.0%}"
        print(
            f"{way[0]:9} {way[1]:13} {mean:.3g} [{min(values):.3g}, {max(values):.3g}]{says}"
        )


def spinning(options: argparse.Namespace) -> None:
    """A line for each number of tokens."""
    for tokens in options.tokens.split(","):
        words = "sleeping=swiglu@backend=ort,spinning=swiglu@backend=ort@spin=on --match none --metrics latency"
        row = rows_of(
            f"{words} --seq-len {tokens} --budget {options.budget or '20s'}", options
        )["spinning"]
        says = row["verdict"]
        if row["ratio"]:
            ratio, low, high = (
                float(row[key]) for key in ("ratio", "ratio_low", "ratio_high")
            )
            says = f"{ratio:.3f} [{low:.3f}, {high:.3f}] of the time, {says}"
        print(f"{tokens:>4} tokens, threads that spin: {says}", flush=True)


def main() -> None:
    """Print what is asked."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    asked = parser.add_mutually_exclusive_group()
    asked.add_argument("--a-a", type=int, metavar="RUNS")
    for name in ("--beside", "--errors", "--spin"):
        asked.add_argument(name, action="store_true")
    parser.add_argument("--tokens", help="1,16,512 of loops and --spin, 16 of all else")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--budget", help="of a run")
    parser.add_argument("--d-model", type=int, default=768)
    parser.add_argument("--d-ff", type=int, default=2048)
    options = parser.parse_args()
    has_several = not (options.a_a or options.beside or options.errors)
    options.tokens = options.tokens or ("1,16,512" if has_several else "16")
    if options.a_a:
        against_itself(options)
    elif options.beside:
        beside_runtimes(options)
    elif options.errors:
        errors_apart(options)
    elif options.spin:
        spinning(options)
    else:
        against_loops(options)


if __name__ == "__main__":
    main()
