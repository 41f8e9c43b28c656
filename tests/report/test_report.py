"""How answers read: columns, totals, and how much is said below a table."""

from __future__ import annotations

import math
from dataclasses import replace

from fake_machine import FakeLaunch, measure, prepare

from ffnbench.compare.table import compare_table
from ffnbench.record.result import Report
from ffnbench.report.terminal import plain
from ffnbench.stats.figures import with_figures

TIMES = {"relu": 0.025, "gelu": 0.0251, "swiglu": 0.028, "glu": 0.0245}


def seconds(label: str, worker: int, number: int) -> float:
    """Known times: each worker has its own speed, and glu is all over the place."""
    wobble = (
        0.08 * math.sin(7 * worker)
        if label == "glu"
        else 0.002 * math.sin(3 * worker + len(label))
    )
    return TIMES.get(label, 0.03) * (1 + wobble) * (1 + 0.05 * worker)


def report_of(**options: object) -> Report:
    return with_figures(
        replace(
            measure(prepare(**asked(**options)), launch=FakeLaunch(seconds)),
            wall_s=20.0,
        )
    )


def hash_of(label: str, worker: int) -> int:
    """0 to 100, another one for each row and process."""
    return sum(map(ord, label)) * (7919 * worker + 1) % 101


def asked(**flags: object) -> dict[str, object]:
    return {
        "variants": "relu,gelu,swiglu,glu",
        "d_model": 768,
        "threads": 2,
        "workers": 5,
        "rounds": 30,
        **flags,
    }


def test_the_columns_do_not_depend_on_what_was_measured() -> None:
    """The same question on a quiet and on a noisy machine, fast and slow: the same
    columns at every width.
    """

    def noisy(label: str, worker: int, number: int) -> float:
        return 40 * seconds(label, worker, number) * (1 + hash_of(label, worker) / 60)

    reports = [report_of(), measure(prepare(**asked()), launch=FakeLaunch(noisy))]
    assert (
        reports[0].comparison("swiglu").verdict
        is not reports[1].comparison("swiglu").verdict
    )
    for width in (60, 80, 100, 120, 160, 200):
        tables = [plain([compare_table(report)], width) for report in reports]
        rules = [
            next(i for i, line in enumerate(text.splitlines()) if "─" in line)
            for text in tables
        ]
        titles = [
            text.splitlines()[rule - 2].split()
            for text, rule in zip(tables, rules, strict=True)
        ]
        assert titles[0] == titles[1]
