"""Where workers come from: forks of real starters, and what becomes of those that
crash, hang or are left behind.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fake_machine import FakeLaunch, KnownProber, lost, run

from ffnbench.common import jsonable
from ffnbench.common.errors import Unfinished
from ffnbench.messages import (
    Begin,
    Done,
    Greeting,
    MeasureTimer,
    Open,
    TakeSample,
    WorkerRequest,
)
from ffnbench.plan import Arm, Plan
from ffnbench.planning.compare import plan_compare
from ffnbench.request import CompareRequest
from ffnbench.result import FailureKind
from ffnbench.run import runner
from ffnbench.run.worker_pool import WorkerGroup, WorkerPool
from ffnbench.run.worker_process import ForkedWorker, WorkerLost, WorkerProcess
from ffnbench.stats.stopping import STARTERS
from ffnbench.worker.loop import ALLOCATOR, KEEPS, SYSTEM

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="workers are forked on Linux"
)

MODULES = '''
import os, signal, time
from torch import nn


class Plain(nn.Module):
    """Tells process, address and sum of its weights."""

    def __init__(self, d_model, d_ff):
        super().__init__()
        self.up = nn.Linear(d_model, d_ff, bias=False)
        self.down = nn.Linear(d_ff, d_model, bias=False)
        at = self.down.weight.data_ptr()
        with open(__file__ + ".told", "a") as file:
            file.write(f"{os.getpid()} {at} {float(self.down.weight.detach().double().sum())!r}\\n")

    def forward(self, x):
        return self.down(self.up(x).relu())


class Exits(Plain):
    def forward(self, x):
        os._exit(7)


class Segfaults(Plain):
    def forward(self, x):
        os.kill(os.getpid(), signal.SIGSEGV)


class Hangs(Plain):
    def forward(self, x):
        time.sleep(1000)


class Large(Plain):
    """Takes 64 MiB in every call, more than glibc ever keeps by itself."""

    def forward(self, x):
        return super().forward(x) + 0 * x.new_ones(1 << 24).sum()
'''
NAMES = ("Plain", "Exits", "Segfaults", "Hangs", "Large")


@pytest.fixture(scope="module")
def modules(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("modules") / "mine.py"
    path.write_text(MODULES)
    return path


@pytest.fixture(scope="module")
def starter() -> Iterator[WorkerProcess]:
    with closing(WorkerProcess()) as session:
        yield session


def plan_of(path: Path, names: tuple[str, ...] = NAMES) -> Plan:
    variants = ",".join(f"{name}={path}:{name}" for name in names)
    request = CompareRequest(
        variants=variants, d_model=64, d_ff=128, seq_len=16, match="none", threads=1, device="cpu", metrics="latency",
        workers=3, rounds=4,
    )  # fmt: skip
    return plan_compare(request, KnownProber())


def opened(
    worker: WorkerProcess | ForkedWorker,
    path: Path,
    label: str = "Plain",
    block: str = "",
    timeout_s: float = 60.0,
) -> Any:
    """A worker that has a plan opens a case."""
    plan = jsonable.encode(plan_of(path))
    assert worker.ask(Begin(plan=plan, layout_seed=block), 60.0) == Done()
    return worker.ask(Open(label=label, calls=1), timeout_s)


def children(process: int) -> list[int]:
    return [
        int(pid)
        for pid in Path(f"/proc/{process}/task/{process}/children").read_text().split()
    ]


def alive(process: int) -> bool:
    try:
        return (
            Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
            != "Z"
        )
    except OSError:
        return False


def soon(holds: Callable[[], bool]) -> bool:
    """Whether it holds, after some seconds at most."""
    end = time.monotonic() + 10
    while not holds() and time.monotonic() < end:
        time.sleep(0.02)
    return holds()


def gone(*processes: int) -> bool:
    return soon(lambda: not any(map(alive, processes)))


def test_a_fork_answers_leaves_and_its_starter_forks_again(
    starter: WorkerProcess, modules: Path
) -> None:
    starter.greeting()
    seen = []
    for _ in range(2):
        fork = starter.fork(60.0)
        [child] = children(starter._process.pid)
        assert opened(fork, modules).calls == 1
        assert fork.ask(TakeSample(label="Plain", calls=2), 60.0).value > 0
        assert (
            int(
                (modules.parent / "mine.py.told").read_text().split("\n")[-2].split()[0]
            )
            == child
        )
        fork.close()
        assert gone(child)
        seen.append(child)
    assert len(set(seen)) == 2
    assert not starter.ended
    assert (
        starter.ask(MeasureTimer(), 60.0).empty_call_s > 0
    )  # it answers by itself again


@pytest.mark.parametrize(
    ("label", "cause"), [("Exits", "exit code 7"), ("Segfaults", "SIGSEGV")]
)
def test_a_child_that_dies_is_a_lost_worker_and_its_starter_goes_on(
    starter: WorkerProcess, modules: Path, label: str, cause: str
) -> None:
    fork = starter.fork(60.0)
    with pytest.raises(WorkerLost, match=cause) as caught:
        opened(fork, modules, label)
    assert caught.value.kind is FailureKind.CRASH
    fork.close()
    assert not starter.ended
    with closing(starter.fork(60.0)) as again:
        assert opened(again, modules).calls == 1


def test_a_child_that_hangs_is_ended_with_its_starter(modules: Path) -> None:
    starter = WorkerProcess()
    fork = starter.fork(60.0)
    pids = [starter._process.pid, *children(starter._process.pid)]
    assert len(pids) == 2
    assert opened(fork, modules).calls == 1
    with pytest.raises(WorkerLost, match=r"no answer within 0\.5 s") as caught:
        fork.ask(Open(label="Hangs", calls=1), 0.5)
    assert caught.value.kind is FailureKind.TIMEOUT
    assert starter.ended
    fork.close()
    assert gone(*pids)


needs_glibc = pytest.mark.skipif(
    sys.platform != "linux" or "glibc" not in os.confstr("CS_GNU_LIBC_VERSION"),
    reason="the switch is glibc's",
)


def faults_of(fork: ForkedWorker, modules: Path) -> int:
    """Page faults of two calls, once the heap has grown to what they take: the fewest
    of several turns.
    """
    assert opened(fork, modules, "Large").calls == 1
    told = [fork.ask(TakeSample(label="Large", calls=2), 60.0).faults for _ in range(5)]
    return min(told[2:])


@needs_glibc
def test_with_the_heap_kept_a_warm_call_has_no_page_faults(
    starter: WorkerProcess, modules: Path
) -> None:
    assert starter.greeting().allocator == KEEPS
    with closing(starter.fork(60.0)) as fork:
        assert faults_of(fork, modules) < 50
    with closing(WorkerProcess(Arm(env=((ALLOCATOR, SYSTEM),)))) as other:
        assert other.greeting().allocator == SYSTEM
        fork = other.fork(60.0)
        assert faults_of(fork, modules) > 1000  # 64 MiB are 16,384 pages
        fork.close()


@pytest.mark.slow
def test_an_import_that_starts_a_thread_makes_workers_interpreters_of_their_own(
    modules: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    threaded = modules.with_name("threaded.py")
    begun = "import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()\n"
    threaded.write_text(MODULES.replace("import os", begun + "import os", 1))
    plan = plan_of(threaded, ("Plain",))
    plan = replace(plan, protocol=replace(plan.protocol, workers=2))
    sources: list[WorkerPool] = []

    def kept(*arguments: object) -> WorkerPool:
        sources.append(WorkerPool(*arguments))  # type: ignore[arg-type]
        return sources[-1]

    monkeypatch.setattr(runner, "WorkerPool", kept)
    done = run(plan)
    [source] = sources
    assert not source.forks
    assert not done.failures
    latencies = [sample for sample in done.samples if sample.metric == "latency"]
    assert {(s.worker, s.starter) for s in latencies} == {(0, 0), (1, 1)}
    assert {s.round for s in latencies} == {0, 1, 2, 3}


class FakeStarter:
    """Loses itself when it is asked for what `breaks` names; else it serves."""

    ended = False

    def __init__(self, breaks: str) -> None:
        self.breaks, self.asked, self.closed = breaks, [], False

    def greeting(self, timeout_s: float = 0.0) -> Greeting:
        return Greeting()

    def ask(self, request: WorkerRequest, timeout_s: float) -> Done:
        self.asked.append(type(request).__name__)
        if self.breaks == self.asked[-1]:
            raise lost("timeout")
        return Done()

    def fork(self, timeout_s: float) -> object:
        if self.breaks == "fork":
            raise lost("crash")
        return object()

    def close(self) -> None:
        self.closed = True


def test_an_import_that_hangs_costs_one_starter_and_is_left_to_the_children(
    modules: Path,
) -> None:
    made: list[FakeStarter] = []

    def launch() -> FakeStarter:
        made.append(FakeStarter("Preload"))
        return made[-1]

    source = WorkerPool(plan_of(modules), launch)
    source.start()
    numbers = [source.next(3)[0] for _ in range(3)]
    assert numbers == [1, 1, 1]
    assert [(one.asked, one.closed) for one in made] == [
        (["Preload"], True),
        ([], False),
    ]


def test_starters_that_are_lost_again_and_again_end_the_run() -> None:
    source = WorkerPool(plan_of(Path("mine.py")), lambda: FakeStarter("fork"))
    source.start()
    with pytest.raises(Unfinished, match="a worker can't be forked"):
        source.next(3)


def test_a_starter_is_forked_by_turns() -> None:
    source = WorkerPool(plan_of(Path("mine.py")), lambda: FakeStarter(""))
    source.start()
    assert [source.next(9)[0] for _ in range(5)] == [0, 1, 0, 1, 0]
    assert source.started == STARTERS
    alone = WorkerPool(
        plan_compare(CompareRequest(variants="relu", metrics="latency")), FakeLaunch()
    )
    alone.start()
    assert [alone.next(4)[0] for _ in range(4)] == [0, 1, 2, 3]


def state_of(process: int) -> str:
    return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]


def test_sides_that_wait_for_their_turn_are_stopped_and_end_with_the_rest(
    modules: Path,
) -> None:
    """Two processes at once: the one that was asked last rests as well, since nobody
    asks it.
    """
    sides = [Arm(env=(("A", "1"),)), Arm(env=(("A", "2"),))]
    starters = {arm: WorkerProcess(arm) for arm in sides}
    one, other = plan_of(modules, ("Plain", "Exits")).cases[:2]
    plan = replace(
        plan_of(modules),
        cases=(replace(one, arm=sides[0]), replace(other, arm=sides[1])),
    )
    group = WorkerGroup(plan, starters)
    group.greeting()
    pids = [starter._process.pid for starter in starters.values()]
    forks = group.fork(60.0)
    found = [child for pid in pids for child in children(pid)]
    assert len(found) == 2
    assert forks.ask(Begin(plan=plan), 60.0) == Done()
    assert forks.ask(Open(label=one.label, calls=1), 60.0).calls == 1
    assert soon(lambda: [state_of(child) for child in found] == ["T", "T"])
    forks.close()
    assert gone(*found)
    with closing(group.fork(60.0)) as again:
        assert again.ask(MeasureTimer(), 60.0).empty_call_s > 0
    group.close()
    assert gone(*pids)
