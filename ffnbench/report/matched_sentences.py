"""Sentences on widths that were found by time: the d_ff of a row that takes as long as
that of the reference.
"""

from __future__ import annotations

from ffnbench.common.units import percent
from ffnbench.ffn.spec import FFNSpec, ImportedSpec
from ffnbench.plan import CONTROL, Case
from ffnbench.report.words import change_text, interval_text, join_words
from ffnbench.result import Report, Verdict

SAME_PARAMS = 0.005  # a relative difference below this reads "as many parameters"


def matched_lines(report: Report) -> list[str]:
    """`swiglu at d_ff 2,112 takes as long as gelu at 3,072: 1.003 [0.990, 1.020]; 3%
    more parameters`, for each matched row, and a second line on the rows whose width
    the user stated.
    """
    matched = report.figures.matched
    lines = ["; ".join(_matched_text(report, label) for label in matched)]
    stated = []
    for comparison in report.comparisons:
        label, ratio = comparison.case, comparison.ratio
        is_stated = label not in matched and not report.plan.is_reference(label)
        if is_stated and label != CONTROL and ratio:
            stated.append(f"{label} {change_text(ratio)}")
    if stated:
        reference = report.plan.reference
        lines.append(f"of stated width, against {reference}: {join_words(stated)}")
    return lines


def _matched_text(report: Report, label: str) -> str:
    comparison = report.comparison(label)
    assert comparison is not None
    case = report.plan.case(label)
    reference_case = report.plan.case(comparison.reference)
    name = f"{label} at d_ff {_width(case):,}"
    reference = f"{comparison.reference} at {_width(reference_case):,}"
    if comparison.ratio is None or comparison.verdict is Verdict.BUSY:
        return f"{name}: too disturbed to tell whether it takes as long as {reference}"
    ratio = interval_text(comparison.ratio)
    if comparison.verdict is Verdict.SLOWER and _width(case) == case.sizing.multiple_of:
        return f"{name}, the least width, still takes longer than {reference}: {ratio}"
    verbs = {
        Verdict.SAME: "takes as long as",
        Verdict.FASTER: "takes less time than",
        Verdict.SLOWER: "takes longer than",
        Verdict.UNCLEAR: "may take as long as",
    }
    text = f"{name} {verbs[comparison.verdict]} {reference}: {ratio}"
    more_params = report.figures.matched[label]
    if more_params is not None:
        text += f"; {_params_text(more_params)}"
    if comparison.verdict in (Verdict.FASTER, Verdict.SLOWER):
        text += f"; widths in steps of {case.sizing.multiple_of} (@multiple_of)"
    return text


def _width(case: Case) -> int:
    assert isinstance(case.ffn, FFNSpec | ImportedSpec)
    return case.ffn.d_ff


def _params_text(difference: float) -> str:
    """`3% more parameters`, of the relative difference to the reference."""
    if abs(difference) < SAME_PARAMS:
        return "as many parameters"
    word = "more" if difference > 0 else "fewer"
    return f"{percent(abs(difference))} {word} parameters"
