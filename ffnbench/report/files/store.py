"""Saved reports: written as text, and read again, with a check that they are whole."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Collection, Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from ffnbench.common import jsonable
from ffnbench.common.errors import FfnbenchError
from ffnbench.common.files import content_of
from ffnbench.ffn.spec import (
    DTYPES,
    ActivationSpec,
    AttentionSpec,
    FFNSpec,
    ImportedSpec,
)
from ffnbench.plan.metrics import METRICS
from ffnbench.plan.plan import METHOD, Kind, Plan
from ffnbench.plan.reading import spelling
from ffnbench.record.result import SCHEMA, Report

BEGIN_OF_CHECK = re.compile(rb'\s*\{\s*"findings"\s*:')
MEASURE_AGAIN = "measure again with this version"


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
        _refuse_other_methods(report, path)
        refuse_incoherent(report)
        return report
    except (ValueError, KeyError, TypeError, AttributeError) as problem:
        what = str(problem) if content.strip() else "it is empty"
        raise FfnbenchError(
            f"{path!r} is not a complete ffnbench report: {what}",
            _hint_for_incomplete(what, content),
        ) from problem


def _hint_for_incomplete(problem: str, content: bytes) -> str:
    """What to do about a file that could not be read; `problem` is the text of the
    error. Those of common/jsonable.py begin with the place of the mistake.
    """
    if "unknown field" in problem:
        return MEASURE_AGAIN
    if content.strip() and not content.lstrip().startswith(b"{"):  # a CSV, a table
        return "only JSON is read: `ffnbench compare relu swiglu -o run.json` saves such a run"
    if "repeats[" in problem:
        return 'take that run out of "repeats"'
    return "was it cut off? measure again"


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
    if isinstance(data, dict) and "findings" in data:
        raise FfnbenchError(
            f"{path!r} is the result of a check, not a run",
            f"`ffnbench report {shlex.quote(path)}` shows it; the run is its field `now`",
        )
    schema = data.get("schema") if isinstance(data, dict) else None
    if type(schema) is not int:
        config = isinstance(data, dict) and "model_type" in data
        if config:
            hint = (
                f"`ffnbench cost --preset {shlex.quote(path)}` reads a model's config"
            )
        else:
            hint = "one is written by `ffnbench compare -o run.json`"
        raise FfnbenchError(
            f"{path!r} is no run of ffnbench: it has no schema number", hint
        )
    if schema != SCHEMA:
        problem = f"{path!r} was made by another ffnbench (schema {schema}; this one reads {SCHEMA})"
        raise FfnbenchError(problem, MEASURE_AGAIN)


def _refuse_other_methods(report: Report, path: str) -> None:
    """Raise FfnbenchError if a run was measured with another method."""
    for run in report.runs:
        method = run.plan.protocol.method
        if method != METHOD:
            problem = f"{path!r} was measured with method {method}, and this ffnbench measures with {METHOD}"
            raise FfnbenchError(problem, MEASURE_AGAIN)


def made_anew(path: str, run: Report, **other: object) -> str:
    """A hint to measure a saved run again, by its own command but with `other` values
    of flags.
    """
    return f"measure it again: {command_of(run, **other)} -o {shlex.quote(path)}"


def command_of(run: Report, **other: object) -> str:
    """The command that made a run, with `other` values of flags, where a value that is
    empty leaves its flag out; it is `ffnbench compare ...` for a plan without one.
    """
    if not run.plan.command:
        return "ffnbench compare ..."
    dropped = {spelling(name) for name in other}
    words, drops = [], False
    for word in shlex.split(run.plan.command):
        if word.startswith("--"):
            drops = word in dropped
        if not drops:
            words.append(shlex.quote(word))
    for name, value in other.items():
        if value:
            words += [spelling(name), str(value)]
    return " ".join(words)


NETWORKS = (FFNSpec, ImportedSpec)
MEASURES = {
    Kind.COMPARE: NETWORKS,
    Kind.ACTIVATIONS: (ActivationSpec,),
    Kind.BLOCK: (*NETWORKS, AttentionSpec),
}
SHORTEST_S, LARGEST = 1e-15, 1e18  # of a sample


def refuse_incoherent(report: Report) -> None:
    """Raise ValueError for the first mistake in what was read: a name of something that
    the report does not have, or a value that no run has.
    """
    for problem in chain(_problems_of_plan(report.plan), _problems_of_answer(report)):
        raise ValueError(problem)


def _problems_of_plan(plan: Plan) -> Iterator[str]:
    labels = {case.label for case in plan.cases}
    if not plan.shown:
        yield "its plan has no cases"
    if len(labels) < len(plan.cases):
        yield "two cases have one label"
    for case in plan.cases:
        if not isinstance(case.ffn, MEASURES[plan.kind]):
            yield f"{case.label!r} is nothing that {plan.kind} measures"
        work = case.workload
        if work.dtype not in DTYPES.names():
            yield f"{case.label!r} has the dtype {work.dtype!r}, which is none"
        if work.batch < 1 or work.seq_len < 1:
            yield f"{case.label!r} has a batch of {work.batch} and a seq_len of {work.seq_len}"
    protocol = plan.protocol
    if protocol.looks < 1:
        yield f"its protocol has {protocol.looks} looks"
    if protocol.precision is not None and protocol.precision <= 0:
        yield f"its protocol has a precision of {protocol.precision:g}"
    if plan.kind == Kind.BLOCK:
        from ffnbench.block.plan import problems

        yield from problems(plan)


def _problems_of_answer(report: Report) -> Iterator[str]:
    labels = {case.label for case in report.plan.cases}
    costed = {cost.case for cost in report.costs}
    yield from _unknown_names(
        "the cost of", (case.label for case in report.plan.shown), costed
    )
    least_of = {
        metric.name: SHORTEST_S if metric.unit == "s" else 0.0 for metric in METRICS
    }
    for number, run in enumerate(report.runs, start=1):
        of_run = f" of run {number}" if number > 1 else ""
        yield from _unknown_names(
            "the metric of a sample",
            {sample.metric for sample in run.samples},
            least_of.keys(),
        )
        for sample in run.samples:
            if sample.case not in labels:
                yield f"the case of a sample {sample.case!r} is unknown there"
            if not least_of[sample.metric] <= sample.value <= LARGEST:
                yield f"a {sample.metric}{of_run} of {sample.value:g} is none"
        if run.samples and run.environment is None:
            yield "it has samples, and no environment that they were made in"
    if report.environment is None and (report.measured or report.comparisons):
        yield "it has figures, and no environment that they were made in"


def _unknown_names(
    what: str, names: Iterable[str], members: Collection[str]
) -> Iterator[str]:
    """A text for each name that is not among the members; `what` says what it is."""
    for name in names:
        if name not in members:
            yield f"{what} {name!r} is unknown there"
