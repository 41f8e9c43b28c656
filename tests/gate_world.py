"""What tests of gates share: machines that are made up, baselines in files, `ffnbench`
on such machines.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable
from pathlib import Path

from fake_machine import FakeLaunch, measure, prepare

from ffnbench.record.result import Report
from ffnbench.report.store import report_text


def machine(
    factors: dict[str, float] | None = None, scatter: float = 0.002, seed: int = 0
) -> FakeLaunch:
    """Workers whose cases take known multiples of 10 ms, with chance between workers
    and between rounds.
    """
    dice = random.Random(seed)
    slow: dict[tuple[str, int], float] = {}

    def seconds(label: str, worker: int, number: int) -> float:
        layout = slow.setdefault((label, worker), dice.gauss(0, scatter))
        return (
            0.01
            * (factors or {}).get(label, 1.0)
            * math.exp(layout + dice.gauss(0, scatter))
        )

    return FakeLaunch(seconds)


def measured(launch: FakeLaunch | None = None, **flags: object) -> Report:
    """A run of latencies on such a machine."""
    settings = {
        "variants": "relu,gelu,swiglu",
        "d_model": 64,
        "threads": 1,
        "metrics": "latency",
        **flags,
    }
    return measure(prepare(**settings), launch=launch or machine())


def saved(path: Path, report: Report | None = None, **flags: object) -> Path:
    """A report in a file; by default a baseline that is known to half a percent."""
    path.write_text(report_text(report or measured(**{"precision": 0.5, **flags})))
    return path


def edited(path: Path, edit: Callable[[dict], object]) -> Path:
    """The file with its JSON changed."""
    data = json.loads(path.read_text())
    edit(data)
    path.write_text(json.dumps(data))
    return path
