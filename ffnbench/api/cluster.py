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
from ffnbench.report.files.outputs import save
from ffnbench.report.files.run_file import RunFile
from ffnbench.report.files.store import read_report, report_text
from ffnbench.report.shown_report import ShownReport
from ffnbench.run.world import World, this_machine
from ffnbench.stats.cells import cells_of_plan, is_part
from ffnbench.stats.figures import with_figures

LOCAL, SLURM = "local", "slurm"  # where jobs run
POLL_S = {LOCAL: 0.2, SLURM: 5.0}
# in a folder that nodes share, a file appears some seconds after its job has ended
FILE_LATE_S = {LOCAL: 0.0, SLURM: 15.0}
# minutes of a job: one that runs here; one on SLURM without a budget; and what is added
# to twice the budget
UNLIMITED_MIN, UNKNOWN_MIN, START_MIN = 100_000, 60, 5
GPUS, SAFE_PATH = "CUDA_VISIBLE_DEVICES", "PYTHONSAFEPATH"


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
    save(Path(file), report_text(report))


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
    on, _, slurm = where.partition(":")
    if slurm and on != SLURM:
        raise FfnbenchError(f"--on {on} takes no fields", "leave them out")
    refuse_unknown("--on", on, (SLURM, LOCAL))
    plan = prepared.plan
    if file is None:
        raise FfnbenchError(
            f"--on {on} keeps its jobs beside the .json of -o, and none is given",
            "add -o sweep.json",
        )
    if on == LOCAL:
        refuse_at_once(plan, world)
    refuse_short(plan)
    if plan.protocol.runs > 1:
        raise FfnbenchError(
            "--runs measures on one machine, but jobs may run on several",
            "leave --runs out",
        )
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
        parameters=parameters_of(plan, slurm),
    )
    try:
        return sweep.measure_cells()
    finally:
        if not sweep.lost:
            shutil.rmtree(folder, ignore_errors=True)


def parameters_of(plan: Plan, slurm: str) -> dict[str, Any]:
    """The parameters of a job on SLURM: an exclusive node, as many CPUs as the plan has
    threads, and twice the budget of a group, unless a text such as
    `partition=gpu,time=30` says otherwise. A value is read as JSON, or else is a text.
    """
    threads = max(case.workload.threads for case in plan.cases)
    minutes = UNKNOWN_MIN
    if plan.protocol.budget_s is not None:
        minutes = START_MIN + math.ceil(2 * share_of_budget(plan) / 60)
    parameters: dict[str, Any] = {
        "job_name": "ffnbench",
        "exclusive": True,
        "time": minutes,
        "ntasks_per_node": 1,
        "cpus_per_task": threads,
    }
    for part in re.split(r",(?=\w+=)", slurm) if slurm else ():
        name, equals, value = part.partition("=")
        if not name or not equals:
            raise FfnbenchError(
                f"--on slurm: {part!r} is no KEY=VALUE",
                "for example --on slurm:partition=gpu,gpus_per_node=1",
            )
        try:
            parameters[name] = json.loads(value)
        except ValueError:
            parameters[name] = value
    # submitit would hand False on as a text
    parameters["exclusive"] = parameters["exclusive"] or None
    # a step does not take over the CPUs of its job
    parameters.setdefault(
        "srun_args", [f"--cpus-per-task={parameters['cpus_per_task']}"]
    )
    return parameters


def share_of_budget(plan: Plan) -> float:
    """The seconds of each group: all of them together have the budget."""
    budget_s = plan.protocol.budget_s or 0.0
    return max(LEAST_BUDGET_S, budget_s / len(cells_of_plan(plan)))


@dataclass(slots=True, kw_only=True)
class SweepOfJobs(Cells):
    """Has each cell measured by a job."""

    on: str
    folder: Path
    parameters: dict[str, Any]
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
        try:
            yield from self._reports_of_jobs(left)
        finally:
            for job in self.jobs.values():
                job.cancel(check=False)

    def _reports_of_jobs(self, left: dict[Path, Plan]) -> Parts:
        cells = len(self.plans)
        waiting = [file for file in left if not self._is_there(file, left[file])]
        while left:
            # here, only one job may measure at a time
            while waiting and (self.on == SLURM or not self.jobs):
                file = waiting.pop(0)
                self.jobs[file] = self._submit(file, left[file])
            ended = self._ended()
            for file in [file for file in left if file.exists() or file in ended]:
                yield self._report_of(file, left.pop(file))
                self.jobs.pop(file, None)
                self.keep(self.joined)
            done = cells - len(left)
            step = Step(done=done / cells, text=f"groups done {done}/{cells}")
            self.progress.show(step)
            if self.jobs:
                time.sleep(POLL_S[self.on])

    def _is_there(self, file: Path, cell: Plan) -> bool:
        """Whether the job of an earlier command has measured this cell; a file of
        another plan is removed.
        """
        if not file.exists():
            return False
        report = read_report(file)
        labels = {case.label for case in report.plan.cases}
        if cell.reference in labels and is_part(report, self.prepared.plan):
            return True
        file.unlink()
        return False

    def _submit(self, file: Path, cell: Plan) -> Any:
        """Submit the job of a cell; raises FfnbenchError where submitit refuses it."""
        try:
            import submitit
            from submitit.core.utils import environment_variables
        except ImportError:
            raise FfnbenchError(
                "submitit is not installed: it submits jobs",
                "pip install 'ffnbench[cluster]'",
            ) from None
        if cell.protocol.budget_s is not None:
            budget_s = share_of_budget(self.prepared.plan)
            cell = replace(cell, protocol=replace(cell.protocol, budget_s=budget_s))
        asked = report_text(new_report(cell, self.prepared.costs_of(cell)))
        try:
            if self.on == SLURM:
                executor = submitit.SlurmExecutor(self.folder)
                executor.update_parameters(**self.parameters)
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
            hint = "--on slurm: takes fields of submitit's SlurmExecutor, as in partition=gpu,time=30; --on local needs no SLURM"
            raise FfnbenchError(f"submitit: {text}", hint) from problem

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
        environments = [part.environment for part in (*self.parts, report)]
        kinds = {one.fingerprint: one for one in environments if one is not None}
        if len(kinds) > 1:
            first, other = list(kinds.values())[:2]
            why = f"measured on {other.cpu}, others on {first.cpu}"
            file.unlink()
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


def last_line(log: str) -> str:
    """The line of a job's log that tells most: SLURM's own, as of a job that was
    cancelled, or else the last one.
    """
    lines = [line for line in log.splitlines() if line.strip()]
    by_slurm = [line for line in lines if "***" in line]
    return ["its job ended without a result", *lines, *by_slurm][-1]
