"""A budget that was typed is a bound, on machines of any speed; the promise is 10 % of
it, or 3 s.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from fake_machine import FakeLaunch, FakeWorker, KnownProber, planned, prepare, run
from simulated import ENVIRONMENT

from ffnbench.api import measuring
from ffnbench.api.preparing import Prepared
from ffnbench.common.errors import FfnbenchError, Unfinished
from ffnbench.plan.plan import Plan
from ffnbench.record.messages import Greeting
from ffnbench.record.result import FailureKind, Run, Verdict
from ffnbench.run import worker
from ffnbench.run.worker import WorkerLost
from ffnbench.run.world import World
from ffnbench.stats.verdict import summarise

# seconds on a quiet machine, as they were seen for d_model 768 on two CPUs
START_S, CHECK_S, OPEN_S, SAMPLE_S, AGAIN_S = 1.5, 0.8, 0.1, 0.06, 0.08
QUIET, DISTURBED = 0.003, 0.7


class Machine(FakeLaunch):
    """Processes that take `slower` times as long as on a quiet machine, by a clock that
    they turn themselves; a request that lasts longer than it may is lost. `stuck` says
    which ones never end.
    """

    def __init__(
        self,
        slower: float = 1.0,
        stuck: Callable[[str, float], bool] = lambda *_: False,
    ) -> None:
        super().__init__(
            lambda label, worker, number: (
                SAMPLE_S * slower / 3 * (1 + 1e-4 * (len(self.ended) % 7))
            )
        )
        self.slower, self.stuck, self.clock_s = slower, stuck, 0.0
        self.waited = QUIET if slower < 2 else DISTURBED
        self.ended: list[
            tuple[str, float]
        ] = []  # what was asked, and when that was over

    def __call__(self, arm: object = None) -> Starter:
        return Starter(self, 0)

    def now(self) -> float:
        return self.clock_s

    def lasts(self, what: str, seconds: float, timeout_s: float) -> bool:
        """Whether there was time for it."""
        seconds *= self.slower
        late = seconds > timeout_s or self.stuck(what, self.clock_s)
        self.clock_s += timeout_s if late else seconds
        self.ended.append((what, self.clock_s))
        return not late

    def run(self, plan: Plan, **how: Any) -> Run:
        """The budget is a bound where nothing else is said."""
        how = {"bound_s": plan.protocol.budget_s, **how}
        return run(
            plan, launch=self, now=self.now, describe=lambda *_: ENVIRONMENT, **how
        )


class Starter(FakeWorker):
    """A process that can be forked; a fork knows nothing of the others."""

    launch: Machine
    started = False

    def greeting(self, timeout_s: float = 300.0) -> Greeting:
        if not self.started and not self.launch.lasts("start", START_S / 2, timeout_s):
            self.ended = True
            raise Unfinished(
                f"a worker could not start: no answer within {timeout_s:g} s"
            )
        self.started = True
        return super().greeting()

    def fork(self, timeout_s: float) -> bool:
        self.rounds = {}
        return True

    def ask(self, job: str, timeout_s: float, /, **arguments: Any) -> Any:
        seconds = {"sample": SAMPLE_S, "check": AGAIN_S}.get(job, 0.001)
        if job == "open":
            seconds = OPEN_S if arguments["checked"] else CHECK_S
        if not self.launch.lasts(job, seconds, timeout_s):
            raise WorkerLost(FailureKind.TIMEOUT, f"no answer within {timeout_s:g} s")
        if job == "check":
            return {"error": 1e-7}
        return super().ask(job, timeout_s, **arguments)


def plan_of(budget: float | None, **options: Any) -> Plan:
    given = {
        "d_model": 64,
        "metrics": "latency",
        "threads": 1,
        "precision": 0.05,
        **options,
    }
    return planned(budget=budget, **given).with_device("cpu")


def latest(budget: float) -> float:
    """What the promise allows."""
    return budget + max(0.1 * budget, 3.0)


@pytest.mark.parametrize("budget", [5.0, 15.0, 25.0, 100.0])
@pytest.mark.parametrize("slower", [1, 2, 3, 5, 8, 13, 30, 100, 1000])
def test_a_run_ends_in_time_on_any_machine(slower: int, budget: float) -> None:
    machine = Machine(slower)
    done = machine.run(plan_of(budget))
    assert (done.failures, done.stopped, done.limit) == ((), "", "budget")
    workers = {sample.worker for sample in done.samples}
    assert len(workers) >= (
        3 if slower * 8 < budget else 1 if slower * 5 <= budget else 0
    )
    if len(workers) > 1:
        assert {one.case for one in done.samples if one.metric == "error"} == {
            "relu",
            "gelu",
            "swiglu",
        }
        assert machine.clock_s <= budget + 0.5
    verdicts = {comparison.verdict for comparison in summarise(done)[1]} - {
        Verdict.REFERENCE
    }
    assert verdicts <= (
        {Verdict.SAME, Verdict.UNCLEAR}
        if slower < 2
        else {Verdict.BUSY, Verdict.UNCLEAR}
    )
    assert machine.clock_s <= latest(budget)
    if slower == 1 and budget > 5:
        assert machine.clock_s >= 0.85 * budget  # and uses what there is


@pytest.mark.parametrize("do", ["start", "open", "sample", "check", "begin"])
@pytest.mark.parametrize("since", [0.0, 4.0, 12.0])
def test_what_hangs_ends_with_the_budget_and_nobody_is_blamed(
    do: str, since: float
) -> None:
    machine = Machine(stuck=lambda what, now: what == do and now >= since)
    done = machine.run(plan_of(15.0))
    assert (done.failures, done.warnings, done.limit) == ((), (), "budget")
    assert machine.clock_s <= latest(15.0)


@pytest.mark.parametrize("budget", [127.0 + step / 2 for step in range(12)])
def test_a_sample_that_is_longer_than_what_is_left_is_not_begun(budget: float) -> None:
    """One takes 1.8 s, and is taken again four times in the first round."""
    machine = Machine(30)
    machine.run(plan_of(budget))
    samples = [ended for do, ended in machine.ended if do == "sample"]
    assert max(samples) <= budget
    assert len(samples) > 3


def prepared(budget: float, **options: Any) -> Prepared:
    given = {
        "variants": "relu,gelu",
        "d_model": 64,
        "threads": 1,
        "device": "cpu",
        "metrics": "latency",
        **options,
    }
    return prepare(budget=budget, **given)


@pytest.fixture
def measured():
    """A plan measured by the whole of `measure_run`, on such a machine and by its
    clock.
    """

    def measure(machine: Machine, plan: Prepared):
        world = World(launch=machine, now=machine.now, describe=lambda *_: ENVIRONMENT)
        return measuring.measure_run(plan, world)

    return measure


@pytest.mark.parametrize(("slower", "budget"), [(1, 100.0), (3, 130.0), (8, 330.0)])
def test_the_groups_of_a_sweep_share_one_budget(
    measured, slower: int, budget: float
) -> None:
    machine = Machine(slower)
    found = measured(
        machine, prepared(budget, seq_len="32,64,128", d_model="64,128,256")
    )
    assert machine.clock_s <= latest(budget)
    assert found.stopped == ""
    assert {sample.case for sample in found.samples} == {
        case.label for case in found.plan.cases
    }


@pytest.mark.parametrize("since", [0, 2])
def test_a_run_that_ended_before_a_sample_shows_dashes_and_no_picture(
    measured, since: float
) -> None:
    """It has the columns of `compare`, not those of `cost`, and nothing is drawn, even
    though parameters are known.
    """
    machine = Machine(stuck=lambda what, now: now >= since)
    found = measured(machine, prepared(60.0, seq_len="1,2,4,8"))
    assert found.stopped
    assert not found.samples
    text = str(found)
    assert "latency" in text
    assert {row["latency_s"] for row in found.rows()} == {None}
    assert {row["peak_bytes"] for row in found.rows()} == {None}
    with pytest.raises(FfnbenchError, match="nothing to draw"):
        found.plot()


def test_starts_that_hang_cost_no_answer(measured) -> None:
    machine = Machine(stuck=lambda what, now: what == "start" and now > 20)
    found = measured(machine, prepared(60.0, seq_len="1,2,4,8,16,32,64,128,256"))
    assert machine.clock_s <= latest(60.0)
    assert (bool(found.samples), found.stopped) == (
        True,
        "the budget of 60 s was over before all was measured",
    )


def test_what_no_machine_can_keep_to_is_refused_before_anything_starts(
    on_fakes,
) -> None:
    many = [f"v{number}=relu@d_ff={8 * number + 8}" for number in range(40)]
    launch = FakeLaunch()
    code, _, err = on_fakes(
        "compare", *many, "--match", "none", "--budget", "5", launch=launch
    )
    assert (code, launch.workers) == (2, [])
    assert "measuring 40 rows in 1 group takes " in err
    hint = err.splitlines()[-1].removeprefix("hint: ").split(" ")
    assert on_fakes("compare", *many, "--match", "none", *hint)[0] == 0


@pytest.mark.parametrize(
    "flags", ["--dtype float23", "--precision 0.001", "--budget 1", "--seq-len 0", "--metrics foo", "--match bar",
              "--seed -1", "--workers 1", "--backend packed --dtype float23", "mine --threads 0"],
)  # fmt: skip
def test_a_mistake_in_flags_is_told_before_code_is_loaded(
    on_fakes, flags: str, monkeypatch
) -> None:
    def gone(*_: object) -> None:
        raise AssertionError("a process was started")

    monkeypatch.setattr(worker, "Worker", gone)

    class Loads(KnownProber):
        def describe(self, target: str) -> None:
            gone()

    code, _, err = on_fakes(
        "compare", "relu", "mine=mypkg.mlp:SwiGLU", flags, prober=Loads
    )
    assert (code, err.count("error:"), err.count("hint:")) == (2, 1, 1)
