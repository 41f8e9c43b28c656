"""The simulated device is what CUDA documents, and all that times a device is right on it."""

from __future__ import annotations

import pytest
import torch
from device_world import US, Context, Kernel, Kernels, Slow, World, install, used

from ffnbench.bench import meters
from ffnbench.plan import Workload


def context(**costs: object) -> Context:
    return Context(World(**{"mark_s": 0.0, "gap_s": 0.0, "read_s": 0.0, **costs}))


def test_four_small_kernels_between_two_events_of_an_idle_stream_read_as_their_launches() -> None:
    """The figure of a reading, by hand: 8 us of Python and four launches of 6 us, behind the last a kernel of 4 us."""
    gpu = context(launch_s=6 * US, event_s=2 * US)
    start, end = gpu.event(), gpu.event()
    gpu.synchronize()
    start.record()
    gpu.python(8 * US)
    for _ in range(4):
        gpu.launch(Kernel(4 * US))
    end.record()
    gpu.synchronize()
    assert end.seconds_since(start) == pytest.approx(36 * US, abs=0.5 * US)


def test_a_stream_runs_in_order_and_the_host_runs_ahead_until_the_queue_is_full() -> None:
    gpu = context(launch_s=1 * US, latency_s=0.0, wait_s=0.0)
    began = gpu.now()
    for _ in range(1024):
        gpu.launch(Kernel(0.01))
    assert gpu.now() - began == pytest.approx(1024 * US)
    for _ in range(10):
        gpu.launch(Kernel(0.01))  # each waits for one to end
    assert gpu.now() - began == pytest.approx(1 * US + 10 * 0.01)
    gpu.synchronize()
    assert gpu.now() - began == pytest.approx(1 * US + 1034 * 0.01)


def test_events_are_stamped_by_the_stream_and_cannot_be_read_before() -> None:
    gpu = context(event_s=0.0, latency_s=0.0)
    start, end = gpu.event(), gpu.event()
    with pytest.raises(ValueError, match="must be recorded"):
        end.seconds_since(start)
    start.record()
    gpu.launch(Kernel(1e-3))
    end.record()
    with pytest.raises(RuntimeError, match="not ready"):
        end.seconds_since(start)
    gpu.synchronize()
    assert end.seconds_since(start) == pytest.approx(1e-3 + 6 * US, abs=0.5 * US)


def test_a_graph_is_launched_as_one_and_computes_again() -> None:
    gpu = context(launch_s=50 * US, replay_s=9 * US, latency_s=0.0, wait_s=0.0)
    x, given = torch.ones(3), []

    def work() -> torch.Tensor:
        for _ in range(10):
            gpu.launch(Kernel(2 * US))
        given[:] = [x * 2]
        return given[0]

    graph = gpu.capture(work)
    assert gpu.launched == 10  # the warm-up alone
    out = given[0]
    x.fill_(5.0)
    began = gpu.now()
    graph.replay()
    assert gpu.now() - began == pytest.approx(9 * US)
    gpu.synchronize()
    assert gpu.now() - began == pytest.approx((9 + 20) * US)
    assert out.tolist() == [10.0] * 3


def test_clocks_that_are_held_down_and_a_cache_that_was_flushed_lengthen_kernels() -> None:
    world = World(mark_s=0.0, gap_s=0.0, flush_s=0.0, slow=(Slow(1001.0, 1002.0, 0.5),))
    gpu = Context(world, free_s=1000.0)

    def took(kernel: Kernel) -> float:
        start, end = gpu.event(), gpu.event()
        gpu.spin(1e-3)
        start.record()
        gpu.launch(kernel)
        end.record()
        gpu.synchronize()
        return end.seconds_since(start)

    weights = Kernel(100 * US, "weights", cold=1.5)
    assert [round(took(weights) / US) for _ in range(2)] == [150, 100]
    gpu.flush()
    assert round(took(weights) / US) == 150
    assert world.bits() == 0
    gpu.python(1.0)
    assert [round(took(weights) / US), world.bits()] == [200, 0x40]


def test_an_illegal_access_is_an_error_of_every_later_call_and_of_no_earlier_one() -> None:
    gpu = context()
    gpu.launch(Kernel(1.0, illegal=True))
    gpu.launch(Kernel(1.0))  # nobody knows yet
    for call in (gpu.synchronize, gpu.synchronize, gpu.event().record):
        with pytest.raises(torch.AcceleratorError, match="illegal memory access"):
            call()


def test_memory_is_requested_in_bytes_and_given_in_blocks() -> None:
    gpu = context(memory_bytes=4096)
    gpu.allocate(1000)
    gpu.allocate(1)
    assert (gpu.requested, gpu.blocks, gpu.free_bytes()) == (1001, 1536, 2560)
    gpu.release(1000)
    assert (gpu.requested_bytes(), gpu.peak_requested_bytes()) == (1, 1001)
    gpu.reset_peak()
    assert gpu.peak_requested_bytes() == 1
    with pytest.raises(torch.OutOfMemoryError, match=r"total capacity of 0.00 GiB of which 0.00 GiB is free"):
        gpu.allocate(4000)


# the real meters on it


def subject(work: Workload, **module: float) -> meters.Subject:
    return meters.subject_of(Kernels(8, 32, **module), work, 8, seed=0)


def work_of(**facts: object) -> Workload:
    settings = {"batch": 1, "seq_len": 4, "dtype": "float32", "device": "cuda", "mode": "forward", "threads": 1}
    return Workload(**{**settings, **facts})


@pytest.mark.parametrize("us", [2, 5, 20, 100, 1e3, 1e4, 1e5, 2e6])
@pytest.mark.parametrize("graphs", [True, False])
def test_device_time_is_that_of_the_kernels(us: float, graphs: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(graphs=graphs)
    install(monkeypatch, world)
    with used(Context(world, free_s=world.host_s)):
        one = subject(work_of(), kernels=1, us=us)
        calls = meters.calls_for(one, 0.01)
        found = meters.sample(one, one.pool.renew(1, min(calls, 200)))
    assert found.device == pytest.approx(us * US + world.gap_s, rel=0.01)
    assert found.device_by == ("graph" if graphs else "queue")
    assert found.host == pytest.approx(14 * US, rel=0.05)
