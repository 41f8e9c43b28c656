"""How long counting many cases takes, and whether it is linear: `python benchmarks/cost_of_many.py [CASES]`.

A grid of widths through the Python API, each size in a fresh process, best of three.
"""

from __future__ import annotations

import subprocess
import sys

ONE = """
import time
import ffnbench
forms = ("relu", "gelu", "swiglu", "geglu")
variants = [f"{form}@d_ff={8 * width}" for width in range(1, COUNT // 4 + 1) for form in forms]
start = time.perf_counter()
report = ffnbench.cost(variants, match="none", d_model=768)
assert len(report.rows()) == len(variants)
print(time.perf_counter() - start)
"""


def seconds(cases: int) -> float:
    """The best of three processes."""
    code = ONE.replace("COUNT", str(cases))
    runs = [subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True) for _ in range(3)]
    return min(float(run.stdout) for run in runs)


def main() -> None:
    """One line a size: seconds, and seconds a case."""
    largest = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    print(f"{'cases':>8} {'s':>8} {'us a case':>10}")
    for cases in (largest // 8, largest // 4, largest // 2, largest):
        took = seconds(cases)
        print(f"{cases:8,} {took:8.3f} {1e6 * took / cases:10.1f}")


if __name__ == "__main__":
    main()
