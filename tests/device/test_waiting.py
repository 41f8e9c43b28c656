"""How long threads waited for a CPU: by hand from files, by a real thread without one,
and what stands in for it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ffnbench.device.waiting import (
    SCHEDSTAT,
    ThreadTimes,
    WaitMeter,
    threads_of,
    waited_share,
)

MS = 1_000_000


def tasks(folder: Path, **threads: str) -> Path:
    """A /proc/self/task of these threads, each with what its schedstat says."""
    for name, text in threads.items():
        (folder / name).mkdir(exist_ok=True)
        (folder / name / "schedstat").write_text(text)
    return folder


def test_the_second_number_of_every_thread_is_what_it_waited(tmp_path: Path) -> None:
    found = threads_of(tasks(tmp_path, t1="5000000 2000000 7\n", t2="1 0 1\n"))
    assert found == {"t1": ThreadTimes(5 * MS, 2 * MS), "t2": ThreadTimes(1, 0)}
    before = {"t1": ThreadTimes(0, 1 * MS), "gone": ThreadTimes(9 * MS, 9 * MS)}
    # of 10 ms thread 1 waited 1 ms, and a thread that came later 2 ms; one that ended
    # says nothing
    after = {"t1": ThreadTimes(9 * MS, 2 * MS), "new": ThreadTimes(1 * MS, 2 * MS)}
    assert waited_share(before, after, seconds=0.010, cpus=2) == pytest.approx(0.2)
    many = {
        f"t{n}": ThreadTimes(9 * MS, 20_000) for n in range(64)
    }  # each waits a little, as 64 threads do
    assert waited_share({}, many, seconds=0.010, cpus=64) == pytest.approx(0.002)


def test_own_threads_beyond_the_cpus_wait_for_each_other() -> None:
    before = {name: ThreadTimes(0, 0) for name in ("a", "b", "c")}
    after = {name: ThreadTimes(6 * MS, 4 * MS) for name in before}
    assert waited_share(before, after, seconds=0.010, cpus=2) is None
    assert waited_share(before, after, seconds=0.010, cpus=3) == pytest.approx(0.4)
    # a helper that woke for 10 us and then had no CPU is no worker: the sample was
    # disturbed
    helper = after | {"c": ThreadTimes(MS // 100, 3 * MS)}
    assert waited_share(before, helper, seconds=0.010, cpus=2) == pytest.approx(0.4)


def test_a_thread_that_has_had_a_cpu_tells_before_its_time_is_counted(
    tmp_path: Path,
) -> None:
    """As read in a process that was just forked (Linux 6.18)."""
    assert WaitMeter(2, tasks(tmp_path, t1="0 5061634 1\n")).source == SCHEDSTAT


@pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="Linux tells it")
def test_a_thread_without_a_cpu_is_seen_to_wait() -> None:
    """Two processes on one CPU: each has it half of the time, or less beside others.
    What it does not run it waits.
    """
    cpu = min(os.sched_getaffinity(0))
    code = (
        "import os, time; from ffnbench.device.waiting import WaitMeter\n"
        f"os.sched_setaffinity(0, {{{cpu}}}); m = WaitMeter(1)\n"
        "def spin():\n c, e = time.process_time(), time.perf_counter() + 0.5\n"
        " while time.perf_counter() < e: pass\n return (time.process_time() - c) / 0.5\n"
        "print(m.source, *m.with_share(spin, 1))"
    )
    spinner = f"import os; os.sched_setaffinity(0, {{{cpu}}})\nwhile True: pass"
    neighbour = subprocess.Popen([sys.executable, "-c", spinner])
    try:
        found = subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
    finally:
        neighbour.kill()
        neighbour.wait()
    source, ran, waited = found.stdout.split()
    assert source == SCHEDSTAT
    assert float(waited) > 0.3
    assert float(waited) == pytest.approx(1 - float(ran), abs=0.1)
