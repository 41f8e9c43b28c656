"""The table of `compare` where rows differ in how they are run, what a deployer asks:
which runtime, at which precision, how fast, how wrong.

Speed, error and the share of the ceiling stand in it at every width. Where there is no
room for all, the ratio and the verdict that is made of it give way: at 80 columns one
of the two, at 60 both.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ffnbench.metrics import COMPILE, PACK, PEAK
from ffnbench.plan import Plan
from ffnbench.report.columns import FRONT, column, in_percent, ratio_text
from ffnbench.report.frame import EXTRA, Column, Row
from ffnbench.report.header import differing
from ffnbench.report.words import verdict_word

# beside those of every comparison
PRIORITIES = {"ceiling_share": 1, "tokens_per_s": 1, COMPILE: 4} | dict.fromkeys(
    ("d_ff", "params", "flops_timed", "flops_per_s", "bytes_per_s", PEAK, PACK, "total_bytes"), EXTRA,
)  # fmt: skip
SHORTENED: dict[str, dict[str, Any]] = {
    "ceiling_share": {
        "title": "share",
        "unit": "%",
        "interval": None,
        "write": in_percent,
    },
    "pareto_front": {"title": FRONT},
    "latency_s": {"takes": 9},
    "verdict": {"priority": 3},
}
LEGEND = {
    "ceiling_share": "share: of the ceiling that binds",
    "pareto_front": f"{FRONT}: Pareto front",
}


def named(plan: Plan) -> list[Column]:
    """What a row is called: how it is run, and its name where there are several; a
    single one stands in the header.
    """
    columns = [column("backend", 0, left=True)]
    if "weight_format" in differing(plan):
        columns.append(column("weight_format", 0, left=True))
    if len({_name(plan, case.label) for case in plan.shown}) > 1:
        name = column("label", text=lambda row: _name(plan, row["label"]))
        columns.insert(0, name)
    return columns


def _name(plan: Plan, label: str) -> str:
    """What a row is called, without how it is run."""
    work = plan.case(label).workload
    name = plan.name_of(label).removesuffix(f"@weights={work.weights}")
    return name.removesuffix(f"@backend={work.backend}")


def header_of(plan: Plan, line: str, columns: list[Column]) -> str:
    """The line above the table, with the name of a single variant and what its
    headings say in short.
    """
    keys = [each.key for each in columns]
    if "label" not in keys:
        line = f"{_name(plan, plan.shown[0].label)}, {line}"
    return "; ".join([line, *(LEGEND[key] for key in LEGEND if key in keys)])


def shortened(columns: list[Column]) -> list[Column]:
    """The columns as they are headed and written here; a row that failed says how in
    the place of its ratio.
    """
    changes = SHORTENED | {"ratio": {"priority": 2, "text": _ratio_text}}
    return [replace(each, **changes.get(each.key, {})) for each in columns]


def _ratio_text(row: Row) -> str | None:
    if row["failure"]:
        return verdict_word(row)
    return ratio_text(row)
