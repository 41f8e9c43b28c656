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

UNLIMITED_MIN = 100_000  # of a job that runs here
UNKNOWN_MIN = 60  # of one on SLURM without a budget
STARTS_MIN = 5  # of one on SLURM, beside twice its budget
# what submitit takes elsewhere than its other fields
OF_EXECUTOR = ("max_num_timeout", "python")
# characters of submitit's text that stand in the line of an error
LONGEST_SUBMIT_ERROR = 400
HINTS = {  # by what submitit or sbatch says
    "slurm cluster": "--on local runs them here",
    "configuration source": "--on local runs them here",
    "partition": "`sinfo` shows the partitions",
}
OTHER_HINT = "--slurm takes the fields of submitit's SlurmExecutor, as in partition=gpu,gpus_per_node=1,time=30"
# an interpreter that submitit starts imports nothing from the current folder; what a
# job starts is left alone
SAFE_PATH, OF_SUBMITIT = "PYTHONSAFEPATH", "submitit"


def fields_of(texts: tuple[str, ...]) -> dict[str, Any]:
    """`partition=gpu,gpus_per_node=1` as submitit takes it: a value is JSON, or a text.
    Raises FfnbenchError.
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
    """What submits jobs, and which of them live. `fields` are of submitit's
    SlurmExecutor.
    """

    on: str
    fields: dict[str, Any]
    plan: Plan

    def executor(self, folder: Path) -> Any:
        """Submitit's, for a job in this folder; raises FfnbenchError with submitit's
        own text.
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
        """What submitit says, all of it: where that is too long for one line, it stands
        above its first one.
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
        return FfnbenchError(
            f"submitit: {text}",
            hint_for([*unknown, ""][0], parameters, [*hints, OTHER_HINT][0]),
        )

    @cached_property
    def _parameters(self) -> dict[str, Any]:
        """Of a job on SLURM: an exclusive node and the CPUs of the plan's threads,
        where nothing else is said.

        A step has the CPUs that it asks for itself, and as many tasks as a whole node
        has room for, unless it says.
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
        # false would be typed as it is
        parameters["exclusive"] = parameters["exclusive"] or None
        cpus = parameters["cpus_per_task"]
        if cpus is not None:
            parameters.setdefault("srun_args", [f"--cpus-per-task={cpus}"])
        return parameters

    @cached_property
    def share_s(self) -> float:
        """Seconds of the budget for each cell: they are those of machines, as if it
        were one.
        """
        return max(
            LEAST_BUDGET_S,
            (self.plan.protocol.budget_s or 0.0) / len(cells_of_plan(self.plan)),
        )

    def submit(self, folder: Path, job: Any) -> Any:
        """A job in this folder, which outlives this process and a Ctrl-C in its
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
            # it tells what it raises
            with redirect_stderr(StringIO()), environment_variables(**safe):
                return self.job(folder, executor.submit(job).job_id)
        except Exception as problem:
            shutil.rmtree(folder, ignore_errors=True)
            raise self._refused(problem) from problem
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)

    def job(self, folder: Path, number: str) -> Any:
        """A job that was submitted, maybe by another process."""
        import submitit

        kind = submitit.SlurmJob if self.on == SLURM else submitit.LocalJob
        return kind(folder=folder, job_id=number)

    def submitted(self, folder: Path) -> Any:
        """The job that an earlier process has submitted in this folder, or None."""
        for file in folder.glob("*_submitted.pkl"):
            return self.job(folder, file.name.partition("_")[0])
        return None

    def alive(self, jobs: dict[Path, Any]) -> set[str]:
        """The numbers of those that wait or run; all of them where SLURM does not
        answer.
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
    """Whether a process of that number has this folder as an argument: a number may be
    another's by now.
    """
    try:
        return os.fsencode(folder) in Path(
            f"/proc/{number}/cmdline"
        ).read_bytes().split(b"\0")
    except OSError:
        return False
