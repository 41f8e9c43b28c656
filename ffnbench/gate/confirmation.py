"""What `--confirm` asks: to measure again the rows that regressed in a saved answer of
`check` or `ab`, on whatever machine this is, so that both runs decide together.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from ffnbench.api.saved_runs import as_shown
from ffnbench.common import jsonable
from ffnbench.common.errors import FfnbenchError
from ffnbench.common.files import content_of
from ffnbench.common.units import percent
from ffnbench.gate.baseline import why_another_method
from ffnbench.gate.decision import (
    CHECKED_METRICS,
    IDENTITY,
    TIMED_METRICS,
    BaselineTimes,
    Checked,
    EarlierRun,
    Finding,
    Policy,
    RowKey,
    Status,
    mean_with_interval,
    workloads_differ,
)
from ffnbench.gate.interim import level_of_saved
from ffnbench.plan import Case, Plan
from ffnbench.report.files.store import report_in
from ffnbench.report.shown_report import ShownReport
from ffnbench.stats.history import SECONDS
from ffnbench.stats.verdict import control_slack

ANSWER_HINT = "such a file is what -o first.json of ab or check writes"


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstAnswer:
    """A saved answer: its run, and the rows that regressed, each with its tolerance.

    `before` has what the baseline of a check says of these rows: a time relative to the
    reference's, or seconds. `sides` says what `ab` has compared.
    """

    path: str
    report: ShownReport
    regressed: Mapping[RowKey, float]
    before: Mapping[RowKey, float]
    sides: tuple[str, ...]

    @property
    def timed(self) -> bool:
        """Whether the time of a row regressed."""
        return any(metric in TIMED_METRICS for _, metric in self.regressed)

    def part_of(self, plan: Plan) -> Plan:
        """The plan with the rows that regressed and their references only."""
        labels = {label for label, _ in self.regressed}
        references = [plan.reference_of(label) for label in sorted(labels)]
        cases = [case for case in plan.shown if case.label in labels.union(references)]
        reference = plan.reference
        if reference not in references:
            reference = references[0]
        return replace(plan, cases=tuple(cases), reference=reference)

    def earlier(self) -> EarlierRun:
        """The first run as a check takes it: the times of the rows that regressed.
        Raises FfnbenchError if the file has no samples of one of them.
        """
        level = level_of_saved(self.report)
        means = {}
        for row in self.regressed:
            label, metric = row
            if metric not in TIMED_METRICS:
                continue
            mean = mean_with_interval(self.report, row, level)
            if mean is None:
                raise FfnbenchError(
                    f"{self.path!r} has no samples of {label!r}", ANSWER_HINT
                )
            means[row] = mean
        return EarlierRun(means=means, slack=control_slack(self.report))

    def findings_among(self, findings: Iterable[Finding]) -> tuple[Finding, ...]:
        """The findings on rows that regressed in the first run, and those that are
        REGRESSED now.
        """
        return tuple(
            finding
            for finding in findings
            if (finding.case, finding.metric) in self.regressed
            or finding.status is Status.REGRESSED
        )

    def nothing_to_confirm(self, against: str = "") -> Checked:
        """The answer if nothing had regressed: nothing is measured."""
        now = replace(self.report, stopped="", interrupted=False)
        return Checked(
            findings=(), before=now, now=now, against=against, confirms=self.path
        )


def read_answer(path: str, kind: str) -> FirstAnswer:
    """Read an answer that `check` or `ab` has saved. Raises FfnbenchError for any other
    file, and for an answer about a plan of another kind.
    """
    content = content_of(path)
    try:
        answer = jsonable.parse(content)
        rows = {
            (row["case"], row["metric"]): float(row["tolerance"])
            for row in answer["findings"]
            if row["status"] == Status.REGRESSED
        }
        before = {
            (row["case"], row["metric"]): float(row["before"])
            for row in answer["findings"]
            if row["status"] == Status.REGRESSED and row.get("before") is not None
        }
        sides = tuple(map(str, answer.get("sides", ())))
        run = jsonable.json_text(answer["now"]).encode()
    except (ValueError, KeyError, TypeError) as problem:
        raise FfnbenchError(
            f"{path!r} is no answer of `check` or `ab`", ANSWER_HINT
        ) from problem
    report = as_shown(report_in(run, path))
    if answer.get("confirms"):
        first = answer["confirms"]
        raise FfnbenchError(
            f"{path!r} confirms {first!r}, and lacks the samples of that run",
            f"confirm {first!r} itself",
        )
    if not rows and _is_unfinished(report, answer["findings"]):
        raise FfnbenchError(
            f"{path!r} has no answer: its run could not finish", "measure it again"
        )
    if report.plan.kind != kind:
        raise FfnbenchError(
            f"{path!r} is of another plan: it answers about {report.plan.kind}, not {kind}",
            "`ab --confirm` takes an answer of ab, `check --confirm` one of check",
        )
    another_method = why_another_method(path, report)
    if another_method:
        raise FfnbenchError(another_method, "measure both runs with one version")
    return FirstAnswer(
        path=path, report=report, regressed=rows, before=before, sides=sides
    )


def _is_unfinished(report: ShownReport, findings: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a run in which nothing regressed may have missed what did."""
    is_missing = any(row["status"] == Status.MISSING for row in findings)
    return report.interrupted or bool(report.stopped) or is_missing or not findings


# the commit in the text of a side, such as `base v1.0 (3f2a1c0)`
COMMIT = re.compile(r"\(([0-9a-f]{7,40})\b")


def refuse_other_sides(first: FirstAnswer, sides: Sequence[str]) -> None:
    """Raise FfnbenchError if a side is another commit than in the first run. A side
    that is no commit, such as a folder, may have another name on another machine.
    """
    for then, now in zip(first.sides, sides, strict=False):
        commit_then, commit_now = COMMIT.search(then), COMMIT.search(now)
        if commit_then is None or commit_now is None:
            continue
        # each repository chooses how many digits make a commit unique
        shorter, longer = sorted([commit_then[1], commit_now[1]], key=len)
        if not longer.startswith(shorter):
            raise FfnbenchError(
                f"{first.path!r} compared another commit: {then} then, {now} now",
                "confirm it with the revisions that it compared",
            )


def refuse_another_baseline(first: FirstAnswer, baseline: BaselineTimes) -> None:
    """Raise FfnbenchError if the times of the baseline are not those that the first run
    was compared with.
    """
    for row, then in first.before.items():
        history = baseline.rows.get(row)
        if history is None:
            continue
        now = math.exp(history.mean)
        if not math.isclose(now, then, rel_tol=1e-6):
            raise FfnbenchError(
                f"{first.path!r} is of another baseline: before is {then:.4g} there for {' '.join(row)}, and {now:.4g} here",
                "confirm it with the baseline that it was compared with",
            )


def refuse_another_question(
    first: FirstAnswer, plan: Plan, policy: Policy, *, exact_only: bool = False
) -> None:
    """Raise FfnbenchError if a row that regressed is not asked for here, or differs
    from what it was: in its network, its workload, its reference or its tolerance.
    """
    if exact_only and first.timed:
        raise FfnbenchError(
            f"time regressed in {first.path!r}, and --exact-only measures none",
            "leave --exact-only out",
        )
    differences = dict.fromkeys(_differences(first, plan, policy))
    if differences:
        raise FfnbenchError(
            f"{first.path!r} is of another plan: {'; '.join(differences)}",
            "ask with the flags that it was made with, and the same baseline",
        )


def _differences(first: FirstAnswer, plan: Plan, policy: Policy) -> Iterator[str]:
    """What differs from the first run, a text for each difference."""
    then_plan = first.report.plan
    labels = {case.label for case in plan.shown}
    for (label, metric), tolerance in first.regressed.items():
        if label not in labels:
            yield f"there is no row {label!r} now"
            continue
        yield from _cases_differ(then_plan.case(label), plan.case(label))
        references = then_plan.reference_of(label), plan.reference_of(label)
        if references[0] != references[1]:
            yield f"reference {references[0]} then, {references[1]} now"
        if metric == SECONDS and not policy.absolute:
            yield "seconds then, without --absolute none now"
        limit = policy.of(label, metric)
        if metric in CHECKED_METRICS and not math.isclose(
            limit, tolerance, abs_tol=1e-9
        ):
            yield f"{metric} tolerance {percent(tolerance)} then, {percent(limit)} now"


def _cases_differ(then: Case, now: Case) -> Iterator[str]:
    """What differs in a case's network and in its workload, a text for each
    difference.
    """
    if type(then.ffn) is not type(now.ffn):
        yield "another network"
    else:
        for field in fields(then.ffn):
            was, is_now = getattr(then.ffn, field.name), getattr(now.ffn, field.name)
            if was != is_now:
                yield f"{field.name} {was} then, {is_now} now"
    fed = workloads_differ(then, now, IDENTITY)
    if fed:
        yield fed
