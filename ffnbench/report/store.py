"""Saved reports: written as text, and read again, with a check that they are whole."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ffnbench.common import jsonable
from ffnbench.common.errors import FfnbenchError
from ffnbench.common.files import content_of
from ffnbench.ffn.spec import (
    DTYPES,
    FFNSpec,
    ImportedSpec,
    StackSpec,
)
from ffnbench.plan.metrics import METRICS
from ffnbench.plan.plan import METHOD, Kind
from ffnbench.record.result import SCHEMA, Report

BEGIN_OF_CHECK = re.compile(rb'\s*\{\s*"findings"\s*:')
MEASURE_AGAIN = "measure again with this version"
NETWORKS = (FFNSpec, ImportedSpec)
MEASURES = {
    Kind.COMPARE: NETWORKS,
    Kind.BLOCK: (*NETWORKS, StackSpec),
}
SHORTEST_S, LARGEST = 1e-15, 1e18  # of a sample


def report_text(report: Report) -> str:
    """A report as strict JSON, with a line for each element of a list, so that two runs
    can be compared by diff.
    """
    data = jsonable.encode(report)
    parts = []
    # the lists come last, as the samples are long
    for key, value in sorted(data.items(), key=lambda item: isinstance(item[1], list)):
        if isinstance(value, list) and value:
            items = ",\n  ".join(jsonable.json_text(item) for item in value)
            parts.append(f" {json.dumps(key)}: [\n  {items}\n ]")
        else:
            parts.append(f" {json.dumps(key)}: {jsonable.json_text(value)}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def read_report(path: str | Path) -> Report:
    """The report in a saved file. Raises FfnbenchError for any other file, and for
    another schema or method.
    """
    hint = "is the path right?"
    if os.path.isdir(path):
        hint = f"name its files: {shlex.quote(str(path))}/*.json"
    return report_in(content_of(path, hint), str(path))


def report_in(content: bytes, path: str) -> Report:
    """The report in the content of a file, whose `path` errors name; raises
    FfnbenchError as `read_report` does.
    """
    try:
        data = jsonable.parse(content)
        _refuse_other_files(data, path)
        report = _decoded_report(data)
        for run in report.runs:
            if run.plan.protocol.method != METHOD:
                raise FfnbenchError(
                    f"{path!r} was measured with method {run.plan.protocol.method}, and this ffnbench measures with {METHOD}",
                    MEASURE_AGAIN,
                )
        for problem in _problems_of(report):
            raise ValueError(problem)
        return report
    except (ValueError, KeyError, TypeError, AttributeError) as problem:
        what, hint = str(problem), "was it cut off? measure again"
        if "unknown field" in what:
            hint = MEASURE_AGAIN
        elif not content.strip():
            what = "it is empty"
        elif not content.lstrip().startswith(b"{"):  # a CSV, a table
            hint = "only JSON is read: `ffnbench compare relu swiglu -o run.json` saves such a run"
        raise FfnbenchError(
            f"{path!r} is not a complete ffnbench report: {what}", hint
        ) from problem


def holds_findings(path: str | Path) -> bool:
    """Whether a file begins like the JSON that `check -o check.json` writes."""
    if not os.path.isfile(path):
        return False
    return BEGIN_OF_CHECK.match(content_of(path)) is not None


def _decoded_report(data: Any) -> Report:
    try:
        return jsonable.decode(Report, data)
    # an impossible form raises an error for somebody who has typed it
    except FfnbenchError as problem:
        raise ValueError(problem.message) from problem


def _refuse_other_files(data: Any, path: str) -> None:
    """Raise FfnbenchError for data that is no run, or a run of another schema."""
    fields = data if isinstance(data, dict) else {}
    if "findings" in fields:
        raise FfnbenchError(
            f"{path!r} is the result of a check, not a run",
            f"`ffnbench report {shlex.quote(path)}` shows it; the run is its field `now`",
        )
    schema = fields.get("schema")
    if type(schema) is not int:
        hint = "one is written by `ffnbench compare -o run.json`"
        if "model_type" in fields:
            hint = (
                f"`ffnbench cost --preset {shlex.quote(path)}` reads a model's config"
            )
        raise FfnbenchError(
            f"{path!r} is no run of ffnbench: it has no schema number", hint
        )
    if schema != SCHEMA:
        problem = f"{path!r} was made by another ffnbench (schema {schema}; this one reads {SCHEMA})"
        raise FfnbenchError(problem, MEASURE_AGAIN)


def made_anew(path: str, run: Report, how: str = "") -> str:
    """A hint to measure a saved run again, by its own command; `how` says what else to
    add to it.
    """
    command = run.plan.command or "ffnbench compare ..."
    return f"measure it again{how}: {command} -o {shlex.quote(path)}"


def _problems_of(report: Report) -> Iterator[str]:
    """What does not belong together in a report that was read: a name of something that
    it does not have, or a value that no run has.
    """
    plan, protocol = report.plan, report.plan.protocol
    labels = {case.label for case in plan.cases}
    if not plan.shown:
        yield "its plan has no cases"
    if len(labels) < len(plan.cases):
        yield "two cases have one label"
    if protocol.looks < 1 or protocol.precision == 0:
        yield "its protocol has no looks, or no precision"
    for case in plan.cases:
        work = case.workload
        is_known = work.dtype in DTYPES.names() and min(work.batch, work.seq_len) > 0
        if not isinstance(case.ffn, MEASURES[plan.kind]) or not is_known:
            yield f"{case.label!r} is nothing that {plan.kind} measures"
    if plan.kind == Kind.BLOCK:
        from ffnbench.block.plan import problems

        yield from problems(plan)
    if {case.label for case in plan.shown} - {cost.case for cost in report.costs}:
        yield "a case has no cost"
    least = {each.name: SHORTEST_S if each.unit == "s" else 0.0 for each in METRICS}
    for run in report.runs:
        for sample in run.samples:
            if sample.case not in labels or sample.metric not in least:
                yield f"it has no {sample.metric!r} of {sample.case!r}, and a sample of it"
            elif not least[sample.metric] <= sample.value <= LARGEST:
                yield f"a {sample.metric} of {sample.value:g} is none"
    figures = (*report.samples, *report.measured, *report.comparisons)
    if report.environment is None and figures:
        yield "it has figures, and no environment that they were made in"
