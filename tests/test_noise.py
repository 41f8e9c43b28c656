"""What samples and the machine say of noise: each warning where it belongs, silence where all is well."""

from __future__ import annotations

from dataclasses import replace
from os import cpu_count

import pytest
from test_stats import plan_of, run_of

from ffnbench.device.machine_noise import Watch
from ffnbench.plan import CONTROL
from ffnbench.result import Timer, Verdict
from ffnbench.stats.verdict import summarise


def texts(values: dict[str, list[list[float]]], **changes: object) -> list[str]:
    plan = plan_of(workers=3, rounds=len(next(iter(values.values()))[0]), control=CONTROL in values)
    return [note.text for note in summarise(run_of(plan, values, **changes))[2]]


def test_a_quiet_run_says_nothing() -> None:
    assert texts({"a": [[1.0] * 9] * 3, "b": [[1.1] * 9] * 3}, timer=Timer(empty_call_s=2e-6, resolution_s=1e-9)) == []


def test_calls_too_short_for_the_harness_are_told() -> None:
    timer = Timer(empty_call_s=2e-6, resolution_s=1e-9)
    short, fine = [[1e-4] * 6] * 3, [[3e-4] * 6] * 3
    notes = summarise(run_of(plan_of(workers=3, rounds=6), {"a": short, "b": fine}, timer=timer))[2]
    assert [(note.label, note.text.partition(":")[0]) for note in notes] == [
        ("a", "one call is only 50 times an empty one (2.0 us)")
    ]


def test_page_faults_are_told_where_they_cost_something() -> None:
    """1,000 faults of 0.5 us in each call of 10 ms are 5 % of it; 100 are not worth a word."""
    timer = Timer(empty_call_s=2e-6, resolution_s=1e-9, fault_s=0.5e-6)
    run = run_of(plan_of(workers=3, rounds=6), {"a": [[1e-2] * 6] * 3, "b": [[1e-2] * 6] * 3}, timer=timer)
    faults = {"a": 1000, "b": 100}
    faulting = replace(run, samples=tuple(replace(s, faults=faults[s.case] * s.calls) for s in run.samples))
    assert [(note.label, note.text[:13]) for note in summarise(faulting)[2]] == [("a", "1,000 page fa")]


def test_a_reference_that_differs_from_itself_makes_the_machine_unfit() -> None:
    a, slower, off = [[1.0] * 6] * 3, [[1.04] * 6, [1.05] * 6, [1.06] * 6], [[1.09] * 6, [1.10] * 6, [1.11] * 6]
    plan = plan_of(workers=3, rounds=6, control=True)
    good = summarise(run_of(plan, {"a": a, "b": slower, CONTROL: [[0.999] * 6, [1.0] * 6, [1.001] * 6]}))
    verdicts = {c.case: c.verdict for c in good[1]}
    assert (verdicts["b"], verdicts[CONTROL]) == (Verdict.SLOWER, Verdict.SAME)
    assert not good[2]
    bad = summarise(run_of(plan, {"a": a, "b": slower, CONTROL: off}))
    by = {c.case: c for c in bad[1]}
    assert (by["b"].verdict, by[CONTROL].verdict) == (Verdict.UNCLEAR, Verdict.SLOWER)
    assert "differs from itself" in by["b"].reason
    assert any("can't be trusted now: the reference took 1.100 times its own time" in note.text for note in bad[2])
    wide = summarise(run_of(plan, {"a": a, "b": slower, CONTROL: [[0.9] * 6, [1.0] * 6, [1.1] * 6]}))
    assert {c.case: c.verdict for c in wide[1]}[CONTROL] is Verdict.UNCLEAR
    far = summarise(run_of(plan, {"a": a, "b": [[3.0] * 6, [3.1] * 6, [3.2] * 6], CONTROL: off}))
    assert {c.case: c.verdict for c in far[1]}[
        "b"
    ] is Verdict.SLOWER  # three times is more than the machine's own error


class Proc:
    """/proc and /sys as a test wants them: ticks of CPU time, stolen ticks, MHz."""

    def __init__(self) -> None:
        self.busy, self.stolen, self.mhz = 0, 0, 3000.0

    def __call__(self, path: str) -> str:
        if path == "/proc/stat":
            return f"cpu  {self.busy} 0 0 0 0 0 0 {self.stolen} 0 0\n"
        if path == "/proc/cpuinfo":
            return f"cpu MHz\t\t: {self.mhz}\ncpu MHz\t\t: 800.0\n"
        raise FileNotFoundError(path)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch):
    """Ten seconds pass in the second worker; this process uses none of them."""
    seconds = iter([0.0, 0.0, 0.0, 10.0, 10.0])
    monkeypatch.setattr("ffnbench.device.machine_noise.time.monotonic", lambda: next(seconds))
    idle = type("Usage", (), {"ru_utime": 0.0, "ru_stime": 0.0})
    monkeypatch.setattr("ffnbench.device.machine_noise.resource.getrusage", lambda who: idle)


def test_other_processes_stolen_time_and_a_falling_clock_are_told(clock: None) -> None:
    proc = Proc()
    watch = Watch(proc)
    watch.worker_done()
    watch.worker_begins()
    proc.busy, proc.stolen, proc.mhz = 700, 200, 2500.0
    watch.worker_done()
    around = watch.around()
    assert around.others_cpus == pytest.approx(0.7)
    assert around.stolen == (None, pytest.approx(2.0 / 10.0 / cpu_count()))  # 2 s of 10 s of all CPUs
    (note,) = watch.notes(threads=1)
    assert note.startswith("the CPU's clock fell from 3000 to 2500 MHz")


def test_a_quiet_machine_says_nothing_and_an_unreadable_one_neither(clock: None) -> None:
    assert Watch(Proc()).notes(threads=1) == []

    def nothing(path: str) -> str:
        raise FileNotFoundError(path)

    watch = Watch(nothing)
    watch.worker_begins()
    watch.worker_done()
    assert watch.notes(threads=1) == []
    around = watch.around()
    assert (around.others_cpus, around.stolen) == (None, (None,))


def test_more_threads_than_cpus_is_told(clock: None) -> None:
    (note,) = Watch(Proc()).notes(threads=10_000)
    assert note.startswith("10000 threads on ")
    assert "--threads" in note
