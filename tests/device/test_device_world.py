"""The simulated device is what CUDA documents, and all that times a device is right on
it.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from device_world import (
    US,
    Launch,
    World,
    device_s,
    host_s,
    install,
)
from fake_machine import KnownProber, prepare

from ffnbench.api import measuring
from ffnbench.plan.metrics import DEVICE_TIME, HOST_TIME, LATENCY
from ffnbench.record.result import Estimate, FailureKind
from ffnbench.report.shown_report import ShownReport
from ffnbench.run.world import World as Outside

# the real meters on it


# the real jobs, runner, statistics and tables on it


Measure = Callable[..., ShownReport]


@pytest.fixture
def measure(monkeypatch: pytest.MonkeyPatch) -> Measure:
    """A comparison on a world; its launch, with all workers, is left in
    `measure.launch`.
    """

    def run(world: World, variants: str, **asked: object) -> ShownReport:
        install(monkeypatch, world)
        launch = run.launch = Launch(world)  # type: ignore[attr-defined]
        settings = {"d_model": 8, "d_ff": 32, "match": "none", "device": "cuda", "dtype": "float32", "seq_len": 4,
                    "workers": 3, "rounds": 4, "metrics": "latency", "threads": 1}  # fmt: skip
        prepared = prepare(variants, prober=KnownProber, **{**settings, **asked})
        outside = Outside(launch=launch, prober=KnownProber)
        return measuring.measure_plan(prepared, outside)

    return run


def module(label: str, **facts: object) -> str:
    return f"{label}=device_world:Kernels" + "".join(
        f"@{key}={str(value).lower()}" for key, value in facts.items()
    )


def value(report: ShownReport, label: str, metric: str = LATENCY) -> float:
    found = report.estimate(label, metric)
    assert isinstance(found, Estimate), (label, metric, report.failures)
    return found.value


# What the world has against it: the right number, or a flag that says that there is
# none.
RIGHT: dict[str, tuple[dict[str, float], dict[str, object]]] = {
    "launches arrive after 60 us": ({"latency_s": 60 * US}, {}),
    "a launch takes the host 60 us": ({"launch_s": 60 * US}, {}),
    "few calls fill the queue": ({}, {"kernels": 700}),
    "a side stream that is waited for": ({}, {"stream": "joined"}),
    "the host stands still now and then": ({"stall_s": 0.005}, {}),
}


@pytest.mark.parametrize("name", RIGHT)
def test_the_time_of_the_device_is_right(name: str, measure: Measure) -> None:
    costs, facts = RIGHT[name]
    world, shape = World(**costs), {"kernels": 2, **facts}
    rows = {label: module(label, us=us, **shape) for label, us in TIMES_US.items()}
    report = measure(world, f"{rows['one']},{rows['slower']}@time=device")
    for label, us in TIMES_US.items():
        device = device_s(world, kernels=shape["kernels"], us=us)
        host = host_s(world, kernels=shape["kernels"])
        assert value(report, label, DEVICE_TIME) == pytest.approx(device, rel=0.01)
        if not world.stall_s:
            assert value(report, label, HOST_TIME) == pytest.approx(host, rel=0.01)
            assert report.figures.launch_bound[label] == (host > device)


TIMES_US = {"one": 20, "slower": 22}
FLAGGED: dict[str, tuple[dict[str, float], dict[str, object]]] = {
    "it waits for the device": ({}, {"waits": True}),
    "one call is more than the queue holds": ({}, {"kernels": 3000}),
    "all of it on a side stream": ({}, {"stream": "loose"}),
    "events have steps of 1 ms": ({"tick_s": 0.001}, {}),
}


@pytest.mark.parametrize("name", FLAGGED)
def test_a_time_of_the_device_that_can_not_be_had_is_none_and_says_so(
    name: str, measure: Measure
) -> None:
    costs, facts = FLAGGED[name]
    world, shape = World(**costs), {"kernels": 2, "us": 20, **facts}
    row, plain = module("row", **shape), module("plain", us=50)
    report = measure(world, f"{plain},{row}", rounds=3)
    assert report.estimate("row", DEVICE_TIME) is None
    assert any(
        "device time can't be told apart" in note.text for note in report.notes("row")
    )
    asked = measure(World(**costs), f"{row}@time=device", rounds=3)
    assert [failure.kind for failure in asked.failures] == [FailureKind.UNSUPPORTED]
    if "waits" in facts:
        # by hand: Python, two launches and their way, the kernels, and what it takes to
        # see that the device is idle
        wall = (
            8 * US
            + world.launch_s
            + world.latency_s
            + 2 * 20 * US
            + world.gap_s
            + world.wait_s
        )
    else:
        wall = max(
            device_s(world, kernels=shape["kernels"], us=shape["us"]),
            host_s(world, kernels=shape["kernels"]),
        )
    assert value(report, "row") == pytest.approx(wall, rel=0.05)


@pytest.mark.parametrize("at", [1, 300], ids=["at once", "in a round"])
def test_a_device_error_fails_the_row_that_made_it_and_no_other(
    at: int, measure: Measure
) -> None:
    rows = ",".join(
        (
            module("one", us=50),
            module("breaks", us=50, breaks_at=at),
            module("two", us=50),
        )
    )
    report = measure(World(), rows)
    assert [(failure.case, failure.kind) for failure in report.failures] == [
        ("breaks", FailureKind.CRASH)
    ]
    assert "an illegal memory access was encountered" in report.failures[0].message
    for label in ("one", "two"):
        found = report.estimate(label, LATENCY)
        assert found is not None
        assert (found.workers, found.samples) == (3, 12)
        assert found.value == pytest.approx(
            device_s(World(), kernels=1, us=50), rel=0.02
        )
    assert len(measure.launch.workers) == 4  # type: ignore[attr-defined]
