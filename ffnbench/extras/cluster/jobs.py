"""Cells of a sweep as jobs of submitit: on SLURM, or here, one after another in processes that outlive this one.

All that there is of a job stands in its folder FILE.json.jobs/NAME, in submitit's own files: this process may end at
any moment, and the same command with --resume takes what is there, waits for jobs that live, and submits the rest. A
job is done when its result stands there; what its state is, is not asked, for without accounting SLURM does not know.
Those files are pickles, and could run anything: a folder is taken up only where this user's own run has made it.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import secrets
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from io import StringIO
from pathlib import Path
from typing import Any

from ffnbench.api.measuring import Measure, measured_once, refuse_short
from ffnbench.api.preparing import Prepared, new_report, refuse_at_once
from ffnbench.api.sweeping import Sweep
from ffnbench.common import jsonable
from ffnbench.common.errors import FfnbenchError, termination_as_interruption
from ffnbench.common.files import is_own, locked, own_folder
from ffnbench.common.names import hint_for
from ffnbench.common.streams import say
from ffnbench.common.units import counted
from ffnbench.extras.cluster import LOCAL, SLURM
from ffnbench.extras.cluster.machines import FilesBeside, by_machine
from ffnbench.following import UNFOLLOWED, Following
from ffnbench.plan import Plan
from ffnbench.planning.effort import LEAST_BUDGET_S
from ffnbench.report.files.store import report_text
from ffnbench.report.output import Destination
from ffnbench.report.shown_report import ShownReport, as_shown
from ffnbench.result import Failure, FailureKind, Progress, Report
from ffnbench.run.world import World
from ffnbench.stats.cells import cells_of, complete_cells, is_part

POLL_S = {LOCAL: 0.2, SLURM: 5.0}
GONE_S = {LOCAL: 0.0, SLURM: 15.0}  # a result may come so long after its job has ended, where folders are shared
UNLIMITED_MIN, UNKNOWN_MIN, STARTS_MIN = 100_000, 60, 5  # of a job: here; without a budget; beside twice its budget
OF_EXECUTOR = ("max_num_timeout", "python")  # what submitit takes elsewhere than its other fields
NOTHING = "its job ended without a result"
SAYS_LITTLE = ("hint:", "---", "You can", "srun: error:")  # lines below the one that tells what has gone wrong
LONGEST = 400  # characters of submitit's text that stand in the line of an error
HINTS = {  # by what submitit or sbatch says
    "slurm cluster": "--on local runs them here",
    "configuration source": "--on local runs them here",
    "partition": "`sinfo` shows the partitions",
    "": "--slurm takes the fields of submitit's SlurmExecutor, as in partition=gpu,gpus_per_node=1,time=30",
}
EXECUTOR, GPUS = "SUBMITIT_EXECUTOR", "CUDA_VISIBLE_DEVICES"
# an interpreter that submitit starts imports nothing from the current folder; what a job starts is left alone
SAFE_PATH, OF_SUBMITIT = "PYTHONSAFEPATH", "submitit"


@dataclass(frozen=True, slots=True)
class CellJob:
    """What a job does: it measures a cell. `asked` is a report without samples, and what comes back is one with them,
    both as JSON. `gpus` are those that the submitting process sees, which submitit hides from jobs that run here.
    """

    asked: str
    gpus: str | None
    checkpoints: str
    measure: Measure

    def __call__(self) -> str:
        from ffnbench.run.world import this_machine

        here = os.environ.get(EXECUTOR) == LOCAL
        if here:
            os.environ.pop(GPUS, None)
            os.environ.update({} if self.gpus is None else {GPUS: self.gpus})
        if os.environ.get(SAFE_PATH) == OF_SUBMITIT:
            del os.environ[SAFE_PATH]
        asked = _report(self.asked)
        world = replace(this_machine(wait=True), began=None)  # a job waits until no other run measures there
        following = Following(folder=Path(self.checkpoints))
        found = self.measure(Prepared(plan=asked.plan, costs=asked.costs), world, following)
        while found.interrupted and not here:  # SLURM either ends this process now, or has submitit begin anew
            signal.pause()
        if found.interrupted:
            raise SystemExit("ended by a signal")
        return report_text(found)

    def checkpoint(self) -> Any:
        """What is begun anew after a preemption: all of it, for half of two machines is no cell."""
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self)


def _report(text: str) -> Report:
    found: Report = jsonable.decode(Report, jsonable.parse(text.encode()))
    return found


def measure(
    prepared: Prepared,
    world: World,
    destination: Destination,
    measure_cell: Measure = measured_once,
    *,
    on: str,
    slurm: tuple[str, ...],
) -> ShownReport:
    """Measure each cell of what was prepared as a job; raises FfnbenchError for what can be no job, or is refused."""
    plan, beside = prepared.plan, destination.saved
    if beside is None:
        told = f"--on {on} keeps its jobs beside the file of -o that holds the run, and none is named"
        raise FfnbenchError(told, "add -o sweep.json")
    folder = beside.absolute().with_name(f"{beside.name}.jobs")
    following = replace(destination.following, journal=UNFOLLOWED.journal)  # jobs keep what they have found
    if on == LOCAL:
        refuse_at_once(plan, world)
    refuse_short(plan)
    if plan.protocol.runs > 1:
        raise FfnbenchError("--runs is of one machine, and jobs may have several", "leave --runs out")
    cluster = Cluster(on, fields_of(slurm), plan)
    before = os.path.lexists(folder)
    if before and not _is_of_this_user(folder):
        told = f"{str(folder)!r} is where jobs would stand, and no run of yours has made it"
        raise FfnbenchError(told, "move it away, or give -o another file; what others have made is not taken up")
    if before and not destination.resumes:
        hint = f"add --resume: it takes them up; or forget them: rm -r {shlex.quote(str(folder))}"
        raise FfnbenchError(f"{str(folder)!r} holds jobs of a run that has not ended", hint)
    if not before:
        _make(folder)
    with _held(folder):
        cluster.executor(folder)  # what it does not know is told before anything is submitted
        files = FilesBeside(beside)
        sweep = SweepOfJobs(
            prepared,
            world,
            following,
            None,
            following.resumed(),
            cluster=cluster,
            folder=folder,
            files=files,
            measure_cell=measure_cell,
        )
        found = sweep.measure()
    if not found.interrupted and not found.stopped:
        destination.when_written(partial(shutil.rmtree, folder, ignore_errors=True))
    return found


def _token_of(folder: Path) -> Path:
    """Where this user's own folder keeps the token of a folder of jobs: the name of a file that stands in it."""
    return own_folder() / f"jobs-{hashlib.sha256(os.fsencode(folder)).hexdigest()}"


def _make(folder: Path) -> None:
    """Make a folder of jobs, with a token that nobody else knows; raises FfnbenchError where that can't be."""
    token = secrets.token_hex(16)
    try:
        _token_of(folder).write_text(token, encoding="ascii")
        folder.mkdir(mode=0o700)
        (folder / token).touch()
    except (OSError, RuntimeError) as problem:
        hint = "XDG_STATE_HOME names a folder of your own, in which ffnbench keeps whose jobs they are"
        raise FfnbenchError(f"cannot make {str(folder)!r}: {problem}", hint) from problem


def _is_of_this_user(folder: Path) -> bool:
    """Whether a run of this user's has made this folder of jobs. Nothing in it is read for that."""
    try:
        token = _token_of(folder).read_text(encoding="ascii")
        return is_own(folder) and (folder / token).is_file()
    except (OSError, RuntimeError):
        return False


@contextmanager
def _held(folder: Path) -> Iterator[None]:
    """Nobody else goes on with these jobs meanwhile. A folder without any does not stay behind."""
    with (folder / "lock").open("wb") as file:
        if not locked(file):
            raise FfnbenchError(f"--resume: a run goes on with {str(folder)!r} now", "wait until it ends")
        try:
            yield
        finally:
            if not any(path.is_dir() for path in folder.glob("*")):
                shutil.rmtree(folder, ignore_errors=True)


def fields_of(texts: tuple[str, ...]) -> dict[str, Any]:
    """`partition=gpu,gpus_per_node=1` as submitit takes it: a value is JSON, or a text. Raises FfnbenchError."""
    found: dict[str, Any] = {}
    for part in (part for text in texts for part in re.split(r",(?=\w+=)", text)):
        name, equals, value = part.partition("=")
        if not (name and equals):
            raise FfnbenchError(
                f"--slurm {part!r} is no KEY=VALUE", "for example --slurm partition=gpu,gpus_per_node=1"
            )
        try:
            found[name] = json.loads(value)
        except ValueError:
            found[name] = value
    return found


@dataclass
class Cluster:
    """Where jobs run: what submits them, which of them live, and what ends them."""

    on: str
    fields: dict[str, Any]
    plan: Plan

    def executor(self, folder: Path) -> Any:
        """Submitit's, for a job in this folder; raises FfnbenchError with submitit's own text."""
        try:
            import submitit
        except ImportError:
            raise FfnbenchError(
                "submitit is not installed: it submits jobs", "pip install 'ffnbench[cluster]'"
            ) from None
        if self.on == LOCAL:
            made = submitit.LocalExecutor(folder)
            made.update_parameters(timeout_min=UNLIMITED_MIN)
            return made
        try:
            given = {name: value for name, value in self.fields.items() if name in OF_EXECUTOR}
            made = submitit.SlurmExecutor(folder, **given)
            made.update_parameters(**self._asked)
            return made
        except Exception as problem:
            raise self._refused(problem) from problem

    def _refused(self, problem: Exception) -> FfnbenchError:
        """What submitit says, all of it: where that is too long for one line, it stands above its first one."""
        lines = str(problem).strip().splitlines()
        if len(told := " ".join(" ".join(lines).split())) > LONGEST:
            for line in lines:
                say(line)
            told = lines[0]
        known = re.findall(r"- (\w+) \(default", str(problem))
        unknown = next((name for name in self.fields if name not in (*known, *OF_EXECUTOR)), "")
        where = next(hint for words, hint in HINTS.items() if words in told)
        return FfnbenchError(f"submitit: {told}", hint_for(unknown, known, where))

    @cached_property
    def _asked(self) -> dict[str, Any]:
        """Fields of a job on SLURM: an exclusive node and the CPUs of the plan's threads, where nothing else is said.
        A step has the CPUs that it asks for itself, and as many tasks as a whole node has room for, unless it says.
        """
        budget_s = self.plan.protocol.budget_s
        minutes = UNKNOWN_MIN if budget_s is None else STARTS_MIN + math.ceil(2 * self.share_s / 60)
        asked: dict[str, Any] = {
            "job_name": "ffnbench", "exclusive": True, "time": minutes, "ntasks_per_node": 1,
            "cpus_per_task": max(case.workload.threads for case in self.plan.cases),
        }  # fmt: skip
        asked |= {name: value for name, value in self.fields.items() if name not in OF_EXECUTOR}
        asked["exclusive"] = asked["exclusive"] or None  # false would be typed as it is
        if (cpus := asked["cpus_per_task"]) is not None:
            asked.setdefault("srun_args", [f"--cpus-per-task={cpus}"])
        return asked

    @cached_property
    def share_s(self) -> float:
        """Seconds of the budget for each cell: they are those of machines, as if it were one."""
        return max(LEAST_BUDGET_S, (self.plan.protocol.budget_s or 0.0) / len(cells_of(self.plan)))

    def submit(self, folder: Path, job: CellJob) -> Any:
        """A job in this folder, which outlives this process and a Ctrl-C in its terminal."""
        from submitit.core.utils import environment_variables

        shutil.rmtree(folder, ignore_errors=True)
        executor, safe = self.executor(folder), {SAFE_PATH: os.environ.get(SAFE_PATH) or OF_SUBMITIT}
        kept = [(one, signal.signal(one, signal.SIG_IGN)) for one in (signal.SIGINT, signal.SIGHUP)]
        try:
            with redirect_stderr(StringIO()), environment_variables(**safe):  # it tells what it raises
                return self.job(folder, executor.submit(job).job_id)
        except Exception as problem:
            shutil.rmtree(folder, ignore_errors=True)
            raise self._refused(problem) from problem
        finally:
            for one, handler in kept:
                signal.signal(one, handler)

    def job(self, folder: Path, number: str) -> Any:
        """A job that was submitted, maybe by another process."""
        import submitit

        return (submitit.SlurmJob if self.on == SLURM else submitit.LocalJob)(folder=folder, job_id=number)

    def known(self, folder: Path) -> Any:
        """The job that was submitted in this folder, or None."""
        found = next(folder.glob("*_submitted.pkl"), None)
        return found and self.job(folder, found.name.partition("_")[0])

    def alive(self, jobs: dict[Path, Any]) -> set[str]:
        """The numbers of those that wait or run; all of them where SLURM does not answer."""
        numbers = {job.job_id for job in jobs.values()}
        if self.on == LOCAL or not jobs:
            return {job.job_id for folder, job in jobs.items() if _runs(job.job_id, folder)}
        told = subprocess.run(["squeue", "-h", "-o", "%A", "--me"], capture_output=True, text=True, check=False)
        return numbers & {*told.stdout.split()} if told.returncode == 0 else numbers


def _runs(number: str, folder: Path) -> bool:
    """Whether a process of that number has this folder as an argument: a number may be another's by now."""
    try:
        return os.fsencode(folder) in Path(f"/proc/{number}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False


@dataclass(slots=True)
class SweepOfJobs(Sweep):
    """A sweep whose cells are jobs. Each is visited once: nobody can say when machines have time left."""

    cluster: Cluster = field(kw_only=True)
    folder: Path = field(kw_only=True)
    files: FilesBeside = field(kw_only=True)
    measure_cell: Measure = field(kw_only=True)
    jobs: dict[Path, Any] = field(default_factory=dict)  # submitted, and not gathered yet, by their folders
    gone: dict[Path, float] = field(default_factory=dict)  # since when a job is neither alive nor done

    def measure(self) -> ShownReport:
        """Submit what is not known yet, and gather all of it; gives what the first kind of machine has measured."""
        cells, interrupted, lost = cells_of(self.prepared.plan), False, 0
        known = self.known(cells)
        left = {self._folder(cell): cell for cell in cells if cell.reference not in known}
        if self.before:
            self.looks = self.before.plan.protocol.looks
        try:
            progress = self.following.progress
            with termination_as_interruption():
                progress(Progress(done=0.0, text="looking for jobs"))
                self._take_up(left)
                lost = self._gather(left, lambda: progress(self._progress(len(cells), len(left))))
        except FfnbenchError:  # a limit of how many may be submitted
            self._tell_how_to_go_on()
            raise
        except KeyboardInterrupt:
            self._tell_how_to_go_on()
            if not self.parts:
                raise
            interrupted = True
        stopped = next((part.stopped for part in self.parts if part.stopped), "")
        if lost:
            told = f"{lost} of {counted(len(cells), 'group')} were lost, and what they wrote is in {self.folder}"
            stopped = f"{told}: --resume measures them again"
        found = self.files.write(self._by_machine())
        return replace(found, interrupted=interrupted, stopped=stopped)

    def _by_machine(self) -> list[ShownReport]:
        plan = self.prepared.plan
        found = by_machine(self.parts, replace(plan, protocol=replace(plan.protocol, looks=self.looks)))
        return [replace(one, costs=self.prepared.costs_of(one.plan)) for one in found]

    def known(self, cells: Sequence[Plan]) -> set[str]:
        """The cases that were measured before, on any machine."""
        known = Sweep.known(self, cells)
        for other in self.files.take_up(self.before) if self.before else ():
            if is_part(other, self.prepared.plan):
                part = complete_cells(other, [cell for cell in cells if cell.reference not in known])
                self.parts.append(as_shown(part))
                known |= {case.label for case in part.plan.cases}
        return known

    def _folder(self, cell: Plan) -> Path:
        """Of a cell, whatever its budget is, and who asked for it."""
        protocol = replace(cell.protocol, budget_s=None, bound=False, looks=1)
        text = jsonable.text_of(jsonable.encode(replace(cell, protocol=protocol, command="", shard="", notes=())))
        return self.folder / hashlib.sha256(text.encode()).hexdigest()[:16]

    def _take_up(self, left: dict[Path, Plan]) -> None:
        """The jobs of an earlier process that live, or have a result that is no error."""
        found = {folder: job for folder in left if (job := self.cluster.known(folder))}
        alive = self.cluster.alive(found)
        self.jobs = {
            folder: job for folder, job in found.items()
            if _succeeded(job) or (job.job_id in alive and not job.paths.result_pickle.exists())
        }  # fmt: skip

    def _gather(self, left: dict[Path, Plan], tell: Callable[[], None]) -> int:
        """Submit, wait, and take what is done, until nothing is left; how many were lost."""
        lost = 0
        todo = [folder for folder in left if folder not in self.jobs]
        while left:
            while todo and (self.cluster.on == SLURM or not self.jobs):
                folder = todo.pop(0)
                self.jobs[folder] = self.cluster.submit(folder, self._job(left[folder]))
            tell()
            alive = self.cluster.alive(self.jobs)
            for folder, job in list(self.jobs.items()):
                found = self._found(folder, job, left[folder], alive=job.job_id in alive)
                if found is not None:
                    self.parts.append(found)
                    lost += any(one.kind is FailureKind.LOST for one in found.failures)
                    del left[folder], self.jobs[folder]
            if self.jobs:
                time.sleep(POLL_S[self.cluster.on])
        tell()
        return lost

    def _job(self, cell: Plan) -> CellJob:
        if cell.protocol.budget_s is not None:
            cell = replace(cell, protocol=replace(cell.protocol, budget_s=self.cluster.share_s))
        asked = report_text(new_report(cell, self.prepared.costs_of(cell)))
        return CellJob(asked, os.environ.get(GPUS), str(self.folder / "checkpoints"), self.measure_cell)

    def _found(self, folder: Path, job: Any, cell: Plan, *, alive: bool) -> ShownReport | None:
        """What a job has found, or that it is lost; None while it may still come."""
        if job.paths.result_pickle.exists():
            try:
                return as_shown(_report(self.cluster.job(folder, job.job_id).result()))
            except Exception as problem:  # what the job raised, with submitit's text around it
                why = _last_of(str(problem))
        elif alive:
            self.gone.pop(folder, None)
            return None
        elif time.monotonic() - self.gone.setdefault(folder, time.monotonic()) < GONE_S[self.cluster.on]:
            return None
        else:
            why = _last_of(job.stderr() or job.stdout() or "")
        failures = tuple(Failure(case=case.label, kind=FailureKind.LOST, message=why) for case in cell.cases)
        return replace(new_report(cell, self.prepared.costs_of(cell)), failures=failures)

    def _progress(self, cells: int, left: int) -> Progress:
        done = cells - left
        return Progress(
            done=done / cells, text=f"{counted(len(self.jobs), 'job')} submitted, groups done {done}/{cells}"
        )

    def _tell_how_to_go_on(self) -> None:
        numbers = " ".join(job.job_id for job in self.jobs.values())
        if numbers:
            end, more = ("scancel", "") if self.cluster.on == SLURM else ("kill", ", and then the rest")
            say(f"jobs go on: the same command with --resume takes them up{more}; {end} {numbers} ends them")


def _succeeded(job: Any) -> bool:
    """Whether a result stands there that is no error, and no run that was stopped by its budget."""
    try:
        done = job.paths.result_pickle.exists() and job.exception() is None
        return bool(done and not _report(job.result()).stopped)
    except Exception:  # half a file, or one of another Python
        return False


def _last_of(log: str) -> str:
    """The line of a log that says most: what SLURM did to the job, or the last of a traceback."""
    lines = [line for line in log.splitlines() if line[:1].strip() and not line.startswith(SAYS_LITTLE)]
    return next((line for line in reversed(lines) if "***" in line), lines[-1] if lines else NOTHING)
