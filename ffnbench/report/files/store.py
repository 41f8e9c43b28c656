"""Saved reports: as text, and read again with a check."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

from ffnbench import jsonable
from ffnbench.errors import FfnbenchError
from ffnbench.files import content_of
from ffnbench.plan import METHOD
from ffnbench.result import SCHEMA, Report


def report_text(report: Report) -> str:
    """Strict JSON with one line for each element of each list, so that two runs can be compared by diff."""
    data = jsonable.encode(report)
    parts = []
    for key, value in sorted(data.items(), key=lambda item: isinstance(item[1], list)):  # the samples stand last
        if isinstance(value, list) and value:
            items = ",\n  ".join(jsonable.text_of(item) for item in value)
            parts.append(f" {json.dumps(key)}: [\n  {items}\n ]")
        else:
            parts.append(f" {json.dumps(key)}: {jsonable.text_of(value)}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


A_RUN = "one is written by `ffnbench compare -o run.json`"


def load(path: str | Path) -> Report:
    """A saved JSON report; raises FfnbenchError for what is not one, or is of another schema or a newer method."""
    from ffnbench.report.files.coherent import refuse_incoherent
    from ffnbench.report.files.journal import is_journal, read_journal

    try:
        of_folder = f"name its files: {shlex.quote(str(path))}/*.json"
        content = content_of(path, *[of_folder] * Path(path).is_dir())
        if is_journal(content):
            report = read_journal(content, str(path))
            refuse_incoherent(report)
            return report
        data = jsonable.parse(content)
        schema = data.get("schema") if isinstance(data, dict) else None
        if isinstance(data, dict) and "findings" in data:
            problem = f"{str(path)!r} holds what a check found, and no run by itself"
            raise FfnbenchError(problem, "its run stands in it as `now`")
        if schema is None:
            config = isinstance(data, dict) and "model_type" in data
            hint = f"`ffnbench inspect {shlex.quote(str(path))}` reads a model's config" if config else A_RUN
            raise FfnbenchError(f"{str(path)!r} is no saved run", hint)
        if schema != SCHEMA:
            problem = f"{str(path)!r} has schema {schema}, this ffnbench reads schema {SCHEMA}"
            raise FfnbenchError(problem, "measure again with this version")
        data.pop("seal", None)  # of cases and costs, in older files
        for run in (data, *(data.get("repeats") or ())):
            protocol = (run.get("plan") or run)["protocol"]
            method = protocol["method"]
            if isinstance(method, int) and method > METHOD:  # whose ratios mean what this ffnbench can't know
                problem = f"{str(path)!r} was measured with method {method}, this ffnbench knows methods up to {METHOD}"
                raise FfnbenchError(problem, "update ffnbench to read it")
            # until method 5 a worker moved its tensors now and then; until 6 a check measured suspects again
            protocol.pop("reversed", None)
            request = (run.get("plan") or run).get("request") or {}  # a model had two flags
            if "config" in request:
                request["preset"] = request.pop("config") or request["preset"]
            for sample in run.get("samples") or ():
                sample.pop("placement", None)
        report = jsonable.decode(Report, data)
        refuse_incoherent(report)
        return report
    except (ValueError, KeyError, TypeError, AttributeError) as problem:
        hint = 'take that run out of "repeats"' if "repeats[" in str(problem) else "was it cut off? measure again"
        if not content.lstrip().startswith(b"{"):  # a CSV, a table
            hint = "only JSON is read: `ffnbench compare relu swiglu -o run.json` saves such a run"
        raise FfnbenchError(f"{str(path)!r} is not a whole ffnbench report: {problem}", hint) from problem
