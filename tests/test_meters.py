"""What is called when: a case is warm before its calls are counted, and no clock runs while gradients are cleared."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any

import pytest
import torch
from conftest import FakeLaunch
from torch import Tensor, nn

from ffnbench import api
from ffnbench.device import accelerator
from ffnbench.device.accelerator import CaptureFailed
from ffnbench.device.caches import Cache
from ffnbench.errors import Unsupported
from ffnbench.planning.compare import plan_compare
from ffnbench.request import CompareRequest
from ffnbench.worker import jobs, meters
from ffnbench.worker.evidence import Witness

D, SEQ = 8, 32
COLD_S, WARM_S = 1 / 64, 1 / 1024  # powers of two, so that their sums are exact


class Slow(nn.Module):
    """A clock, and a module that moves it: cold for that many calls on the whole input, then faster."""

    def __init__(self, cold_calls: int) -> None:
        super().__init__()
        self.now, self.calls, self.cold_calls = 0.0, 0, cold_calls

    def clock(self) -> float:
        return self.now

    def forward(self, x: Tensor) -> Tensor:
        if x.shape[1] == SEQ:  # the checks of its values look at the first tokens alone
            self.calls += 1
            self.now += COLD_S if self.calls <= self.cold_calls else WARM_S
        return 2 * x


def test_a_case_is_warm_before_its_calls_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """One checked call and eight of warming up take 16 ms each, all others 1 ms: sixteen of them make a sample."""
    plan = plan_compare(CompareRequest(variants="relu", d_model=D, seq_len=SEQ, threads=1, device="cpu"))
    warmup_s = 8 * COLD_S
    plan = replace(plan, protocol=replace(plan.protocol, warmup_s=warmup_s, min_sample_s=16 * WARM_S))
    module = Slow(cold_calls=1 + 8)
    monkeypatch.setattr(jobs, "build", lambda spec, **place: module)
    monkeypatch.setattr(meters, "perf_counter", module.clock)
    assert jobs.Jobs(plan).open("relu", None)["calls"] == 16
    assert module.now >= COLD_S + warmup_s
    again = Slow(cold_calls=0)
    monkeypatch.setattr(jobs, "build", lambda spec, **place: again)
    monkeypatch.setattr(meters, "perf_counter", again.clock)
    jobs.Jobs(plan).open("relu", 16)
    assert again.now < warmup_s  # one that is told the number of calls leaves that to its round of practice


class Watched(nn.Parameter):
    """A leaf that says when Python sets its gradient; autograd itself sets it unseen."""

    events: list[str]

    @property
    def grad(self) -> Tensor | None:
        return torch.Tensor.grad.__get__(self)

    @grad.setter
    def grad(self, value: Tensor | None) -> None:
        self.events.append("clear")
        torch.Tensor.grad.__set__(self, value)


def watched(events: list[str]) -> Watched:
    leaf = Watched(torch.randn(1, 4, 4))
    leaf.events = events
    return leaf


class Matrix(nn.Module):
    """One matrix, whose call is an event."""

    def __init__(self, events: list[str]) -> None:
        super().__init__()
        self.events, self.weight = events, watched(events)

    def forward(self, x: Tensor) -> Tensor:
        self.events.append("forward")
        return x @ self.weight


@pytest.mark.parametrize(
    ("backward_only", "a_call"),
    [(False, ["clear", "start", "forward", "stop"]), (True, ["clear", "forward", "start", "stop"])],
    ids=["train", "backward"],
)
def test_gradients_are_cleared_while_no_clock_runs(
    backward_only: bool, a_call: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[str] = []

    def read() -> float:
        events.append("stop" if events.count("start") > events.count("stop") else "start")
        if events[-1] == "start" and subject.module.weight.grad is not None:
            events.append("gradients of the last call")
        return float(len(events))

    monkeypatch.setattr(meters, "perf_counter", read)
    subject = meters.Subject(Matrix(events), watched(events), torch.ones(1, 4, 4), True, backward_only)
    assert meters._one_by_one(subject, subject.pool.renew(7, 3), [subject.grad] * 3, ()) > 0
    assert [event for event, _ in groupby(events)] == [*a_call * 3, "clear"]


# An accelerator with one queue. Its seconds are known, so the truth of every sample is a line of arithmetic.

LAUNCH_S, REPLAY_S, WAIT_S = 10e-6, 20e-6, 15e-6  # of the host: for a kernel, for a graph, to see that all is done


@dataclass
class Mark:
    device: Device
    at: float = 0.0

    def record(self) -> None:
        self.device.host += 1e-6
        self.at = max(self.device.host, self.device.free)

    def seconds_since(self, start: Mark) -> float:
        assert self.device.host >= self.at, "read before the device has passed it"
        return self.at - start.at


@dataclass
class Device:
    """`host` is the host's clock, `free` when the queue will be empty. What is queued while `graph` is a list goes in
    there. `depth` kernels are queued at most: then the host waits.
    """

    name: str = "cuda"
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    captures: bool = True
    replays: bool = True  # whether a replay computes anew
    spins: bool = True
    depth: int = 1000
    host: float = 0.0
    free: float = 0.0
    graph: list[float] | None = None
    replaying: bool = False
    flushed: bool = False
    ends: deque[float] = field(default_factory=deque)
    log: list[str] = field(default_factory=list)

    def launch(self, seconds: float, launch_s: float = LAUNCH_S) -> None:
        if self.replaying:
            return
        self.host += launch_s
        if self.graph is not None:
            self.graph.append(seconds)
            return
        while self.ends and self.ends[0] <= self.host:
            self.ends.popleft()
        if len(self.ends) >= self.depth:
            self.host = self.ends.popleft()
        self.free = max(self.free, self.host) + seconds
        self.ends.append(self.free)

    def settle(self) -> None:
        self.log.append("settle")

    def now(self) -> float:
        self.host += 5e-8
        return self.host

    def synchronize(self) -> None:
        if self.graph is not None:
            raise RuntimeError("not while capturing")
        if not self.replaying:
            self.log.append("wait")
            self.host = max(self.host, self.free) + WAIT_S

    def event(self) -> Mark:
        return Mark(self)

    def spin(self, seconds: float) -> bool:
        if self.spins:
            self.launch(seconds)
        return self.spins

    def capture(self, work: Callable[[], object]) -> Replayed:
        if not self.captures:
            raise CaptureFailed("it can't")
        self.graph = []
        try:
            kept = work()
        except RuntimeError as problem:
            raise CaptureFailed(str(problem)) from problem
        finally:
            seconds, self.graph = self.graph, None
        return Replayed(self, work, sum(seconds), kept)

    def flush(self) -> None:
        self.launch(300e-6)
        self.flushed = True

    def rng_state(self) -> Tensor:
        return torch.random.get_rng_state()

    def set_rng_state(self, state: Tensor) -> None:
        torch.random.set_rng_state(state)

    def requested_bytes(self) -> int:
        return 0

    def peak_requested_bytes(self) -> int:
        return 0

    def reset_peak(self) -> None:
        pass

    def free_bytes(self) -> int | None:
        return None

    def release_workspaces(self) -> None:
        pass


@dataclass
class Replayed:
    device: Device
    work: Callable[[], object]
    seconds: float
    kept: object

    def replay(self) -> None:
        self.device.launch(self.seconds, REPLAY_S)
        if self.device.replays:
            self.device.replaying = True
            self.work()
            self.device.replaying = False


class Kernel(torch.autograd.Function):
    """x times a weight; forward and backward are launched."""

    @staticmethod
    def forward(ctx, x: Tensor, weight: Tensor, device: Device, seconds: float) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.device, ctx.seconds = device, seconds
        device.launch(seconds)
        return x * weight

    @staticmethod
    def backward(ctx, grad: Tensor) -> tuple[Tensor, Tensor, None, None]:
        x, weight = ctx.saved_tensors
        ctx.device.launch(2 * ctx.seconds)
        return grad * weight, (grad * x).sum((0, 1)), None, None


class Kernels(nn.Module):
    """Four kernels of so many seconds each. One that finds nothing in the cache takes twice as long."""

    def __init__(self, device: Device, seconds: float, *, waits: bool = False) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.full((4,), 1.5))
        self.device, self.seconds, self.waits = device, seconds, waits

    def forward(self, x: Tensor) -> Tensor:
        if not self.device.replaying:
            self.device.log.append("call")
        for number in range(4):
            cold = 2 if number == 0 and self.device.flushed else 1
            x = Kernel.apply(x, self.weight, self.device, cold * self.seconds)
            self.device.flushed = False
        if self.waits:
            self.device.synchronize()
        return x


def on(device: Device, seconds: float, **how: Any) -> meters.Subject:
    module = Kernels(device, seconds, waits=how.pop("waits", False))
    x, grad = torch.randn(1, 2, 4), torch.randn(1, 2, 4)
    train = how.pop("train", False)
    return meters.Subject(module, x.requires_grad_(train), grad, train, accelerator=device, **how)


def times_of(subject: meters.Subject, calls: int = 100, **how: Any) -> meters.Times:
    return meters.sample(subject, subject.pool.renew(3, calls), **how)


@pytest.mark.parametrize(("kernel_s", "bound_by"), [(4e-6, "host"), (100e-6, "device"), (0.5, "device")])
@pytest.mark.parametrize("captures", [True, False])
def test_device_and_host_are_told_apart(kernel_s: float, bound_by: str, captures: bool) -> None:
    """Launched one by one, kernels of 4 us wait for the host; in a graph, or once all are queued, they do not."""
    calls = 100 if kernel_s < 0.1 else 2
    found = times_of(on(Device(captures=captures), kernel_s), calls)
    assert found.device == pytest.approx(4 * kernel_s, rel=0.01)
    assert found.host == pytest.approx(4 * LAUNCH_S, rel=0.02)
    wall = 4 * (LAUNCH_S if bound_by == "host" else kernel_s)
    assert found.value == found.wall == pytest.approx(wall, rel=0.01)
    assert found.device_by == ("graph" if captures else "queue")


def test_a_queue_that_is_full_makes_the_host_wait_and_fewer_calls_are_queued() -> None:
    found = times_of(on(Device(captures=False, depth=40), 3e-6))
    assert (found.device, found.device_by) == (pytest.approx(12e-6, rel=0.03), "queue")
    assert found.host == pytest.approx(4 * LAUNCH_S, rel=0.02)


@pytest.mark.parametrize("captures", [True, False])
def test_a_host_that_stands_still_for_a_while_is_tried_again(captures: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody else has the CPU for 5 ms, now and then: the device runs out of work meanwhile."""
    device, launches = Device(captures=captures), 0
    launch = device.launch

    def disturbed(seconds: float, launch_s: float = LAUNCH_S) -> None:
        nonlocal launches
        launches += 1
        launch(seconds, launch_s + (5e-3 if launches % 601 == 600 else 0.0))

    monkeypatch.setattr(device, "launch", disturbed)
    subject = on(device, 4e-6)
    for _ in range(4):
        assert times_of(subject).device == pytest.approx(16e-6, rel=0.01)


def test_without_a_spin_a_graph_still_tells() -> None:
    assert times_of(on(Device(spins=False), 4e-6)).device == pytest.approx(16e-6, rel=0.01)
    bare = times_of(on(Device(spins=False, captures=False), 4e-6))
    assert (bare.device, bare.device_by) == (None, "")


def test_a_call_that_waits_for_the_device_has_no_time_of_the_device() -> None:
    found = times_of(on(Device(), 4e-6, waits=True), 10)
    assert (found.device, found.device_by) == (None, "")
    assert found.wall > 4 * LAUNCH_S + WAIT_S
    with pytest.raises(Unsupported, match="can't be had apart"):
        times_of(on(Device(), 4e-6, waits=True, by_device=True), 10)


def test_the_devices_time_is_the_value_where_it_is_asked_for() -> None:
    found = times_of(on(Device(), 4e-6, by_device=True))
    assert found.value == found.device == pytest.approx(16e-6, rel=0.01)


def test_a_graph_that_gives_something_else_is_not_used() -> None:
    """Its replays would leave the memory as it was captured: a later input gives the earlier one's output."""
    subject = on(Device(replays=False), 100e-6)
    assert times_of(subject).device_by == "queue"
    assert subject.timer is not None
    assert "a replay does not give" in subject.timer.why_not


def test_a_graph_is_captured_once() -> None:
    device = Device()
    subject = on(device, 100e-6)
    calls = []
    for _ in range(2):
        before = device.log.count("call")
        times_of(subject, 8)
        calls.append(device.log.count("call") - before)
    assert calls == [8 + 8 + 1, 8]  # as timed by the wall; captured; compared with


@pytest.mark.parametrize(("captures", "by"), [(True, "graph"), (False, "queue")])
def test_training_is_timed_with_its_backward(captures: bool, by: str) -> None:
    subject = on(Device(captures=captures), 50e-6, train=True)
    found = times_of(subject, 20)
    assert (found.device, found.device_by) == (pytest.approx(4 * 3 * 50e-6, rel=0.01), by)
    assert found.wall == pytest.approx(4 * 3 * 50e-6, rel=0.06)  # the last one is waited for
    assert subject.module.weight.grad is None
    assert all(x.grad is None for x in subject.pool.renew(3, 20))


def test_a_backward_alone_has_its_forward_outside() -> None:
    subject = on(Device(), 50e-6, train=True, backward_only=True)
    found = times_of(subject, 80)
    assert (found.device, found.device_by) == (pytest.approx(4 * 2 * 50e-6, rel=0.01), "queue")
    assert found.wall == pytest.approx(4 * 2 * 50e-6, rel=0.02)
    assert subject.timer is not None
    assert subject.timer.quiet


@pytest.mark.parametrize("captures", [True, False])
def test_cold_calls_find_the_cache_flushed_and_do_not_pay_for_it(captures: bool) -> None:
    """A graph's kernels are as long as they were when it was captured: here not after a flush."""
    found = times_of(on(Device(captures=captures), 20e-6, by_device=True, cold=True))
    assert found.value == found.device == pytest.approx((4 if captures else 5) * 20e-6, rel=0.1)


@pytest.mark.parametrize("kernel_s", [4e-6, 8e-6, 12e-6, 100e-6, 1e-3])
@pytest.mark.parametrize("train", [False, True])
@pytest.mark.parametrize("captures", [True, False])
def test_a_slow_down_is_exact_whoever_waits_for_whom(kernel_s: float, train: bool, captures: bool) -> None:
    def timed(slowdown: float) -> meters.Times:
        subject = on(Device(captures=captures), kernel_s, train=train, slowdown=slowdown)
        if slowdown:
            subject.brake(meters.own_times(subject, 100))
        return times_of(subject, 400)

    plain, slowed = timed(0.0), timed(0.2)
    # issuing a spin takes the host as long as a kernel: a fourth of what four take leaves no room for it
    expected = 1.2 if train or kernel_s > LAUNCH_S else 1.0
    assert slowed.device / plain.device == pytest.approx(expected, abs=0.01)
    assert slowed.wall / plain.wall == pytest.approx(1.2, abs=0.01)


def looking(subject: meters.Subject, number: int, calls: int, *, draws: bool = False) -> Witness:
    return Witness(subject.module, subject.pool, 3, calls, number, True, subject.train, draws, subject.accelerator)


@pytest.mark.parametrize("draws", [False, True])
def test_nothing_comes_before_a_call_that_is_looked_at(draws: bool) -> None:
    device = Device()
    subject = on(device, 4e-6)
    inputs = subject.pool.renew(3, 10)
    meters.sample(subject, inputs)
    device.log.clear()
    witness = looking(subject, 6, 10, draws=draws)
    found = meters.sample(subject, inputs, [witness], apart=False)
    assert device.log == ["wait", *["call"] * 7, "wait", "wait", *["call"] * 3, "wait"]
    assert witness.told()["problem"] == ""
    assert torch.allclose(witness.y, inputs[6] * 1.5**4)
    assert found.wall == pytest.approx(4 * LAUNCH_S + 2 * WAIT_S / 10, rel=0.05)


def test_what_a_sample_tells_on_an_accelerator(monkeypatch: pytest.MonkeyPatch) -> None:
    device = Device(captures=False)
    monkeypatch.setitem(accelerator.MAKERS, "cuda", lambda name: device)
    monkeypatch.setattr(accelerator, "_MADE", {})
    monkeypatch.setattr(jobs, "build", lambda spec, **place: Kernels(device, 100e-6))
    plan = plan_compare(CompareRequest(variants="relu", d_model=4, seq_len=2, threads=1, device="cpu"))
    case = replace(plan.cases[0], workload=replace(plan.cases[0].workload, device="cuda"))
    plan = replace(plan, cases=(case,), protocol=replace(plan.protocol, warmup_s=0.001))
    job = jobs.Jobs(plan)
    opened = job.open("relu", None)
    assert opened["calls"] == pytest.approx(plan.protocol.min_sample_s / 400e-6, rel=0.1)
    told = job.sample("relu", opened["calls"], 5, [1])
    assert told["value"] == pytest.approx(400e-6, rel=0.05)
    assert (told["device_s"], told["device_by"]) == (pytest.approx(400e-6, rel=0.01), "queue")
    assert told["host_s"] == pytest.approx(40e-6, rel=0.02)
    assert told["notes"] == ["timed from a queue: its calls can't be captured, it can't"]
    assert "settle" in device.log


def test_cold_on_the_cpu_evicts_before_each_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twice the last cache of those that the threads have, read and written, while no clock runs."""
    cache = Cache(level=3, bytes=1 << 20, instances=4)
    monkeypatch.setattr(meters, "caches", lambda: (cache,))
    monkeypatch.setattr(meters, "_buffer_of", lambda size: Buffer(size))
    torch.set_num_threads(2)
    events: list[object] = []

    class Buffer:
        def __init__(self, size: int) -> None:
            self.size = size

        def add_(self, number: int) -> None:
            events.append(self.size)

    def read() -> float:
        events.append("clock")
        return float(len(events))

    module = Matrix(events)  # type: ignore[arg-type]
    subject = meters.Subject(module, torch.randn(1, 4, 4), torch.ones(1, 4, 4), False, cold=True)
    inputs = subject.pool.renew(1, 2)
    events.clear()
    monkeypatch.setattr(meters, "perf_counter", read)
    meters.sample(subject, inputs)
    assert events == [2 * 2 * (1 << 20), "clock", "forward", "clock"] * 2


def test_the_runner_keeps_what_an_accelerator_tells() -> None:
    launch = FakeLaunch()
    launch.told = lambda request: {"device_s": 0.004, "host_s": 0.006, "device_by": "graph", "notes": ["so and so"]}
    report = api.measure(api.prepare(CompareRequest(variants="relu", quick=True, metrics="latency")), launch=launch)
    by_metric = {metric: [s for s in report.samples if s.metric == metric] for metric in ("device_s", "host_s")}
    latencies = [s for s in report.samples if s.metric == "latency"]
    for metric, value in (("device_s", 0.004), ("host_s", 0.006)):
        assert [replace(s, metric="latency", value=0.01) for s in by_metric[metric]] == latencies
        assert {s.value for s in by_metric[metric]} == {value}
    assert [note.text for note in report.warnings].count("so and so") == len({s.case for s in latencies})
