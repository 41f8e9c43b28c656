"""The answers of `compare` and `cost`: the names of their columns, the line above them, the lines below; and a sweep as
one row a point.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ffnbench.ffn.spec import ImportedSpec
from ffnbench.metrics import (
    COMPILE,
    DEVICE_TIME,
    ERROR,
    GRADIENT_ERROR,
    HELD,
    HOST_TIME,
    LATENCY,
    MEMORY,
    METRIC_GROUPS,
    PACK,
    PEAK,
    SAVED,
)
from ffnbench.plan import SWEPT, Group, Mode, Plan, Time, value_of
from ffnbench.report.columns import CASE_KEYS, case_rows, column, timed_columns
from ffnbench.report.frame import EXTRA, UNKNOWN, Column, Frame, Groups, Row, estimate_in
from ffnbench.report.header import (
    CONDITIONS,
    axis_column,
    conditions_line,
    differing,
    heading,
    headings,
    in_groups,
    placed,
    swept_columns,
)
from ffnbench.report.notes import details, row_notes
from ffnbench.report.sentences import answer, failure_line, general_line, machine_line
from ffnbench.report.words import CERTAIN, VERDICTS, error_text, interval_text, listed, verdict_style, verdict_word
from ffnbench.result import Report, Verdict

LONGEST_TITLE = 12
LONG = 2000  # rows: of more nobody reads what there is to say of each
FORWARD = Mode.FORWARD


def compare_frame(report: Report) -> Frame:
    """The answer of `compare`; where nothing was measured, that of `cost`."""
    plan = report.plan
    rows = in_groups(plan, case_rows(report))
    label = column("label", text=lambda row: plan.name_of(row["label"]))
    swept = [key for key in swept_columns(plan) if key not in (*CASE_KEYS, *SWEPT)]
    if swept:
        rows = [row | {key: value_of(plan.case(row["label"]), key) for key in swept} for row in rows]
    frame = Frame(columns=(label, *_differing(report)), rows=rows, groups=headings(plan), exported=CASE_KEYS)
    if report.environment is None:
        return replace(
            frame,
            columns=(*frame.columns, *_counted(report, rows)),
            header=[conditions_line(plan, ("dtype", "mode"), backends=False)],
            summary=[*failure_line(report), *general_line(report)],
            details=row_notes(report) if len(rows) <= LONG else (),
        )
    timed = LATENCY in plan.metrics
    frame = replace(
        frame,
        columns=(*frame.columns, *_measured(report, rows)),
        header=[conditions_line(plan)],
        summary=answer(report) if timed else [*failure_line(report), *general_line(report), *machine_line(report)],
        details=details(report),
    )
    return replace(frame, short=pivots(report, frame, reference_title(report))) if report.comparisons else frame


def reference_title(report: Report) -> str:
    """What the reference is called in the heading of a column."""
    name = report.plan.name_of(report.plan.reference).partition(" (")[0]
    return name if len(name) <= LONGEST_TITLE else "reference"


def _differing(report: Report) -> list[Column]:
    """What is not the same in all cases of a group; what is the same stands in the header."""
    plan = report.plan
    swept = [key for key in swept_columns(plan) if key != "d_ff"]  # which has a column in any case
    shown = [key for key in swept if key in SWEPT]
    for key in ("dtype", "device", "mode", "batch", "seq_len", "threads"):
        if any(len({getattr(case.workload, key) for case in group.cases}) > 1 for group in plan.groups):
            shown.append(key)
    conditions = [one.key for one in CONDITIONS]
    axes = [axis_column(key) for key in swept if key not in (*SWEPT, *conditions)]
    return [*map(column, shown), *axes, *(column(one.key) for one in differing(plan))]


def _train(report: Report) -> bool:
    return any(case.workload.mode != FORWARD for case in report.plan.shown)


def _backends(report: Report) -> bool:
    return any(not case.workload.eager for case in report.plan.shown)


def _static(report: Report, rows: list[Row], *, timed: bool) -> dict[str, int]:
    """Widths and counts, each with its priority; of experts also what a token meets and what a call reads.

    FLOPs are of the passes that the mode has first; each pass alone with -v, and where a forward is only counted.
    """
    later = 0
    if timed:
        later = 3 if _backends(report) else 1  # the errors of backends tell more than sizes that are the same
    names = {"d_ff": 2 + later, "params": 1 + later}
    if any(row["experts"] for row in rows):
        first = 3 if timed else 1
        names |= {"params_active": first, "weight_bytes_touched": first + 1}
    names["flops_timed"] = 5 if timed else 1
    train = _train(report)
    if train:
        names["flops_forward"] = EXTRA
    if any(case.workload.mode != Mode.BACKWARD for case in report.plan.shown):
        names["flops_backward"] = EXTRA if train or timed else 2
    return names


def _counted(report: Report, rows: list[Row]) -> list[Column]:
    """The columns of `cost`."""
    train = _train(report)
    formula = 3 if train or any(row["experts"] for row in rows) else 1
    names = _static(report, rows, timed=False)
    names |= {"params_formula": formula, "flops_elementwise": 6, "weight_bytes": 3 + train, PEAK: 3 - train}
    if train:
        names[SAVED] = 2
    names |= {"total_bytes": 4 - train, "flops_elementwise_backward": EXTRA, "sizing": EXTRA}
    return [column(key, priority, takes=0) for key, priority in names.items()]


def _measured(report: Report, rows: list[Row]) -> list[Column]:
    """The columns of `compare`: what is counted, what is held, and at the end the time and the verdict."""
    names = _static(report, rows, timed=True)
    for group, metrics in METRIC_GROUPS.items():
        if group in report.plan.metrics:
            shown = [metric for metric in metrics if metric.column and (_train(report) or not metric.train_only)]
            names |= {metric.name: metric.priority for metric in shown}
            if group == MEMORY:
                names["total_bytes"] = 6
    held = _backends(report) and any(row[HELD] is not None for row in rows)
    if _has_errors(report, rows):
        names[ERROR] = 2
        if any(row[GRADIENT_ERROR] is not None for row in rows):
            names[GRADIENT_ERROR] = 4
    if not held:
        names["weight_bytes"] = EXTRA
    names |= dict.fromkeys(("flops_elementwise", "params_formula", "sizing", "activation", "gate"), EXTRA)
    if LATENCY not in report.plan.metrics:
        if report.failures:
            names["failure"] = 0
        return [_of_variants(report, key, priority) for key, priority in names.items()]
    if held:
        names[HELD] = 4
    if report.shares:
        names |= {"ceiling_share": EXTRA, "bound_by": EXTRA}
    names |= {"flops_per_s": 6, "bytes_per_s": 7, "tokens_per_s": 7}
    counted = [_of_variants(report, key, priority) for key, priority in names.items()]
    by_device = all(case.workload.time == Time.DEVICE for case in report.plan.shown)
    beside = [HOST_TIME] if by_device else [DEVICE_TIME, HOST_TIME]  # what is not the latency itself
    return [
        *counted,
        *_once(rows),
        *(column(metric) for metric in beside if any(row[metric] for row in rows)),
        *timed_columns(report, reference_title(report)),
    ]


def _of_variants(report: Report, key: str, priority: int) -> Column:
    """A column; of an error also what it is against, where the function of a module is not checked."""
    if key != ERROR:
        return column(key, priority)
    cases = report.plan.shown
    alone = {case.label for case in cases if isinstance(case.ffn, ImportedSpec) and case.ffn.like is None}

    def text(row: Row) -> str | None:
        return f"{error_text(row[ERROR])} vs itself" if row["label"] in alone and row[ERROR] is not None else None

    return column(ERROR, priority, text=text)


def _once(rows: list[Row]) -> list[Column]:
    """What compiling or packing took, where anything is compiled or packed."""
    keys = [key for key in (COMPILE, PACK) if any(row[key] for row in rows)]
    if len(keys) > 1:
        return [column(keys[0], title="one-off")]
    return [column(key) for key in keys]


def _has_errors(report: Report, rows: list[Row]) -> bool:
    """Whether errors stand in a column: then it stays longer than what is paid once."""
    likened = any(isinstance(case.ffn, ImportedSpec) and case.ffn.like for case in report.plan.shown)
    asked = ERROR in report.plan.metrics
    return (asked or likened or _backends(report)) and any(row[ERROR] is not None for row in rows)


UNCLEAR = "~"  # can't tell
LONGEST = len(VERDICTS[Verdict.FASTER])  # of the verdicts behind a ratio


def pivots(report: Report, frame: Frame, title: str) -> tuple[Frame, ...]:
    """The frame of a timed sweep with one row a point, with the intervals of ratios and without them.

    None of what is no sweep, and of one whose points have other variants. `title` is what columns call the reference.
    """
    plan = report.plan
    of_point = {tuple(plan.name_of(case.label) for case in group.cases) for group in plan.groups}
    references = {plan.name_of(group.reference) for group in plan.groups}
    if not (frame.groups and plan.groups[0].values) or len(of_point) * len(references) > 1:
        return ()
    (variants,), (reference,) = of_point, references
    by_label = {row["label"]: row for row in frame.rows}
    axes, blocks = _along(plan.groups)
    points = [
        by_label[group.reference]
        | {key: value_of(plan.case(group.reference), key) for key in axes}
        | {("of", plan.name_of(case.label)): by_label[case.label] for case in group.cases}
        for groups in blocks.values()
        for group in groups
    ]
    headings: Groups = () if "" in blocks else placed((text, len(of)) for text, of in blocks.items())
    unclear = any(row["verdict"] == Verdict.UNCLEAR for row in frame.rows)
    said = [*_same_everywhere(variants, frame.rows, plan), *[f"{UNCLEAR}: can't tell"] * unclear, "-v: all columns"]
    seconds = column("latency_s", title=title, priority=0, takes=0, text=_seconds_text, style=_seconds_style)
    made = []
    for unit in (f"time vs {title} {CERTAIN}", f"vs {title}"):
        ratios = [_ratio(name, reference, unit) for name in variants if name != reference]
        made.append(Frame(
            columns=(*map(axis_column, axes), seconds, *ratios), rows=points, groups=headings,
            header=[*frame.header, "; ".join(said)], summary=frame.summary,
        ))  # fmt: skip
    return tuple(made)


def _along(groups: Sequence[Group]) -> tuple[Sequence[str], dict[str, list[Group]]]:
    """The axes that are columns, and points by the values of the others: the axis with most values is a column. All
    axes are where few points would stand below each heading, as in a shard.
    """
    axes = list(groups[0].values)
    along = max(reversed(axes), key=lambda key: len({group.values[key] for group in groups}))
    blocks: dict[str, list[Group]] = {}
    for group in groups:
        others = {key: value for key, value in group.values.items() if key != along}
        blocks.setdefault(heading(replace(group, values=others)), []).append(group)
    if len(axes) == 1 or 2 * len(blocks) > len(groups):
        return axes, {"": list(groups)}
    return [along], blocks


def _same_everywhere(variants: Sequence[str], rows: Sequence[Row], plan: Plan) -> list[str]:
    """`d_ff 3,072 (relu and gelu), 2,048 (swiglu)`: what a variant is at every point."""
    said = []
    for key in ("d_ff", "params"):
        names_of: dict[int, list[str]] = {}
        for name in variants:
            sizes = {row[key] for row in rows if plan.name_of(row["label"]) == name}
            if len(sizes) == 1 and None not in sizes:
                names_of.setdefault(sizes.pop(), []).append(name)
        parts = []
        for size, names in names_of.items():
            parts.append(f"{size:,} ({listed(names)})" if len(names) < len(variants) else f"{size:,}")
        if parts:
            said.append(f"{key} {', '.join(parts)}")
    return said


def _seconds_text(row: Row) -> str | None:
    if row["failure"] or row["verdict"] == Verdict.BUSY:
        return verdict_word(row)
    return None


def _seconds_style(row: Row) -> str:
    return verdict_style(row) if _seconds_text(row) else ""


def _ratio(name: str, reference: str, unit: str) -> Column:
    """The ratio and the verdict in one cell; of what has no ratio that holds the word that says why."""

    def text(point: Row) -> str:
        row = point["of", name]
        word = verdict_word(row) or ""
        ratio = estimate_in(row, "ratio")
        if row["verdict"] == Verdict.UNCLEAR:
            word = UNCLEAR
        if ratio is None:
            return UNKNOWN if word in ("", UNCLEAR) else word
        number = interval_text(ratio)
        if CERTAIN not in unit:
            number = number.partition(" ")[0]
        return f"{number} {word:<{LONGEST}}"

    own = name.removeprefix(reference) if name.startswith(f"{reference}@") else name
    return Column(key=name, title=own, unit=unit, text=text, style=lambda point: verdict_style(point["of", name]))
