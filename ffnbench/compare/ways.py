"""The table of `compare` where rows differ in the way in which they are run: which
runtime, at which precision, how fast, how wrong.

Speed and error stand in it at every width. Where there is no
room for all, the ratio and the verdict that is made of it give way: at 80 columns one
of the two, at 60 both.
"""

from __future__ import annotations

from dataclasses import replace

from ffnbench.plan.metrics import PEAK
from ffnbench.plan.plan import Plan
from ffnbench.report.columns import column, ratio_word
from ffnbench.report.header import differing_conditions
from ffnbench.report.table import EXTRA, Column, Row
from ffnbench.report.words import verdict_word

# priorities of columns in place of their own
PRIORITIES = {"tokens_per_s": 1, "ratio": 2, "verdict": 3} | dict.fromkeys(
    ("d_ff", "params", "flops_forward", "flops_backward", "flops_per_s", PEAK), EXTRA,
)  # fmt: skip
COST_PRIORITIES = {"weight_bytes": 1}


def name_columns(plan: Plan) -> list[Column]:
    """The columns that name a row: how it is run, and before that its variant, where
    there are several; a single one stands in the header.
    """
    columns = [column("backend", 0, left=True)]
    if "weight_format" in differing_conditions(plan):
        columns.append(column("weight_format", 0, left=True))
    if len({_name(plan, case.label) for case in plan.shown}) > 1:
        name = column("label", word=lambda row: _name(plan, row["label"]))
        columns.insert(0, name)
    return columns


def _name(plan: Plan, label: str) -> str:
    """The name of a row's variant, without how it is run."""
    work = plan.case(label).workload
    name = plan.name_of(label).removesuffix(f"@weights={work.weights}")
    return name.removesuffix(f"@backend={work.backend}")


def header_of(plan: Plan, line: str, columns: list[Column]) -> str:
    """The line above the table, with the name of a single variant before it."""
    if "label" in [each.key for each in columns]:
        return line
    return f"{_name(plan, plan.shown[0].label)}, {line}"


def with_priorities(columns: list[Column], *, measured: bool) -> list[Column]:
    """The columns with the priorities of this table. A row that failed says how in the
    place of its ratio.
    """
    priorities = PRIORITIES if measured else COST_PRIORITIES
    changed = [
        replace(each, priority=priorities.get(each.key, each.priority))
        for each in columns
    ]
    return [
        replace(each, word=_ratio_word, style=_failure_style)
        if each.key == "ratio"
        else each
        for each in changed
    ]


def _ratio_word(row: Row) -> str | None:
    return verdict_word(row) if row["failure"] else ratio_word(row)


def _failure_style(row: Row) -> str:
    return "red" if row["failure"] else ""
