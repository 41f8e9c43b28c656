"""Rows of ONNX Runtime and OpenVINO beside plain loops at equal settings: `python
benchmarks/runtimes.py`.

By turns, in the same minutes: a run of ffnbench, and a process that makes the same
session and calls it in a loop, as onnxruntime_perf_test and benchmark_app do: one
input, which stays where it is, and the median over blocks of 10 ms of the mean of a
block. Between two blocks it sleeps for 5 ms, as threads do in ffnbench while the inputs
of a sample are made: a call of few tokens takes longer after that, since its threads
sleep too. Prints the ratio of ffnbench's time to the loop's over the turns, with the
spread of the turns.
"""

from __future__ import annotations

import argparse
import csv
import io
import statistics
import subprocess
import sys

LOOP = """
import statistics, sys, time
import torch
from ffnbench.choices import Backend
from ffnbench.ffn.spec import FFNSpec, Gate
from ffnbench.plan import Workload
from ffnbench.worker.backends.building import build_module

backend, tokens, threads = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
torch.set_num_threads(threads)
spec = FFNSpec(d_model=768, d_ff=2048, activation="silu", gate=Gate.INNER)
work = Workload(
    batch=1, seq_len=tokens, dtype="float32", device="cpu", mode="forward", threads=threads, backend=Backend(backend)
)
x = torch.randn(tokens, 768).numpy()
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


def by_a_loop(backend: str, tokens: int, threads: int) -> float:
    """Seconds of a call in a plain loop."""
    command = [sys.executable, "-c", LOOP, backend, str(tokens), str(threads)]
    return float(
        subprocess.run(command, capture_output=True, text=True, check=True).stdout
    )


def by_ffnbench(backend: str, tokens: int, threads: int, budget: str) -> float | None:
    """Seconds of a call in a row of ffnbench; None for a busy one."""
    command = [
        sys.executable,
        "-m",
        "ffnbench",
        "compare",
        "swiglu",
        "--d-model",
        "768",
        "--backend",
        backend,
    ]
    command += [
        "--seq-len",
        str(tokens),
        "--threads",
        str(threads),
        "--metrics",
        "latency",
    ]
    command += ["--budget", budget, "--format", "csv", "-q"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    [row] = csv.DictReader(io.StringIO(done.stdout))
    return float(row["latency_s"]) if row["latency_s"] else None


def main() -> None:
    """Print a line for each runtime and number of tokens."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", default="1,16,512")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--budget", default="12s")
    options = parser.parse_args()
    for backend in ("ort", "openvino"):
        for tokens in map(int, options.tokens.split(",")):
            ratios = []
            for _ in range(options.turns):
                loop = by_a_loop(backend, tokens, options.threads)
                row = by_ffnbench(backend, tokens, options.threads, options.budget)
                if row is not None:
                    ratios.append(row / loop)
            if ratios:
                middle, low, high = statistics.median(ratios), min(ratios), max(ratios)
                print(
                    f"{backend:9} {tokens:4} tokens: {middle:.3f} of the loop's time [{low:.3f}, {high:.3f}]",
                    flush=True,
                )
            else:
                print(f"{backend:9} {tokens:4} tokens: every turn was busy", flush=True)


if __name__ == "__main__":
    main()
