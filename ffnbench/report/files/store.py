"""Saved reports: written as text, and read again, with a check that they are whole."""

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
from ffnbench.ffn.spec import ActivationSpec, AttentionSpec, FFNSpec, ImportedSpec
from ffnbench.metrics import METRICS
from ffnbench.plan import METHOD, Kind, Plan
from ffnbench.request import spelling
from ffnbench.result import SCHEMA, Report

BEGIN_OF_CHECK = re.compile(rb'\s*\{\s*"findings"\s*:')
UPDATE = "pip install -U ffnbench"
# fields that older files have and today's types lack: they are left out when read
OLDER_FIELDS = {
    # a digest that nobody read; the errors of outputs found by a second process, and
    # the seconds that it took
    "Report": ("seal", "judged", "judging_s"),
    # until method 5 a worker moved its tensors now and then
    "Protocol": ("reversed",),
    "Sample": ("placement",),
    # half the interval of its ratio
    "Comparison": ("resolution",),
    # the MLP of a model of transformers was saved under a name, with its form
    "ImportedSpec": ("form",),
}


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
    """The report in a saved file, JSON or a journal. Raises FfnbenchError for any other
    file, and for another schema or a newer method.
    """
    hint = "is the path right?"
    if Path(path).is_dir():
        hint = f"name its files: {shlex.quote(str(path))}/*.json"
    return report_in(content_of(path, hint), str(path))


def report_in(content: bytes, path: str) -> Report:
    """The report in the content of a file, whose `path` errors name; raises
    FfnbenchError as `read_report` does.
    """
    from ffnbench.report.files.journal import is_journal, read_journal

    try:
        if is_journal(content):
            report = read_journal(
                content, path, lambda kind, entry: _upgrade_entry(kind, entry, path)
            )
        else:
            data = jsonable.parse(content)
            _refuse_other_files(data, path)
            for run in (data, *(data.get("repeats") or ())):
                _upgrade(run, path)
            report = _decoded_report(data)
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
        return f"is it of a newer ffnbench? {UPDATE}; if not, measure again"
    if content.strip() and not content.lstrip().startswith(b"{"):  # a CSV, a table
        return "only JSON is read: `ffnbench compare relu swiglu -o run.json` saves such a run"
    if "repeats[" in problem:
        return 'take that run out of "repeats"'
    return "was it cut off? measure again"


def holds_findings(path: str | Path) -> bool:
    """Whether a file begins like the JSON that `check -o check.json` writes."""
    if not Path(path).is_file():
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
        if schema > SCHEMA:
            age, hint = ("a newer", UPDATE)
        else:
            age, hint = ("an older", "measure again with this version")
        problem = f"{path!r} was made by {age} ffnbench (schema {schema}; this one reads {SCHEMA})"
        raise FfnbenchError(problem, hint)


def _upgrade(run: dict[str, Any], path: str) -> None:
    """Change the data of a run, or of a plan, of an older file into that of today's
    files. Raises FfnbenchError for a newer method.
    """
    plan = run.get("plan") or run
    protocol = plan.get("protocol") if isinstance(plan, dict) else None
    if not isinstance(protocol, dict):
        raise ValueError("it has no plan that says how it was measured")
    method = protocol.get("method")
    # this ffnbench can't know what the ratios of a newer method mean
    if isinstance(method, int) and method > METHOD:
        problem = f"{path!r} was measured with method {method}, this ffnbench knows methods up to {METHOD}"
        raise FfnbenchError(problem, UPDATE)
    # older plans held the flags, of which only the number of runs is still needed
    request = plan.pop("request", None) or {}
    if request.get("runs", 1) > 1:
        protocol.setdefault("runs", request["runs"])
    _drop_older_fields("Report", run)
    _drop_older_fields("Protocol", protocol)
    for sample in run.get("samples") or ():
        _drop_older_fields("Sample", sample)
    for comparison in run.get("comparisons") or ():
        _drop_older_fields("Comparison", comparison)
    for case in plan.get("cases") or ():
        spec = case.get("ffn") or {}
        for each in (spec, spec.get("around", {})):
            if "target" in each:
                _drop_older_fields("ImportedSpec", each)


def _drop_older_fields(kind: str, data: dict[str, Any]) -> None:
    for name in OLDER_FIELDS[kind]:
        data.pop(name, None)


def _upgrade_entry(kind: str, entry: dict[str, Any], path: str) -> None:
    """Change the content of an entry of an older journal as `_upgrade` does."""
    if kind in ("Report", "Plan"):
        _upgrade(entry, path)


def made_anew(path: str, run: Report, **other: object) -> str:
    """A hint to measure a saved run again, by its own command but with `other` values
    of flags.
    """
    return f"measure it again: {command_of(run, **other)} -o {shlex.quote(path)}"


def command_of(run: Report, **other: object) -> str:
    """The command that made a run, with `other` values of flags, where a value that is
    empty leaves its flag out. Older files have no command.
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
    yield from _unknown_names(
        "the reference",
        (plan.reference, *(case.against for case in plan.cases if case.against)),
        labels,
    )
    for case in plan.cases:
        if not isinstance(case.ffn, MEASURES[plan.kind]):
            yield f"{case.label!r} is nothing that {plan.kind} measures"
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
    least_of["workspace_bytes"] = 0.0  # of older files
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
