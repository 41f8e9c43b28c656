"""Saved reports: as text, and read again with a check."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Collection, Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from ffnbench.common import jsonable
from ffnbench.common.errors import FfnbenchError
from ffnbench.common.files import content_of
from ffnbench.features import imported_function
from ffnbench.ffn.spec import ActivationSpec, AttentionSpec, FFNSpec, ImportedSpec
from ffnbench.metrics import ROOF
from ffnbench.plan import METHOD, AddedSpec, Kind, Plan, added_kind, metrics_of
from ffnbench.request import spelling
from ffnbench.result import SCHEMA, Report

FINDINGS_FIRST = re.compile(rb'\s*\{\s*"findings"\s*:')
UPDATE = "pip install -U ffnbench"
# what older files have beside the fields of a type: it is passed over
OLDER = {
    # a digest that nobody read; what a process beside the run found of outputs, and its
    # seconds
    "Report": ("seal", "judged", "judging_s"),
    # until method 5 a worker moved its tensors now and then
    "Protocol": ("reversed",),
    "Sample": ("placement",),
    # the MLP of a model of transformers had a name of its own, and the form that it was
    "ImportedSpec": ("form",),
}


def report_text(report: Report) -> str:
    """Strict JSON with one line for each element of each list, so that two runs can be
    compared by diff.
    """
    data = jsonable.encode(report)
    parts = []
    # the samples stand last
    for key, value in sorted(data.items(), key=lambda item: isinstance(item[1], list)):
        if isinstance(value, list) and value:
            items = ",\n  ".join(jsonable.json_text(item) for item in value)
            parts.append(f" {json.dumps(key)}: [\n  {items}\n ]")
        else:
            parts.append(f" {json.dumps(key)}: {jsonable.json_text(value)}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


A_RUN = "one is written by `ffnbench compare -o run.json`"


def read_report(path: str | Path) -> Report:
    """A saved JSON report; raises FfnbenchError for what is not one, or is of another
    schema or a newer method.
    """
    hint = "is the path right?"
    if Path(path).is_dir():
        hint = f"name its files: {shlex.quote(str(path))}/*.json"
    return report_in(content_of(path, hint), str(path))


def report_in(content: bytes, path: str) -> Report:
    """The report that the content of a file is; raises FfnbenchError as `read_report`
    does.
    """
    from ffnbench.report.files.journal import is_journal, read_journal

    try:
        if is_journal(content):
            report = read_journal(
                content, path, lambda kind, entry: _bring_up_line(kind, entry, path)
            )
        else:
            data = jsonable.parse(content)
            _refuse_others(data, path)
            for run in (data, *(data.get("repeats") or ())):
                _bring_up(run, path)
            report = _decoded_report(data)
        refuse_incoherent(report)
        return report
    except (ValueError, KeyError, TypeError, AttributeError) as problem:
        if "repeats[" in str(problem):
            hint = 'take that run out of "repeats"'
        else:
            hint = "was it cut off? measure again"
        if not content.strip():
            problem = ValueError("it is empty")
        elif not content.lstrip().startswith(b"{"):  # a CSV, a table
            hint = "only JSON is read: `ffnbench compare relu swiglu -o run.json` saves such a run"
        if "unknown field" in str(problem):
            hint = f"is it of a newer ffnbench? {UPDATE}; if not, measure again"
        raise FfnbenchError(
            f"{path!r} is not a complete ffnbench report: {problem}", hint
        ) from problem


def holds_findings(path: str | Path) -> bool:
    """Whether a file begins as one of `check -o check.json` does."""
    if not Path(path).is_file():
        return False
    return FINDINGS_FIRST.match(content_of(path)) is not None


def _decoded_report(data: Any) -> Report:
    try:
        return jsonable.decode(Report, data)
    except FfnbenchError as problem:  # of a form, which speaks to who types one
        raise ValueError(problem.message) from problem


def _refuse_others(data: Any, path: str) -> None:
    """Raise FfnbenchError for what is no run, or one of another schema."""
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
            hint = A_RUN
        raise FfnbenchError(
            f"{path!r} is no run of ffnbench: it has no schema number", hint
        )
    if schema != SCHEMA:
        if schema > SCHEMA:
            age, hint = ("a newer", UPDATE)
        else:
            age, hint = ("an older", "measure again with this version")
        problem = f"{path!r} was made by {age} ffnbench (schema {schema}; this one reads {SCHEMA})"
        raise FfnbenchError(problem, hint)


def _bring_up(run: dict[str, Any], path: str) -> None:
    """What a run or a plan of an older file has in another way, as files have it today;
    raises FfnbenchError for a newer one.
    """
    plan = run.get("plan") or run
    protocol = plan.get("protocol") if isinstance(plan, dict) else None
    if not isinstance(protocol, dict):
        raise ValueError("it has no plan that says how it was measured")
    method = protocol.get("method")
    # whose ratios mean what this ffnbench can't know
    if isinstance(method, int) and method > METHOD:
        problem = f"{path!r} was measured with method {method}, this ffnbench knows methods up to {METHOD}"
        raise FfnbenchError(problem, UPDATE)
    # a plan had its flags; of these, what says how often all was measured, and which
    # part of a sweep
    request = plan.pop("request", None) or {}
    if request.get("runs", 1) > 1:
        protocol.setdefault("runs", request["runs"])
    _drop("Report", run)
    _drop("Protocol", protocol)
    for sample in run.get("samples") or ():
        _drop("Sample", sample)
    for case in plan.get("cases") or ():
        spec = case.get("ffn") or {}
        for each in (spec, spec.get("around", {})):
            if "target" in each:
                _drop("ImportedSpec", each)


def _drop(kind: str, data: dict[str, Any]) -> None:
    for name in OLDER[kind]:
        data.pop(name, None)


def _bring_up_line(kind: str, entry: dict[str, Any], path: str) -> None:
    """What one line of a journal holds, as files have it today."""
    if kind in ("Report", "Plan"):
        _bring_up(entry, path)


def made_anew(path: str, run: Report, **other: object) -> str:
    """What to do where a run has to be made anew, with other values of the flags that
    it has.
    """
    return f"measure it again: {command_of(run, **other)} -o {shlex.quote(path)}"


def command_of(run: Report, **other: object) -> str:
    """The command that asks the same again, with other values of its flags; older files
    know their plan alone.
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
    Kind.SIDES: NETWORKS,
    Kind.ACTIVATIONS: (ActivationSpec,),
    Kind.BLOCK: (*NETWORKS, AttentionSpec),
}
# what else its plan may lack: functions (plan) -> texts, as `file:name`
PROBLEMS: dict[str, str] = {Kind.BLOCK: "block.plan:problems"}
SHORTEST_S, MOST = 1e-15, 1e18  # of a sample


def refuse_incoherent(report: Report) -> None:
    """Raise ValueError for the first thing that belongs to nothing else in the report,
    or is of no run.
    """
    for problem in chain(_of_plan(report.plan), _of_answer(report)):
        raise ValueError(problem)


def _of_plan(plan: Plan) -> Iterator[str]:
    labels = {case.label for case in plan.cases}
    if not plan.shown:
        raise ValueError("its plan has no cases")
    if len(labels) < len(plan.cases):
        yield "two cases have one label"
    yield from _unknown_names(
        "the reference",
        (plan.reference, *(c.against for c in plan.cases if c.against)),
        labels,
    )
    kinds = (AddedSpec,) if added_kind(plan.kind) else MEASURES[Kind(plan.kind)]
    yield from (
        f"{c.label!r} is nothing that {plan.kind} measures"
        for c in plan.cases
        if not isinstance(c.ffn, kinds)
    )
    if plan.kind in PROBLEMS:
        yield from imported_function(PROBLEMS[plan.kind])(plan)


def _of_answer(report: Report) -> Iterator[str]:
    labels = {case.label for case in report.plan.cases}
    roofs = {roof.name for roof in report.roofs}
    costed = {cost.case for cost in report.costs}
    yield from _unknown_names(
        "the cost of", (case.label for case in report.plan.shown), costed
    )
    if any(side < 1 for roof in report.roofs for side in roof.shape):
        yield "a ceiling has an empty side"
    least = {
        metric.name: SHORTEST_S if metric.unit == "s" else 0.0
        for metric in metrics_of(report.plan.kind)
    }
    least["workspace_bytes"] = 0.0  # of older files
    for number, run in enumerate(report.runs, start=1):
        of_run = f" of run {number}" if number > 1 else ""
        yield from _unknown_names(
            "the metric of a sample",
            {sample.metric for sample in run.samples},
            least.keys(),
        )
        for sample in run.samples:
            if sample.case not in (roofs if sample.metric == ROOF else labels):
                yield f"the case of a sample {sample.case!r} is unknown there"
            if not least[sample.metric] <= sample.value <= MOST:
                yield f"a {sample.metric}{of_run} of {sample.value:g} is none"
        if run.samples and run.environment is None:
            yield "it has samples, and no environment that they were made in"
    if report.environment is None and (report.measured or report.comparisons):
        yield "it has figures, and no environment that they were made in"


def _unknown_names(
    what: str, named: Iterable[str], members: Collection[str]
) -> Iterator[str]:
    """What is named, and not known."""
    yield from (
        f"{what} {name!r} is unknown there" for name in named if name not in members
    )
