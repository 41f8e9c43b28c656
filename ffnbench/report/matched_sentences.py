"""What is said of widths that were found by time: which d_ff takes as long as the
reference's.
"""

from __future__ import annotations

from ffnbench.common.units import percent
from ffnbench.ffn.spec import FFNSpec, ImportedSpec
from ffnbench.plan import CONTROL, Case
from ffnbench.report.words import change_text, interval_text, join_words
from ffnbench.result import Report, Verdict

AS_MANY = 0.005  # of the parameters: nearer than that, they are as many


def matched_lines(report: Report) -> list[str]:
    """`swiglu at d_ff 2,112 takes as long as gelu at 3,072: 1.003 [0.990, 1.020]; 3%
    more parameters`, for each row, and then the rows whose width was stated.
    """
    told = {CONTROL, *report.figures.matched}
    lines = ["; ".join(_of_row(report, label) for label in report.figures.matched)]
    stated = []
    for comparison in report.comparisons:
        is_told = comparison.case in told or report.plan.is_reference(comparison.case)
        if comparison.ratio and not is_told:
            stated.append(f"{comparison.case} {change_text(comparison.ratio)}")
    if stated:
        reference = report.plan.reference
        lines.append(f"of stated width, against {reference}: {join_words(stated)}")
    return lines


def _of_row(report: Report, label: str) -> str:
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
    says = {
        Verdict.SAME: "takes as long as",
        Verdict.FASTER: "takes less time than",
        Verdict.SLOWER: "takes longer than",
        Verdict.UNCLEAR: "may take as long as",
    }
    text = f"{name} {says[comparison.verdict]} {reference}: {ratio}"
    more_params = report.figures.matched[label]
    if more_params is not None:
        text += f"; {_params_text(more_params)}"
    if comparison.verdict in (Verdict.FASTER, Verdict.SLOWER):
        text += f"; widths in steps of {case.sizing.multiple_of} (@multiple_of)"
    return text


def _width(case: Case) -> int:
    assert isinstance(case.ffn, FFNSpec | ImportedSpec)
    return case.ffn.d_ff


def _params_text(more: float) -> str:
    if abs(more) < AS_MANY:
        return "as many parameters"
    word = "more" if more > 0 else "fewer"
    return f"{percent(abs(more))} {word} parameters"
