"""Measures the cells of a sweep as jobs of submitit: on SLURM, or here, one after
another in processes that outlive this one.

All data of a job are in its folder FILE.json.jobs/NAME, in files of submitit. So this
process may end at any moment: the same command with --resume takes the results that are
there, waits for jobs that live, and submits the rest. A job is done when its result is
there. Its state is not asked for, since SLURM without accounting does not know it.

Those files are pickles, which could run any code: a folder is used again only if a run
of this user has made it.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import shlex
import shutil
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from ffnbench.api.measuring import Measure, measure_run, refuse_short
from ffnbench.api.preparing import Prepared, new_report, refuse_at_once
from ffnbench.api.saved_runs import as_shown
from ffnbench.api.sweeping import MeasuredCells
from ffnbench.common import jsonable
from ffnbench.common.errors import FfnbenchError, termination_as_interruption
from ffnbench.common.files import is_own, own_folder, try_lock
from ffnbench.common.streams import say
from ffnbench.common.units import counted
from ffnbench.extras.cluster import LOCAL, SLURM
from ffnbench.extras.cluster.submitting import (
    OF_SUBMITIT,
    SAFE_PATH,
    Cluster,
    fields_of,
)
from ffnbench.following import UNFOLLOWED, Following
from ffnbench.plan import Note, NoteKind, Plan
from ffnbench.report.destination import Destination, refuse_unknown
from ffnbench.report.files.store import report_text
from ffnbench.report.shown_report import ShownReport
from ffnbench.result import Environment, Failure, FailureKind, Progress, Report
from ffnbench.run.world import World
from ffnbench.stats.cells import cells_of_plan
from ffnbench.stats.figures import with_figures


def measured_by(on: str, slurm: Sequence[str]) -> Callable[..., ShownReport]:
    """The function that measures groups as jobs, by the flags --on and --slurm; raises
    FfnbenchError for flags that name no place for jobs.
    """
    if slurm and on != SLURM:
        raise FfnbenchError("--slurm is only for jobs on SLURM", "add --on slurm")
    refuse_unknown("--on", on, (SLURM, LOCAL))
    return partial(measure_as_jobs, on=on, slurm=tuple(slurm))


# The folder of jobs


@contextmanager
def hold_folder(folder: Path, *, resumes: bool) -> Iterator[None]:
    """Make the folder, or use that of an earlier run if this one resumes it, and lock
    it meanwhile. A folder without any job is removed at the end.

    Raises FfnbenchError for a folder that this run may not use.
    """
    if not os.path.lexists(folder):
        _make_folder(folder)
    elif not _is_of_this_user(folder):
        raise FfnbenchError(
            f"{str(folder)!r} is the folder for the jobs, but no run of yours has made it",
            "move it away, or give -o another file; files of other users are not used",
        )
    elif not resumes:
        hint = f"add --resume: it takes them up; or forget them: rm -r {shlex.quote(str(folder))}"
        raise FfnbenchError(
            f"{str(folder)!r} holds jobs of a run that has not ended", hint
        )
    with (folder / "lock").open("wb") as file:
        if not try_lock(file):
            raise FfnbenchError(
                f"--resume: another run uses {str(folder)!r} now",
                "wait until it ends",
            )
        try:
            yield
        finally:
            if not any(path.is_dir() for path in folder.glob("*")):
                shutil.rmtree(folder, ignore_errors=True)


def _token_of(folder: Path) -> Path:
    """The file, in the folder of this user, that holds the token of a folder of jobs. A
    folder has a file of that name if a run of this user has made it.
    """
    return own_folder() / f"jobs-{hashlib.sha256(os.fsencode(folder)).hexdigest()}"


def _make_folder(folder: Path) -> None:
    """Make the folder, with a token that nobody else knows; raises FfnbenchError where
    that is not possible.
    """
    token = secrets.token_hex(16)
    try:
        _token_of(folder).write_text(token, encoding="ascii")
        folder.mkdir(mode=0o700)
        (folder / token).touch()
    except (OSError, RuntimeError) as problem:
        hint = "XDG_STATE_HOME names a folder of your own, in which ffnbench keeps whose jobs they are"
        raise FfnbenchError(
            f"cannot make {str(folder)!r}: {problem}", hint
        ) from problem


def _is_of_this_user(folder: Path) -> bool:
    """Whether a run of this user has made the folder; no file in it is read."""
    try:
        token = _token_of(folder).read_text(encoding="ascii")
        return is_own(folder) and (folder / token).is_file()
    except (OSError, RuntimeError):
        return False


# Jobs


JOB_POLL_S = {LOCAL: 0.2, SLURM: 5.0}
# seconds that a job without a result may look as if it had ended before it is lost:
# in a shared folder a result appears late, and a process that begins has no command
# line yet
GONE_S = {LOCAL: 0.5, SLURM: 15.0}
NO_RESULT = "its job ended without a result"
# beginnings of lines of a log that do not say what has gone wrong
SAYS_LITTLE = ("hint:", "---", "You can", "srun: error:")
# variables of the environment of a job
EXECUTOR, GPUS = "SUBMITIT_EXECUTOR", "CUDA_VISIBLE_DEVICES"


@dataclass(frozen=True, slots=True)
class CellJob:
    """What a job runs: it measures a cell.

    `asked` is a report without samples, and the result is one with them, both as JSON.
    `gpus` are those that the submitting process sees, which submitit hides from jobs
    that run here.
    """

    asked: str
    gpus: str | None
    measure: Measure

    def __call__(self) -> str:
        from ffnbench.run.world import this_machine

        here = os.environ.get(EXECUTOR) == LOCAL
        if here:
            os.environ.pop(GPUS, None)
            if self.gpus is not None:
                os.environ[GPUS] = self.gpus
        if os.environ.get(SAFE_PATH) == OF_SUBMITIT:
            del os.environ[SAFE_PATH]
        asked = _report_in(self.asked)
        # a job waits until no other run measures there
        world = replace(this_machine(wait=True), began=None)
        report = self.measure(
            Prepared(plan=asked.plan, costs=asked.costs), world, UNFOLLOWED
        )
        # SLURM either ends this process now, or has submitit submit it again
        while report.interrupted and not here:
            signal.pause()
        if report.interrupted:
            raise SystemExit("ended by a signal")
        return report_text(report)

    def checkpoint(self) -> Any:
        """What submitit submits again after a preemption: the whole job, since a cell
        may not be measured on two machines, half on each.
        """
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self)


def _report_in(text: str) -> Report:
    report: Report = jsonable.decode(Report, jsonable.parse(text.encode()))
    return report


def measure_as_jobs(
    prepared: Prepared,
    world: World,
    destination: Destination,
    measure_in_job: Measure = measure_run,
    *,
    on: str,
    slurm: tuple[str, ...],
) -> ShownReport:
    """Measure each cell of what was prepared as a job; gives the report of all, with
    figures.

    Raises FfnbenchError for what can't be measured as jobs, and where SLURM refuses
    them.
    """
    plan, file = prepared.plan, destination.saved
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
    cluster = Cluster(on, fields_of(slurm), plan)
    folder = file.absolute().with_name(f"{file.name}.jobs")
    with hold_folder(folder, resumes=destination.resumes):
        # raises for unknown fields before anything is submitted
        cluster.executor(folder)
        sweep = SweepOfJobs(
            prepared=prepared,
            # no journal: jobs keep their results themselves
            following=Following(progress=destination.following.progress),
            before=destination.following.resumed(),
            cluster=cluster,
            folder=folder,
            measure_in_job=measure_in_job,
        )
        report = sweep.measure_cells()
    if not report.interrupted and not report.stopped:
        destination.when_written(partial(shutil.rmtree, folder, ignore_errors=True))
    return report


@dataclass(slots=True, kw_only=True)
class SweepOfJobs(MeasuredCells):
    """Has each cell measured by a job, once: nobody can say when machines have time
    left for those that are not decided.
    """

    cluster: Cluster
    folder: Path
    measure_in_job: Measure
    # those that were submitted and are not gathered yet, by their folders
    jobs: dict[Path, Any] = field(default_factory=dict)
    # since when a job is neither alive nor done, by its folder
    gone: dict[Path, float] = field(default_factory=dict)

    def measure_cells(self) -> ShownReport:
        """Submit the cells that are not known yet, and gather their reports; gives the
        report of all, with figures.
        """
        cells = cells_of_plan(self.prepared.plan)
        measured_before = self.begin(cells)
        left = {
            self._folder_of(cell): cell
            for cell in cells
            if cell.reference not in measured_before
        }
        if self.before:
            self.analyses = self.before.plan.protocol.looks
        interrupted, lost = False, 0
        try:
            with termination_as_interruption():
                self.following.progress(Progress(done=0.0, text="looking for jobs"))
                self._take_up(left)
                lost = self._gather(left, len(cells))
        except FfnbenchError:  # as when SLURM limits the number of jobs
            self._tell_how_to_go_on()
            raise
        except KeyboardInterrupt:
            self._tell_how_to_go_on()
            if not self.parts:
                raise
            interrupted = True
        report = with_figures(self._with_machines(self.report))
        stopped = report.stopped
        if lost:
            stopped = f"{lost} of {counted(len(cells), 'group')} were lost, and what they wrote is in {self.folder}"
            stopped += ": --resume measures them again"
        return replace(report, interrupted=interrupted, stopped=stopped)

    def _with_machines(self, report: ShownReport) -> ShownReport:
        """The report with a note of the machines, where there are several. Only a plan
        that a feature adds may have several.
        """
        environments = [part.environment for part in self.parts]
        machines = dict.fromkeys(
            _machine(environment)
            for environment in environments
            if environment is not None
        )
        if len(machines) < 2:
            return report
        note = Note(
            text=f"groups were measured on several machines: {'; '.join(machines)}",
            kind=NoteKind.GENERAL,
        )
        return replace(report, warnings=(*report.warnings, note))

    def _folder_of(self, cell: Plan) -> Path:
        """The folder of a cell's job; it does not depend on the budget and the command,
        which may be others when the run is resumed.
        """
        protocol = replace(cell.protocol, budget_s=None, bound=False, looks=1)
        text = jsonable.json_text(
            jsonable.encode(replace(cell, protocol=protocol, command="", notes=()))
        )
        return self.folder / hashlib.sha256(text.encode()).hexdigest()[:16]

    def _take_up(self, left: dict[Path, Plan]) -> None:
        """Take over the jobs of an earlier process that live, or have succeeded."""
        submitted = {}
        for folder in left:
            job = self.cluster.submitted(folder)
            if job is not None:
                submitted[folder] = job
        alive = self.cluster.alive(submitted)
        for folder, job in submitted.items():
            if _has_succeeded(job) or (
                job.job_id in alive and not job.paths.result_pickle.exists()
            ):
                self.jobs[folder] = job

    def _gather(self, left: dict[Path, Plan], cells: int) -> int:
        """Submit jobs and gather their reports until no cell is left; gives how many
        were lost.
        """
        lost = 0
        to_submit = [folder for folder in left if folder not in self.jobs]
        self._show_progress(cells, len(left))
        while left:
            # here, only one job may measure at a time
            while to_submit and (self.cluster.on == SLURM or not self.jobs):
                folder = to_submit.pop(0)
                self.jobs[folder] = self.cluster.submit(folder, self._job(left[folder]))
            alive = self.cluster.alive(self.jobs)
            for folder, job in list(self.jobs.items()):
                report = self._report_of_job(
                    folder, job, left[folder], alive=job.job_id in alive
                )
                if report is not None:
                    self.parts.append(report)
                    kinds = {failure.kind for failure in report.failures}
                    if FailureKind.LOST in kinds:
                        lost += 1
                    del left[folder], self.jobs[folder]
            self._show_progress(cells, len(left))
            if self.jobs:
                time.sleep(JOB_POLL_S[self.cluster.on])
        return lost

    def _job(self, cell: Plan) -> CellJob:
        """The job that measures a cell with its share of the budget."""
        if cell.protocol.budget_s is not None:
            cell = replace(
                cell, protocol=replace(cell.protocol, budget_s=self.cluster.share_s)
            )
        asked = report_text(new_report(cell, self.prepared.costs_of(cell)))
        return CellJob(asked, os.environ.get(GPUS), self.measure_in_job)

    def _report_of_job(
        self, folder: Path, job: Any, cell: Plan, *, alive: bool
    ) -> ShownReport | None:
        """The report of a job, which may be that it is lost; None while its result may
        still come.
        """
        if job.paths.result_pickle.exists():
            try:
                report = _report_in(self.cluster.job(folder, job.job_id).result())
            except Exception as problem:
                # what the job raised, with submitit's text around it
                return self._lost(cell, _last_of(str(problem)))
            why = self._why_not_joined(report)
            if not why:
                return as_shown(report)
            shutil.rmtree(folder, ignore_errors=True)  # --resume measures it again
            return self._lost(cell, why)
        if alive:
            self.gone.pop(folder, None)
            return None
        now = time.monotonic()
        if now - self.gone.setdefault(folder, now) < GONE_S[self.cluster.on]:
            return None
        return self._lost(cell, _last_of(job.stderr() or job.stdout() or ""))

    def _lost(self, cell: Plan, why: str) -> ShownReport:
        """The report of a cell whose job is lost: each of its rows has failed."""
        failures = tuple(
            Failure(case=case.label, kind=FailureKind.LOST, message=why)
            for case in cell.cases
        )
        return replace(
            new_report(cell, self.prepared.costs_of(cell)), failures=failures
        )

    def _why_not_joined(self, report: Report) -> str:
        """Why a report can't be joined with the others; "" where it can.

        Rows, curves and crossings must be of one kind of machine.
        """
        if report.environment is None:
            return ""
        for part in self.parts:
            there = part.environment
            if (
                there is not None
                and there.fingerprint != report.environment.fingerprint
            ):
                here = f"measured on {_machine(report.environment)}, others on {_machine(there)}"
                return f"{here}: --slurm constraint=... keeps to one kind of machine"
        return ""

    def _show_progress(self, cells: int, left: int) -> None:
        done = cells - left
        text = f"{counted(len(self.jobs), 'job')} submitted, groups done {done}/{cells}"
        self.following.progress(Progress(done=done / cells, text=text))

    def _tell_how_to_go_on(self) -> None:
        numbers = " ".join(job.job_id for job in self.jobs.values())
        if numbers:
            if self.cluster.on == LOCAL:
                then, end = (", and then the rest", "kill")
            else:
                then, end = ("", "scancel")
            say(
                f"jobs go on: the same command with --resume takes them up{then}; {end} {numbers} ends them"
            )


def _machine(environment: Environment) -> str:
    chip = environment.gpu or environment.cpu
    return (
        f"{chip}, {counted(environment.usable_cpus, 'CPU')}, torch {environment.torch}"
    )


def _has_succeeded(job: Any) -> bool:
    """Whether a job has a result that is neither an error nor a run that was stopped by
    its budget.
    """
    try:
        if not job.paths.result_pickle.exists() or job.exception() is not None:
            return False
        return not _report_in(job.result()).stopped
    except Exception:  # half a file, or one of another Python
        return False


def _last_of(log: str) -> str:
    """The line of a log that tells most: what SLURM did to the job, or else the last
    line, as of a traceback.
    """
    lines = [
        line
        for line in log.splitlines()
        if line[:1].strip() and not line.startswith(SAYS_LITTLE)
    ]
    by_slurm = [line for line in lines if "***" in line]
    return [NO_RESULT, *lines, *by_slurm][-1]
