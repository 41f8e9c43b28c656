"""Measures each group of a sweep as a job of submitit: on SLURM, or here, one after
another.

A job measures its group as this process would, and writes the report to a file in
FILE.json.jobs. This process waits for the files and joins their reports.
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
from dataclasses import dataclass, field, replace
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
from ffnbench.api.preparing import Prepared, new_report, refuse_at_once
from ffnbench.api.saved_runs import as_shown
from ffnbench.common import jsonable
from ffnbench.common.errors import FfnbenchError
from ffnbench.common.units import counted
from ffnbench.plan.plan import Plan
from ffnbench.plan.protocol import LEAST_BUDGET_S
from ffnbench.record.progress import Progress
from ffnbench.record.result import Failure, FailureKind, Report, Step
from ffnbench.report.destination import refuse_unknown
from ffnbench.report.files import RunFile, write
from ffnbench.report.shown_report import ShownReport
from ffnbench.report.store import read_report, report_text
from ffnbench.run.world import World, this_machine
from ffnbench.stats.cells import is_part
from ffnbench.stats.figures import with_figures

LOCAL, SLURM = "local", "slurm"  # where jobs run
POLL_S = {LOCAL: 0.2, SLURM: 5.0}
# in a folder that nodes share, a file appears some seconds after its job has ended
FILE_LATE_S = {LOCAL: 0.0, SLURM: 15.0}
# minutes of a job: one that runs here; one on SLURM without a budget; and what is added
# to twice the budget
UNLIMITED_MIN, UNKNOWN_MIN, START_MIN = 100_000, 60, 5
GPUS, SAFE_PATH = "CUDA_VISIBLE_DEVICES", "PYTHONSAFEPATH"
SLURM_HINT = "--on slurm: takes fields of submitit's SlurmExecutor, as in partition=gpu,time=30; --on local needs no SLURM"


def measure_group(asked: str, file: str, gpus: str | None) -> None:
    """What a job runs: measure the plan of a report without samples, given as JSON, and
    write the report to a file.

    `gpus` are those that the submitting process sees: submitit hides them from jobs
    that run here.
    """
    if os.environ.get("SUBMITIT_EXECUTOR") == LOCAL:
        del os.environ[GPUS]
        if gpus is not None:
            os.environ[GPUS] = gpus
    os.environ.pop(SAFE_PATH, None)
    plan_with_costs: Report = jsonable.decode(Report, json.loads(asked))
    prepared = Prepared(plan=plan_with_costs.plan, costs=plan_with_costs.costs)
    report = measure_plan(prepared, replace(this_machine(), began=None))
    if report.interrupted:
        raise SystemExit("ended by a signal")
    write(Path(file), report_text(report))


def measure_as_jobs(
    prepared: Prepared,
    world: World,
    progress: Progress,
    file: RunFile | None,
    where: str,
) -> ShownReport:
    """Measure each group of a plan as a job; gives the report of all, with figures.

    Jobs run `where` --on says: `local`, `slurm`, or `slurm:partition=gpu,time=30` with
    fields of submitit's SlurmExecutor. Raises FfnbenchError for what can't be measured
    as jobs, and where submitit refuses them.
    """
    on, _, fields = where.partition(":")
    refuse_unknown("--on", on, (SLURM, LOCAL))
    plan = prepared.plan
    if fields and on == LOCAL:
        raise FfnbenchError(f"--on {on} takes no fields", "leave them out")
    if file is None:
        raise FfnbenchError(
            f"--on {on} keeps its jobs beside the .json of -o, and none is given",
            "add -o sweep.json",
        )
    if plan.protocol.runs > 1:
        raise FfnbenchError(
            "--runs measures on one machine, but jobs may run on several",
            "leave --runs out",
        )
    if on == LOCAL:
        refuse_at_once(plan, world)
    refuse_short(plan)
    folder = file.path.absolute().with_name(f"{file.path.name}.jobs")
    if folder.exists() and not file.resumes:
        raise FfnbenchError(
            f"{str(folder)!r} holds jobs of another run",
            "add --resume to take up what it has measured, or remove the folder",
        )
    before = file.earlier()
    if before is not None:
        refuse_other_plan(before, plan)
    sweep = SweepOfJobs(
        prepared=prepared,
        progress=progress,
        keep=file.keep,
        before=before,
        on=on,
        folder=folder,
        fields=fields_of(fields),
    )
    try:
        return sweep.measure_cells()
    finally:
        if not sweep.lost:
            shutil.rmtree(folder, ignore_errors=True)


def fields_of(text: str) -> dict[str, Any]:
    """The fields of a text such as `partition=gpu,time=30`, each read as JSON, or else
    a text; raises FfnbenchError for any other.
    """
    fields: dict[str, Any] = {}
    for part in re.split(r",(?=\w+=)", text) if text else ():
        name, _, value = part.partition("=")
        if not name or not value:
            raise FfnbenchError(
                f"--on slurm: {part!r} is no KEY=VALUE",
                "for example --on slurm:partition=gpu,gpus_per_node=1",
            )
        try:
            fields[name] = json.loads(value)
        except ValueError:
            fields[name] = value
    return fields


@dataclass(slots=True, kw_only=True)
class SweepOfJobs(Cells):
    """Has each cell measured by a job. `fields` are those of submitit's SlurmExecutor
    that the user gives.
    """

    on: str
    folder: Path
    fields: dict[str, Any]
    jobs: dict[Path, Any] = field(default_factory=dict)  # by the files they write
    lost: int = 0

    def measure_cells(self) -> ShownReport:
        """Submit the cells that are not known yet, and wait for their reports; gives
        the report of all, with figures. An interruption cancels the jobs.
        """
        missing = self.missing()
        left = {
            self.folder / f"{number}.json": cell
            for number, cell in enumerate(self.plans)
            if cell in missing
        }
        self.folder.mkdir(exist_ok=True)
        report = with_figures(self.measured(self._reports(left)))
        if not self.lost:
            return report
        groups = counted(len(self.plans), "group")
        stopped = f"{self.lost} of {groups} were lost, and what they wrote is in {self.folder}: --resume measures them again"
        return replace(report, stopped=stopped)

    def _reports(self, left: dict[Path, Plan]) -> Parts:
        """Submit jobs and give their reports until no cell is left."""
        cells = len(self.plans)
        waiting = [file for file in left if not _is_there(file, left[file])]
        try:
            while left:
                # here, only one job may measure at a time
                while waiting and (self.on == SLURM or not self.jobs):
                    file = waiting.pop(0)
                    self.jobs[file] = self._submit(file, left[file])
                ended = self._ended()
                for file in [one for one in left if one.exists() or one in ended]:
                    yield self._report_of(file, left.pop(file))
                    self.jobs.pop(file, None)
                    self.keep(self.joined)
                done = cells - len(left)
                step = Step(done=done / cells, text=f"groups done {done}/{cells}")
                self.progress.show(step)
                if self.jobs:
                    time.sleep(POLL_S[self.on])
        finally:
            for job in self.jobs.values():
                job.cancel(check=False)

    def _submit(self, file: Path, cell: Plan) -> Any:
        """Submit the job of a cell, for its share of the budget. On SLURM it has an
        exclusive node, as many CPUs as the cell has threads, and minutes for twice its
        budget, unless the user's fields say otherwise.

        Raises FfnbenchError where submitit refuses it.
        """
        try:
            import submitit
            from submitit.core.utils import environment_variables
        except ImportError:
            raise FfnbenchError(
                "submitit is not installed: it submits jobs",
                "pip install 'ffnbench[cluster]'",
            ) from None
        minutes = UNKNOWN_MIN
        if cell.protocol.budget_s is not None:
            budget_s = max(LEAST_BUDGET_S, cell.protocol.budget_s / len(self.plans))
            cell = replace(cell, protocol=replace(cell.protocol, budget_s=budget_s))
            minutes = START_MIN + math.ceil(2 * budget_s / 60)
        threads = max(case.workload.threads for case in cell.cases)
        fields = {
            "job_name": "ffnbench",
            "exclusive": True,
            "time": minutes,
            "ntasks_per_node": 1,
            "cpus_per_task": threads,
            **self.fields,
        }
        # submitit would hand False on as a text
        fields["exclusive"] = fields["exclusive"] or None
        # a step does not take over the CPUs of its job
        fields.setdefault("srun_args", [f"--cpus-per-task={fields['cpus_per_task']}"])
        asked = report_text(new_report(cell, self.prepared.costs_of(cell)))
        try:
            if self.on == SLURM:
                executor = submitit.SlurmExecutor(self.folder)
                executor.update_parameters(**fields)
            else:
                executor = submitit.LocalExecutor(self.folder)
                executor.update_parameters(timeout_min=UNLIMITED_MIN)
            # submitit imports nothing from the current folder, and its exception says
            # what it writes to stderr
            with environment_variables(**{SAFE_PATH: "1"}), redirect_stderr(StringIO()):
                gpus = os.environ.get(GPUS)
                return executor.submit(measure_group, asked, str(file), gpus)
        except Exception as problem:
            text = " ".join(str(problem).split())
            raise FfnbenchError(f"submitit: {text}", SLURM_HINT) from problem

    def _ended(self) -> set[Path]:
        """The files of the jobs that have ended, none where SLURM does not answer. The
        states that submitit knows need SLURM's accounting.
        """
        if self.on == LOCAL:
            return {file for file, job in self.jobs.items() if job.done()}
        command = ["squeue", "-h", "-o", "%A", "--me"]
        queue = subprocess.run(command, capture_output=True, text=True, check=False)
        if queue.returncode:
            return set()
        alive = queue.stdout.split()
        return {file for file, job in self.jobs.items() if job.job_id not in alive}

    def _report_of(self, file: Path, cell: Plan) -> ShownReport:
        """The report of a cell; where its job has written none, or on another
        kind of machine than the others, each row of the cell has failed.
        """
        if not file.exists():
            time.sleep(FILE_LATE_S[self.on])
        if not file.exists():
            job = self.jobs[file]
            return self._lost(cell, last_line(job.stderr() or job.stdout() or ""))
        report = as_shown(read_report(file))
        here = report.environment
        for first in (part.environment for part in self.parts):
            if first and here and first.fingerprint != here.fingerprint:
                file.unlink()
                why = f"measured on {here.cpu}, others on {first.cpu}"
                return self._lost(
                    cell, f"{why}: --on slurm:constraint=... keeps to one kind"
                )
        return report

    def _lost(self, cell: Plan, why: str) -> ShownReport:
        """The report of a cell whose job is lost."""
        self.lost += 1
        failures = [
            Failure(case=case.label, kind=FailureKind.LOST, message=why)
            for case in cell.cases
        ]
        report = new_report(cell, self.prepared.costs_of(cell))
        return replace(report, failures=tuple(failures))


def _is_there(file: Path, cell: Plan) -> bool:
    """Whether the job of an earlier command has measured this cell; a file of another
    plan is removed.
    """
    if not file.exists():
        return False
    if is_part(read_report(file), cell):
        return True
    file.unlink()
    return False


def last_line(log: str) -> str:
    """The line of a job's log that tells most: SLURM's own, as of a job that was
    cancelled, or else the last one.
    """
    lines = [line for line in log.splitlines() if line.strip()]
    by_slurm = [line for line in lines if "***" in line]
    return ["its job ended without a result", *lines, *by_slurm][-1]
