"""Where workers come from: forks of real starters, and what becomes of those that
crash, hang or are left behind.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from fake_machine import KnownProber, planned

from ffnbench.common import jsonable
from ffnbench.plan.plan import Plan
from ffnbench.record.result import FailureKind
from ffnbench.run.worker import Worker, WorkerLost

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
def starter() -> Iterator[Worker]:
    with closing(Worker()) as session:
        yield session


def plan_of(path: Path, names: tuple[str, ...] = NAMES) -> Plan:
    variants = ",".join(f"{name}={path}:{name}" for name in names)
    request = dict(variants=variants, d_model=64, d_ff=128, seq_len=16, match="none", threads=1, device="cpu", metrics="latency", workers=3, rounds=4)  # fmt: skip
    return planned(**request, probe=KnownProber())


def opened(
    worker: Worker,
    path: Path,
    label: str = "Plain",
    block: str = "",
    timeout_s: float = 60.0,
) -> Any:
    """A worker that has a plan opens a case."""
    plan = jsonable.encode(plan_of(path))
    assert worker.ask("begin", 60.0, plan=plan, layout_seed=block) is None
    return worker.ask("open", timeout_s, label=label, calls=1)


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
    starter: Worker, modules: Path
) -> None:
    starter.greeting()
    seen = []
    for _ in range(2):
        assert starter.fork(60.0)
        [child] = children(starter._process.pid)
        assert opened(starter, modules).calls == 1
        assert starter.ask("sample", 60.0, label="Plain", calls=2).value > 0
        assert (
            int(
                (modules.parent / "mine.py.told").read_text().split("\n")[-2].split()[0]
            )
            == child
        )
        starter.leave()
        assert gone(child)
        seen.append(child)
    assert len(set(seen)) == 2
    assert not starter.ended
    assert starter.ask("timer", 60.0).empty_call_s > 0  # it answers by itself again


@pytest.mark.parametrize(
    ("label", "cause"), [("Exits", "exit code 7"), ("Segfaults", "SIGSEGV")]
)
def test_a_child_that_dies_is_a_lost_worker_and_its_starter_goes_on(
    starter: Worker, modules: Path, label: str, cause: str
) -> None:
    assert starter.fork(60.0)
    with pytest.raises(WorkerLost, match=cause) as caught:
        opened(starter, modules, label)
    assert caught.value.kind is FailureKind.CRASH
    starter.leave()
    assert not starter.ended
    assert starter.fork(60.0)
    assert opened(starter, modules).calls == 1
    starter.leave()


def test_a_child_that_hangs_is_ended_with_its_starter(modules: Path) -> None:
    starter = Worker()
    assert starter.fork(60.0)
    pids = [starter._process.pid, *children(starter._process.pid)]
    assert len(pids) == 2
    assert opened(starter, modules).calls == 1
    with pytest.raises(WorkerLost, match=r"no answer within 0\.5 s") as caught:
        starter.ask("open", 0.5, label="Hangs", calls=1)
    assert caught.value.kind is FailureKind.TIMEOUT
    assert starter.ended
    starter.leave()
    assert gone(*pids)


@pytest.mark.skipif(
    "glibc" not in os.confstr("CS_GNU_LIBC_VERSION"), reason="the switch is glibc's"
)
def test_with_the_heap_kept_a_warm_call_has_no_page_faults(
    starter: Worker, modules: Path
) -> None:
    """64 MiB of a call are 16,384 pages."""
    assert starter.fork(60.0)
    assert opened(starter, modules, "Large").calls == 1
    told = [
        starter.ask("sample", 60.0, label="Large", calls=2).faults for _ in range(5)
    ]
    assert min(told[2:]) < 50
    starter.leave()
