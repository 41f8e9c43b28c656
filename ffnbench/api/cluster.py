"""Measures each group of a sweep as a job on SLURM, by submitit. A job measures its
group as this process would, and returns the text of its report; this process waits for
the jobs and joins their reports.
"""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import subprocess
import time
from contextlib import redirect_stderr
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

from ffnbench.api.measuring import (
    Cells,
    Parts,
    measure_plan,
    refuse_other_plan,
    refuse_short,
)
from ffnbench.api.preparing import Prepared, new_report
from ffnbench.api.saved_runs import as_shown
from ffnbench.common import jsonable
from ffnbench.common.errors import FfnbenchError
from ffnbench.common.units import counted
from ffnbench.plan.plan import Plan
from ffnbench.plan.protocol import LEAST_BUDGET_S
from ffnbench.record.progress import Progress
from ffnbench.record.result import Failure, FailureKind, Report, Step
from ffnbench.report.files import RunFile
from ffnbench.report.shown_report import ShownReport
from ffnbench.report.store import report_in, report_text
from ffnbench.run.world import this_machine
from ffnbench.stats.figures import with_figures

POLL_S, FILE_LATE_S = 5.0, 15.0  # nodes share a folder, and see a file some time later
# minutes of a job without a budget, and what is added to twice the budget
UNKNOWN_MIN, START_MIN = 60, 5
SAFE_PATH = "PYTHONSAFEPATH"
HINT = "for example --on slurm:partition=gpu,gpus_per_node=1, fields of submitit's SlurmExecutor"


def measure_group(asked: str) -> str:
    """What a job runs: measure the plan of a report without samples, given as JSON;
    gives the text of the report.
    """
    os.environ.pop(SAFE_PATH, None)
    plan_with_costs: Report = jsonable.decode(Report, json.loads(asked))
    prepared = Prepared(plan=plan_with_costs.plan, costs=plan_with_costs.costs)
    report = measure_plan(prepared, replace(this_machine(), began=None))
    if report.interrupted:
        raise SystemExit("ended by a signal")
    return report_text(report)


def measure_as_jobs(
    prepared: Prepared, progress: Progress, file: RunFile | None, where: str
) -> ShownReport:
    """Measure each group of a plan as a job; gives the report of all, with figures.
    `where` is `slurm`, or `slurm:partition=gpu,time=30` with fields of submitit's
    SlurmExecutor. An interruption cancels the jobs.

    Raises FfnbenchError for what can't be measured as jobs, and where submitit refuses
    them.
    """
    on, _, fields = where.partition(":")
    if on != "slurm":
        raise FfnbenchError(f"--on is slurm, not {on!r}", HINT)
    if file is None:
        raise FfnbenchError(
            "--on slurm keeps the logs of its jobs beside the .json of -o, and none is given",
            "add -o sweep.json",
        )
    if prepared.plan.protocol.runs > 1:
        raise FfnbenchError(
            "--runs measures on one machine, but jobs may run on several",
            "leave --runs out",
        )
    refuse_short(prepared.plan)
    before = file.earlier()
    if before is not None:
        refuse_other_plan(before, prepared.plan)
    cells = Cells(prepared=prepared, progress=progress, keep=file.keep, before=before)
    folder = file.path.absolute().with_name(f"{file.path.name}.jobs")
    report = with_figures(cells.measured(_reports(cells, folder, fields_of(fields))))
    # the report of a job that gave none has no environment
    lost = sum(part.environment is None for part in cells.parts)
    if not lost:
        shutil.rmtree(folder, ignore_errors=True)
        return report
    groups = counted(len(cells.plans), "group")
    stopped = f"{lost} of {groups} were lost, and the logs are in {folder}: --resume measures them again"
    return replace(report, stopped=stopped)


def fields_of(text: str) -> dict[str, Any]:
    """The fields of a text such as `partition=gpu,time=30`, each read as JSON, or else
    a text; raises FfnbenchError for any other.
    """
    fields: dict[str, Any] = {}
    for part in re.split(r",(?=\w+=)", text) if text else ():
        name, _, value = part.partition("=")
        if not name or not value:
            raise FfnbenchError(f"--on slurm: {part!r} is no KEY=VALUE", HINT)
        try:
            fields[name] = json.loads(value)
        except ValueError:
            fields[name] = value
    return fields


def _reports(cells: Cells, folder: Path, fields: dict[str, Any]) -> Parts:
    """Submit a job for each cell that is not known yet, and give their reports as they
    end.
    """
    jobs: dict[Any, Plan] = {}
    try:
        _submit(jobs, cells, folder, fields)
        while jobs:
            time.sleep(POLL_S)
            # what submitit knows of jobs needs SLURM's accounting
            queue = subprocess.run(
                ["squeue", "-h", "-o", "%A", "--me"],
                capture_output=True,
                text=True,
                check=False,
            )
            alive = queue.stdout.split()
            for job in [*jobs]:
                if job.job_id not in alive and not queue.returncode:
                    yield _report_of(cells, jobs.pop(job), job)
                    cells.keep(cells.joined)
            groups = len(cells.plans)
            done = groups - len(jobs)
            text = f"groups done {done}/{groups}"
            if queue.returncode:
                text += f"; squeue does not answer: {queue.stderr.strip()}"
            cells.progress.show(Step(done=done / groups, text=text))
    finally:
        for job in jobs:
            job.cancel(check=False)


def _submit(
    jobs: dict[Any, Plan], cells: Cells, folder: Path, fields: dict[str, Any]
) -> None:
    """Submit the jobs, and add them to `jobs` with their cells. A job has an equal
    share of the budget, an exclusive node, as many CPUs as the plan has threads, and
    minutes for twice its budget, unless the user's fields say otherwise.
    """
    try:
        import submitit
        from submitit.core.utils import environment_variables
    except ImportError:
        raise FfnbenchError(
            "submitit is not installed: it submits jobs",
            "pip install 'ffnbench[cluster]'",
        ) from None
    plan, minutes = cells.prepared.plan, UNKNOWN_MIN
    protocol = plan.protocol
    if protocol.budget_s is not None:
        budget_s = max(LEAST_BUDGET_S, protocol.budget_s / len(cells.plans))
        protocol = replace(protocol, budget_s=budget_s)
        minutes = START_MIN + math.ceil(2 * budget_s / 60)
    threads = max(case.workload.threads for case in plan.cases)
    of_job = {"exclusive": True, "time": minutes, "cpus_per_task": threads} | fields
    # submitit would hand False on as a text
    of_job["exclusive"] = of_job["exclusive"] or None
    # a step does not take over the CPUs of its job
    of_job.setdefault("srun_args", [f"--cpus-per-task={of_job['cpus_per_task']}"])
    try:
        executor = submitit.SlurmExecutor(folder)
        executor.update_parameters(job_name="ffnbench", ntasks_per_node=1, **of_job)
        # submitit imports nothing from the current folder, and its exception says what
        # it writes to stderr
        with environment_variables(**{SAFE_PATH: "1"}), redirect_stderr(StringIO()):
            for cell in cells.missing():
                costs = cells.prepared.costs_of(cell)
                asked = new_report(replace(cell, protocol=protocol), costs)
                jobs[executor.submit(measure_group, report_text(asked))] = cell
    except Exception as problem:
        text = " ".join(str(problem).split())
        raise FfnbenchError(f"submitit: {text}", HINT) from problem


def _report_of(cells: Cells, cell: Plan, job: Any) -> ShownReport:
    """The report that a job has returned. Without one, or with one of another kind of
    machine than the others, each row of the cell has failed.
    """
    result = job.paths.result_pickle
    if not result.exists():
        time.sleep(FILE_LATE_S)
    log = job.stderr() or "its job ended without a result"
    why = log.strip().splitlines()[-1]
    if result.exists() and not job.exception():
        report = as_shown(report_in(job.result().encode(), str(result)))
        first, here = cells.joined(report).environment, report.environment
        if not first or not here or first.fingerprint == here.fingerprint:
            return report
        why = f"measured on {here.cpu}, others on {first.cpu}: --on slurm:constraint=... keeps to one kind"
    failures = [
        Failure(case=case.label, kind=FailureKind.LOST, message=why)
        for case in cell.cases
    ]
    lost = new_report(cell, cells.prepared.costs_of(cell))
    return replace(lost, failures=tuple(failures))
