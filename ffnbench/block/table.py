"""The answer of `block`: which variant is the faster one in a stack of blocks, and
whether it is alone.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import chain

from ffnbench.block.plan import stacks_of
from ffnbench.block.rows import (
    COUNTS,
    MEASURED,
    alone_ratio,
    block_rows,
    cost_of_ffn,
    mean_of_layers,
    sees,
    stack_of,
)
from ffnbench.common.units import counted
from ffnbench.ffn.attention import attention_flops, overtakes_at
from ffnbench.plan.metrics import SAVED
from ffnbench.plan.plan import Case
from ffnbench.record.result import Report
from ffnbench.report.columns import column
from ffnbench.report.header import axis_columns, conditions_line, heading
from ffnbench.report.sentences import (
    MOST_NAMED,
    crossing_texts,
    details,
    failures,
    remarks,
    what_would_help,
)
from ffnbench.report.table import EXTRA, Column, Row, Table
from ffnbench.report.words import interval_text, join_words

LONGEST_TITLE = 12  # letters of the reference in a heading
CONVENTION = "no position encodings; 1 MAC = 2 FLOPs"


def block_table(report: Report) -> Table:
    """A row for each variant at each point: what is counted of a block where nothing
    was measured, else its time and the FFN's part.
    """
    plan, rows = report.plan, block_rows(report)
    stacks = [stacks_of(group) for group in plan.groups]
    naming = [column("label", word=lambda row: plan.name_of(row["label"]))]
    naming += axis_columns(plan)
    if report.is_of_counts:
        columns = [column("d_ff", 2), *COUNTS]
        lines = [*_counted_lines(report), remarks(report)]
    else:
        extra = [replace(each, priority=EXTRA) for each in COUNTS]
        columns = [*_measured_columns(report, rows), *extra]
        lines = [
            _alone_line(report),
            *crossing_texts(report.figures.crossings),
            what_would_help(report),
            *failures(report),
            remarks(report),
        ]
    return Table(
        columns=(*naming, *columns),
        rows=rows,
        header=header(report),
        summary=[line for line in lines if line],
        details=[CONVENTION, *([] if report.is_of_counts else details(report))],
        groups=[len(of_point) for of_point in stacks],
    )


def _measured_columns(report: Report, rows: list[Row]) -> list[Column]:
    """The columns of times, with the reference's name in their headings; without those
    that compare where there is one variant.
    """
    reference = report.plan.name_of(report.plan.reference)
    if len(reference) > LONGEST_TITLE:
        reference = "reference"
    several = any(len(stacks_of(group)) > 1 for group in report.plan.groups)
    columns = []
    for each in MEASURED:
        compares = each.key in ("block_ratio", "ffn_ratio", "alone_ratio")
        if (compares or each.key in ("verdict", "alone_differs")) and not several:
            continue
        if each.key == SAVED and all(row[SAVED] is None for row in rows):
            continue
        if compares:
            each = replace(each, unit=each.unit.replace("reference", reference))
        columns.append(each)
    return columns


def _alone_line(report: Report) -> str:
    """For which rows the ratio of the FFN alone is another one than in place."""
    parts = report.figures.in_place
    known = [
        case
        for case in report.plan.shown
        if case.label in parts and parts[case.label].differs is not None
    ]
    differing = [case for case in known if parts[case.label].differs]
    if not known:
        return ""
    if not differing:
        return (
            "no ratio of an FFN alone differs from that in place beyond both intervals"
        )
    if len(differing) > MOST_NAMED:
        return f"an FFN alone has another ratio than in place in {len(differing)} of {len(known)} rows"
    texts = []
    for case in differing:
        in_place, by_itself = parts[case.label].ratio, alone_ratio(report, case)
        assert in_place is not None
        assert by_itself is not None
        text = f"{report.plan.name_of(case.label)} has {interval_text(in_place)} in place and {interval_text(by_itself)} alone"
        if case.point:
            text += f" at {heading(report.plan.group_of(case.label))}"
        texts.append(text)
    return f"an FFN alone misleads: {join_words(texts)}"


def _counted_lines(report: Report) -> list[str]:
    """The parameters of the FFNs, and at which length attention needs more FLOPs."""
    firsts: dict[object, list[Case]] = {}  # of each block of a sweep over lengths
    for group in report.plan.groups:
        others = [value for value in group.cases[0].point if value[0] != "seq_len"]
        firsts.setdefault(tuple(others), stacks_of(group))
    lines = []
    for case in chain.from_iterable(firsts.values()):
        ffn = cost_of_ffn(report, case)
        attention = mean_of_layers(stack_of(case), lambda spec: spec.params)
        text = f"{case.name}: {ffn.params:,} parameters, {ffn.params / attention:.2f} times attention"
        if ffn.params_active != ffn.params:
            text += f" ({ffn.params_active / attention:.2f} active)"
        lines.append(
            f"{text}; attention overtakes it in FLOPs {_overtaken(report, case)}"
        )
    return lines


def _overtaken(report: Report, case: Case) -> str:
    """From which length on attention needs more FLOPs than the FFN, in the mean over
    all layers of a stack.
    """
    stack, flops = stack_of(case), cost_of_ffn(report, case).flops_forward
    if flops is None:
        return "at a length that is not known"
    at = overtakes_at(
        lambda seq_len: sum(
            count * attention_flops(spec, seq_len) for spec, count in stack.attentions
        ),
        stack.layers * flops,
    )
    return "never" if at is None else f"at {at:,} tokens"


def header(report: Report) -> list[str]:
    """Two lines: the conditions of the FFNs, and what the stacks are."""
    plan = report.plan
    ffns = tuple(replace(case, run_by=()) for case in plan.shown if not case.in_place)
    conditions = conditions_line(
        replace(plan, cases=ffns), measured=not report.is_of_counts
    )
    stack = stack_of(plan.shown[0])
    spec = stack.attentions[0][0]
    if spec.mla is not None:
        heads = f"{spec.heads} heads of {spec.key_dim}, values of {spec.value_dim}"
    else:
        heads = f"{counted(spec.heads, 'head')} of {spec.head_dim}"
        if spec.kv_heads != spec.heads:
            heads += f", {spec.kv_heads} of keys and values"
    windows = ""
    if len(stack.attentions) > 1:
        kinds = [
            f"{count} layers that see {sees(each)}" for each, count in stack.attentions
        ]
        windows = f"; {', '.join(kinds)}"
    elif spec.window:
        windows = f", seeing {sees(spec)}"
    mask = "causal" if spec.causal else "not causal"
    return [
        conditions,
        f"{counted(stack.layers, 'block')} of {stack.norm}, {spec.name} attention ({heads}, {mask}{windows}), {stack.norm}, FFN",
    ]
