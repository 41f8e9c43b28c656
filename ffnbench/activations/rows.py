"""The facts of activations and what their operations cost, as records."""

from __future__ import annotations

from dataclasses import asdict, fields

from ffnbench.activations.facts import Facts
from ffnbench.ffn.spec import ActivationSpec
from ffnbench.report.columns import LATENCY_KEYS, RATIO_KEYS, case_records
from ffnbench.report.frame import Row
from ffnbench.report.tables.row_notes import case_notes
from ffnbench.result import Report

FACTS = (*(field.name for field in fields(Facts) if field.name != "dead"), "smooth")
TIMED = ("mode", "dtype", *LATENCY_KEYS, *RATIO_KEYS, "verdict", "workers", "failure", "rounds")  # of the rows


def facts_records(chosen: dict[str, ActivationSpec], facts: dict[str, Facts]) -> list[Row]:
    """One record an activation, numbers in full precision, None for what is not finite, not reached or
    not known.

    Flat but for the places of jumps, kinks and bends, which are lists.
    """
    records = []
    for label, spec in chosen.items():
        row, known = spec.row, facts.get(label)
        records.append(
            {"activation": label, "formula": row.formula or None, "derivative": row.derivative}
            | {name: getattr(known, name, None) for name in FACTS}
            | {"flops": row.flops, "flops_backward": row.flops_backward}
            | asdict(row.names)
            | {"aliases": ", ".join(row.aliases), "source": row.source or None}
            | {"torch_differs": row.torch_differs or None}
        )
    return records


def timing_records(report: Report) -> list[Row]:
    """One flat record for each activation, size, dtype and direction; seconds in full precision."""
    found = []
    for case, row in zip(report.plan.shown, case_records(report, TIMED), strict=True):
        assert isinstance(case.ffn, ActivationSpec)
        first = {"activation": case.variant, "mode": row.pop("mode"), "dtype": row.pop("dtype")}
        notes = "; ".join(case_notes(report, case.label)) or None
        found.append(first | {"elements": case.ffn.elements} | row | {"notes": notes})
    return found
