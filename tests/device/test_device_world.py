"""The simulated device is what CUDA documents, and the meter that times a device is
right on it.
"""

from __future__ import annotations

import pytest
import torch
from device_world import PYTHON_S, US, Context, Kernels, World, device_s, host_s

from ffnbench.common.errors import Unsupported
from ffnbench.worker import subject, timing


def timed(
    world: World, *, by_device: bool = False, train: bool = False, **shape: object
) -> tuple[timing.Times, subject.Subject]:
    """A sample of some milliseconds, as a worker takes it."""
    context = Context(world)
    module, x = Kernels(context, **shape), torch.randn(1, 2, 8)
    made = subject.Subject(
        module, x.requires_grad_(train), x.detach(), train,
        accelerator=context, by_device=by_device,
    )  # fmt: skip
    calls = max(2, round(0.004 / (module.kernels * 20 * US)))
    timing.time_calls(made, made.pool.renew(3, calls), is_sample=False)
    return timing.time_calls(made, made.pool.renew(4, calls)), made


# What the world has against it: the right number, or none.
RIGHT: dict[str, tuple[dict[str, float], dict[str, object]]] = {
    "launches arrive after 60 us": ({"latency_s": 60 * US}, {}),
    "a launch takes the host 60 us": ({"launch_s": 60 * US}, {}),
    "few calls fill the queue": ({}, {"kernels": 700}),
    "a side stream that is waited for": ({}, {"stream": "joined"}),
    "the host stands still now and then": ({"stall_s": 0.005}, {}),
}


@pytest.mark.parametrize("by_device", [False, True])
@pytest.mark.parametrize("name", RIGHT)
def test_the_time_of_the_device_is_right(name: str, by_device: bool) -> None:
    costs, facts = RIGHT[name]
    world, shape = World(**costs), {"kernels": 2, **facts}
    times, _ = timed(world, by_device=by_device, us=20, **shape)
    device = device_s(world, kernels=shape["kernels"], us=20)
    host = host_s(world, kernels=shape["kernels"])
    assert times.device == pytest.approx(device, rel=0.01)
    assert times.value == (times.device if by_device else times.wall)
    if not world.stall_s:
        assert times.host == pytest.approx(host, rel=0.01)


NONE: dict[str, tuple[dict[str, float], dict[str, object]]] = {
    "it waits for the device": ({}, {"waits": True}),
    "one call is more than the queue holds": ({}, {"kernels": 3000}),
    "all of it on a side stream": ({}, {"stream": "loose"}),
    "events have steps of 1 ms": ({"tick_s": 0.001}, {}),
}


@pytest.mark.parametrize("name", NONE)
def test_a_time_of_the_device_that_can_not_be_had_is_none(name: str) -> None:
    costs, facts = NONE[name]
    world, shape = World(**costs), {"kernels": 2, **facts}
    times, _ = timed(world, us=20, **shape)
    assert times.device is None
    with pytest.raises(Unsupported):
        timed(World(**costs), by_device=True, us=20, **shape)
    wall = max(
        device_s(world, kernels=shape["kernels"], us=20),
        host_s(world, kernels=shape["kernels"]),
    )
    if "waits" in facts:
        # by hand: Python, two launches and their way, the kernels, and what it takes to
        # see that the device is idle
        kernels = 2 * 20 * US + world.gap_s
        wall = PYTHON_S + world.launch_s + world.latency_s + kernels + world.wait_s
    assert times.wall == pytest.approx(wall, rel=0.05)


def test_what_is_timed_of_training_leaves_no_gradients() -> None:
    times, made = timed(World(), train=True, us=50)
    assert times.device == pytest.approx(
        3 * device_s(World(), kernels=2, us=50), rel=0.01
    )
    assert made.module.weight.grad is None
