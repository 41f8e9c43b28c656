"""How answers read: the columns of a table."""

from __future__ import annotations

from gate_world import machine, measured

from ffnbench.compare.table import compare_table
from ffnbench.report.terminal import plain


def test_the_columns_do_not_depend_on_what_was_measured() -> None:
    """The same question on a quiet and on a noisy machine, fast and slow: the same
    columns at every width.
    """
    slow = machine({"relu": 40, "gelu": 70, "swiglu": 40}, scatter=0.3)
    effort = {"workers": 6, "rounds": 6}
    reports = [measured(machine({"swiglu": 1.1}), **effort), measured(slow, **effort)]
    verdicts = {report.comparison("swiglu").verdict for report in reports}
    assert len(verdicts) == 2
    for width in (60, 80, 100, 120, 160, 200):
        titles = []
        for report in reports:
            lines = plain(compare_table(report), width).splitlines()
            rule = next(i for i, line in enumerate(lines) if "─" in line)
            titles.append(lines[rule - 2].split())
        assert titles[0] == titles[1]
