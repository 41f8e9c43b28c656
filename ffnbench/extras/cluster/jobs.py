"""Cells of a sweep as jobs of submitit: on SLURM, or here, one after another in
processes that outlive this one.

All that there is of a job stands in its folder FILE.json.jobs/NAME, in submitit's own
files: this process may end at any moment, and the same command with --resume takes what
is there, waits for jobs that live, and submits the rest. A job is done when its result
stands there; what its state is, is not asked, for without accounting SLURM does not
know.

Those files are pickles, and could run anything: a folder is taken up only where this
user's own run has made it.
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
from ffnbench.plan import Note, NoteKind, Plan, added_kind
from ffnbench.report.destination import Destination, one_of
from ffnbench.report.files.store import report_text
from ffnbench.report.shown_report import ShownReport
from ffnbench.result import Environment, Failure, FailureKind, Progress, Report
from ffnbench.run.world import World
from ffnbench.stats.cells import cells_of_plan
from ffnbench.stats.figures import with_figures


def measured_by(on: str, slurm: Sequence[str]) -> Callable[..., ShownReport]:
    """What measures groups as jobs, by what --on and --slurm say; raises FfnbenchError
    for what can be none.
    """
    if slurm and on != SLURM:
        raise FfnbenchError("--slurm is only for jobs on SLURM", "add --on slurm")
    one_of("--on", on, (SLURM, LOCAL))
    return partial(measure_as_jobs, on=on, slurm=tuple(slurm))


# The folder of jobs


@contextmanager
def held(folder: Path, *, resumes: bool) -> Iterator[None]:
    """Make the folder, or take up that of an earlier run; nobody else goes on with its
    jobs meanwhile. One without any job does not stay behind. Raises FfnbenchError for a
    folder that is not to be taken up.
    """
    if not os.path.lexists(folder):
        _make(folder)
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
    """Where this user's own folder keeps the token of a folder of jobs: the name of a
    file that stands in it.
    """
    return own_folder() / f"jobs-{hashlib.sha256(os.fsencode(folder)).hexdigest()}"


def _make(folder: Path) -> None:
    """Make the folder, with a token that nobody else knows; raises FfnbenchError where
    that can't be.
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
    """Whether a run of this user's has made it. Nothing in it is read for that."""
    try:
        token = _token_of(folder).read_text(encoding="ascii")
        return is_own(folder) and (folder / token).is_file()
    except (OSError, RuntimeError):
        return False


# Jobs


JOB_POLL_S = {LOCAL: 0.2, SLURM: 5.0}
# a result may come so long after its job has ended, where folders are shared
GONE_S = {LOCAL: 0.0, SLURM: 15.0}
NOTHING = "its job ended without a result"
# lines below the one that tells what has gone wrong
SAYS_LITTLE = ("hint:", "---", "You can", "srun: error:")
EXECUTOR, GPUS = "SUBMITIT_EXECUTOR", "CUDA_VISIBLE_DEVICES"


@dataclass(frozen=True, slots=True)
class CellJob:
    """What a job does: it measures a cell. `asked` is a report without samples, and
    what comes back is one with them, both as JSON. `gpus` are those that the submitting
    process sees, which submitit hides from jobs that run here.
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
        asked = _report(self.asked)
        # a job waits until no other run measures there
        world = replace(this_machine(wait=True), began=None)
        report = self.measure(
            Prepared(plan=asked.plan, costs=asked.costs), world, UNFOLLOWED
        )
        # SLURM either ends this process now, or has submitit begin anew
        while report.interrupted and not here:
            signal.pause()
        if report.interrupted:
            raise SystemExit("ended by a signal")
        return report_text(report)

    def checkpoint(self) -> Any:
        """What is begun anew after a preemption: all of it, for half of two machines is
        no cell.
        """
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self)


def _report(text: str) -> Report:
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
    """Measure each cell of what was prepared as a job; raises FfnbenchError for what
    can be no job, or is refused.
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
    with held(folder, resumes=destination.resumes):
        # what it does not know is told before anything is submitted
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
    # submitted, and not gathered yet, by their folders
    jobs: dict[Path, Any] = field(default_factory=dict)
    # since when a job is neither alive nor done
    gone: dict[Path, float] = field(default_factory=dict)

    def measure_cells(self) -> ShownReport:
        """Submit the cells that are not known yet, and gather their reports; gives the
        report of all, with figures.
        """
        cells = cells_of_plan(self.prepared.plan)
        measured_before = self.begin(cells)
        left = {
            self._folder(cell): cell
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
        except FfnbenchError:  # a limit of how many may be submitted
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
        """With a note of the machines, where there are several, as for a plan that a
        feature adds.
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

    def _folder(self, cell: Plan) -> Path:
        """Of a cell, whatever its budget is, and who asked for it."""
        protocol = replace(cell.protocol, budget_s=None, bound=False, looks=1)
        text = jsonable.json_text(
            jsonable.encode(replace(cell, protocol=protocol, command="", notes=()))
        )
        return self.folder / hashlib.sha256(text.encode()).hexdigest()[:16]

    def _take_up(self, left: dict[Path, Plan]) -> None:
        """The jobs of an earlier process that live, or have a result that is no
        error.
        """
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
        """Submit, wait, and take what is done, until nothing is left; how many were
        lost.
        """
        lost = 0
        todo = [folder for folder in left if folder not in self.jobs]
        self._tell(cells, len(left))
        while left:
            while todo and (self.cluster.on == SLURM or not self.jobs):
                folder = todo.pop(0)
                self.jobs[folder] = self.cluster.submit(folder, self._job(left[folder]))
            alive = self.cluster.alive(self.jobs)
            for folder, job in list(self.jobs.items()):
                report = self._gathered(
                    folder, job, left[folder], alive=job.job_id in alive
                )
                if report is not None:
                    self.parts.append(report)
                    lost += any(
                        failure.kind is FailureKind.LOST for failure in report.failures
                    )
                    del left[folder], self.jobs[folder]
            self._tell(cells, len(left))
            if self.jobs:
                time.sleep(JOB_POLL_S[self.cluster.on])
        return lost

    def _job(self, cell: Plan) -> CellJob:
        if cell.protocol.budget_s is not None:
            cell = replace(
                cell, protocol=replace(cell.protocol, budget_s=self.cluster.share_s)
            )
        asked = report_text(new_report(cell, self.prepared.costs_of(cell)))
        return CellJob(asked, os.environ.get(GPUS), self.measure_in_job)

    def _gathered(
        self, folder: Path, job: Any, cell: Plan, *, alive: bool
    ) -> ShownReport | None:
        """What a job has measured, or that it is lost; None while it may still come."""
        if job.paths.result_pickle.exists():
            try:
                report = _report(self.cluster.job(folder, job.job_id).result())
            except Exception as problem:
                # what the job raised, with submitit's text around it
                return self._lost(cell, _last_of(str(problem)))
            why = self._other_machine(report)
            if not why:
                return as_shown(report)
            shutil.rmtree(folder, ignore_errors=True)  # --resume measures it again
            return self._lost(cell, why)
        if alive:
            self.gone.pop(folder, None)
            return None
        if (
            time.monotonic() - self.gone.setdefault(folder, time.monotonic())
            < GONE_S[self.cluster.on]
        ):
            return None
        return self._lost(cell, _last_of(job.stderr() or job.stdout() or ""))

    def _lost(self, cell: Plan, why: str) -> ShownReport:
        failures = tuple(
            Failure(case=case.label, kind=FailureKind.LOST, message=why)
            for case in cell.cases
        )
        return replace(
            new_report(cell, self.prepared.costs_of(cell)), failures=failures
        )

    def _other_machine(self, report: Report) -> str:
        """Why a report can't stand beside the others: no row, curve or crossing is of
        two kinds of machine. Empty where it can; what a feature adds (losses) is
        compared from group to group, whatever machine it is from.
        """
        if report.environment is None or added_kind(report.plan.kind):
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

    def _tell(self, cells: int, left: int) -> None:
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
    """Whether a result stands there that is no error, and no run that was stopped by
    its budget.
    """
    try:
        if not job.paths.result_pickle.exists() or job.exception() is not None:
            return False
        return not _report(job.result()).stopped
    except Exception:  # half a file, or one of another Python
        return False


def _last_of(log: str) -> str:
    """The line of a log that says most: what SLURM did to the job, or the last of a
    traceback.
    """
    lines = [
        line
        for line in log.splitlines()
        if line[:1].strip() and not line.startswith(SAYS_LITTLE)
    ]
    by_slurm = [line for line in lines if "***" in line]
    return [NOTHING, *lines, *by_slurm][-1]
