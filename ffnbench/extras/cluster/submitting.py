"""Where jobs run, by submitit: on SLURM, or here in processes that outlive this one."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import signal
import subprocess
from contextlib import redirect_stderr
from dataclasses import dataclass
from functools import cached_property
from io import StringIO
from pathlib import Path
from typing import Any

from ffnbench.common.errors import FfnbenchError
from ffnbench.common.names import hint_for
from ffnbench.common.streams import say
from ffnbench.extras.cluster import LOCAL, SLURM
from ffnbench.plan import Plan
from ffnbench.planning.effort import LEAST_BUDGET_S
from ffnbench.stats.cells import cells_of_plan

# limits of the time of a job, in minutes
UNLIMITED_MIN = 100_000  # of a job that runs here
UNKNOWN_MIN = 60  # of a job on SLURM without a budget
STARTS_MIN = 5  # of a job on SLURM, in addition to twice its budget
# fields that submitit takes as arguments of its SlurmExecutor, unlike all others
OF_EXECUTOR = ("max_num_timeout", "python")
# characters of a text of submitit in the line of an error; a longer one is shown above
LONGEST_SUBMIT_ERROR = 400
HINTS = {  # by words in the text of submitit or sbatch
    "slurm cluster": "--on local runs them here",
    "configuration source": "--on local runs them here",
    "partition": "`sinfo` shows the partitions",
}
OTHER_HINT = "--slurm takes the fields of submitit's SlurmExecutor, as in partition=gpu,gpus_per_node=1,time=30"
# with this variable, an interpreter that submitit starts imports nothing from the
# current folder; processes that a job starts do not get it
SAFE_PATH, OF_SUBMITIT = "PYTHONSAFEPATH", "submitit"


def fields_of(texts: tuple[str, ...]) -> dict[str, Any]:
    """The fields of texts such as `partition=gpu,gpus_per_node=1`: a value is read as
    JSON, or else is a text. Raises FfnbenchError for what is no KEY=VALUE.
    """
    fields: dict[str, Any] = {}
    for text in texts:
        for part in re.split(r",(?=\w+=)", text):
            name, equals, value = part.partition("=")
            if not name or not equals:
                raise FfnbenchError(
                    f"--slurm {part!r} is no KEY=VALUE",
                    "for example --slurm partition=gpu,gpus_per_node=1",
                )
            try:
                fields[name] = json.loads(value)
            except ValueError:
                fields[name] = value
    return fields


@dataclass
class Cluster:
    """Submits jobs, and knows which of them live. `on` is SLURM or LOCAL, and `fields`
    are those of submitit's SlurmExecutor.
    """

    on: str
    fields: dict[str, Any]
    plan: Plan

    def executor(self, folder: Path) -> Any:
        """The executor of submitit for a job in this folder; raises FfnbenchError with
        the text of submitit where it refuses the fields.
        """
        try:
            import submitit
        except ImportError:
            raise FfnbenchError(
                "submitit is not installed: it submits jobs",
                "pip install 'ffnbench[cluster]'",
            ) from None
        if self.on == LOCAL:
            executor = submitit.LocalExecutor(folder)
            executor.update_parameters(timeout_min=UNLIMITED_MIN)
            return executor
        try:
            of_executor = {
                name: value
                for name, value in self.fields.items()
                if name in OF_EXECUTOR
            }
            executor = submitit.SlurmExecutor(folder, **of_executor)
            executor.update_parameters(**self._parameters)
            return executor
        except Exception as problem:
            raise self._refused(problem) from problem

    def _refused(self, problem: Exception) -> FfnbenchError:
        """The error for what submitit says. A text that is too long for one line is
        written to stderr, and the error has its first line.
        """
        lines = str(problem).strip().splitlines()
        text = " ".join(" ".join(lines).split())
        if len(text) > LONGEST_SUBMIT_ERROR:
            for line in lines:
                say(line)
            text = lines[0]
        parameters = re.findall(r"- (\w+) \(default", str(problem))
        unknown = [
            name for name in self.fields if name not in (*parameters, *OF_EXECUTOR)
        ]
        hints = [hint for words, hint in HINTS.items() if words in text]
        first_unknown = unknown[0] if unknown else ""
        hint = hints[0] if hints else OTHER_HINT
        return FfnbenchError(
            f"submitit: {text}", hint_for(first_unknown, parameters, hint)
        )

    @cached_property
    def _parameters(self) -> dict[str, Any]:
        """The parameters of a job on SLURM: an exclusive node, and as many CPUs as the
        plan has threads, unless the fields say otherwise.

        The number of tasks and of CPUs has to be stated for the step too: by itself it
        has as many tasks as fit into the whole node, and does not take over the CPUs of
        the job.
        """
        minutes = UNKNOWN_MIN
        if self.plan.protocol.budget_s is not None:
            minutes = STARTS_MIN + math.ceil(2 * self.share_s / 60)
        parameters: dict[str, Any] = {
            "job_name": "ffnbench",
            "exclusive": True,
            "time": minutes,
            "ntasks_per_node": 1,
            "cpus_per_task": max(case.workload.threads for case in self.plan.cases),
        }
        parameters |= {
            name: value
            for name, value in self.fields.items()
            if name not in OF_EXECUTOR
        }
        # submitit would hand False on as a text
        parameters["exclusive"] = parameters["exclusive"] or None
        cpus = parameters["cpus_per_task"]
        if cpus is not None:
            parameters.setdefault("srun_args", [f"--cpus-per-task={cpus}"])
        return parameters

    @cached_property
    def share_s(self) -> float:
        """Seconds of the budget for each cell. A budget is time of machines: all cells
        together have it, as if one machine measured them.
        """
        return max(
            LEAST_BUDGET_S,
            (self.plan.protocol.budget_s or 0.0) / len(cells_of_plan(self.plan)),
        )

    def submit(self, folder: Path, job: Any) -> Any:
        """Submit a job in this folder; it outlives this process, and a Ctrl-C in its
        terminal.
        """
        from submitit.core.utils import environment_variables

        shutil.rmtree(folder, ignore_errors=True)
        executor = self.executor(folder)
        safe = {SAFE_PATH: os.environ.get(SAFE_PATH) or OF_SUBMITIT}
        handlers = {
            number: signal.signal(number, signal.SIG_IGN)
            for number in (signal.SIGINT, signal.SIGHUP)
        }
        try:
            # what submitit writes to stderr, its exception says too
            with redirect_stderr(StringIO()), environment_variables(**safe):
                return self.job(folder, executor.submit(job).job_id)
        except Exception as problem:
            shutil.rmtree(folder, ignore_errors=True)
            raise self._refused(problem) from problem
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)

    def job(self, folder: Path, number: str) -> Any:
        """The job of this number, which was submitted in this folder, maybe by another
        process.
        """
        import submitit

        kind = submitit.SlurmJob if self.on == SLURM else submitit.LocalJob
        return kind(folder=folder, job_id=number)

    def submitted(self, folder: Path) -> Any:
        """The job that an earlier process has submitted in this folder, or None."""
        for file in folder.glob("*_submitted.pkl"):
            return self.job(folder, file.name.partition("_")[0])
        return None

    def alive(self, jobs: dict[Path, Any]) -> set[str]:
        """The numbers of the jobs that wait or run; those of all jobs where SLURM does
        not answer.
        """
        if self.on == LOCAL or not jobs:
            return {
                job.job_id
                for folder, job in jobs.items()
                if _runs_here(job.job_id, folder)
            }
        numbers = {job.job_id for job in jobs.values()}
        queue = subprocess.run(
            ["squeue", "-h", "-o", "%A", "--me"],
            capture_output=True,
            text=True,
            check=False,
        )
        if queue.returncode:
            return numbers
        return numbers & {*queue.stdout.split()}


def _runs_here(number: str, folder: Path) -> bool:
    """Whether the process of this number is a job of this folder, which then is one of
    its arguments: the number may belong to another process by now.
    """
    try:
        return os.fsencode(folder) in Path(
            f"/proc/{number}/cmdline"
        ).read_bytes().split(b"\0")
    except OSError:
        return False
