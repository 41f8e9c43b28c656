"""Devices by name, and which time is the latency where: what can't be is refused, in a
plan or once `auto` is known.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fake_machine import FakeLaunch, planned, run

from ffnbench.device import environment
from ffnbench.device.environment import why_no_gpu
from ffnbench.plan.plan import Plan, Workload
from ffnbench.plan.reading import device_of


def plan_of(variants: str = "relu", **flags: Any) -> Plan:
    return planned(variants=variants, d_model=64, threads=1, **flags)


def works(variants: str = "relu", **flags: Any) -> list[Workload]:
    return [case.workload for case in plan_of(variants, **flags).cases]


def test_a_gpu_is_a_cuda_device() -> None:
    assert [device_of("--device", text) for text in ("GPU", "gpu:1")] == [
        "cuda",
        "cuda:1",
    ]


def test_which_time_is_the_latency() -> None:
    """wall where nothing is said; the device's where a cold cache leaves no other."""
    assert [(w.time, w.cache) for w in works()] == [("wall", "hot")]
    assert works(device="cuda")[0].time == "wall"
    assert works("relu@time=device", device="cuda")[0].time == "device"
    assert works("relu@device=cuda@cache=cold")[0].time == "device"
    for variant in ("relu@cache=cold", "relu@cache=cold@time=wall"):
        assert works(variant, device="cpu")[0].time == "wall"
    assert (
        plan_of("relu@time=device").with_device("cpu").cases[0].workload.time == "wall"
    )
    of_auto = plan_of("relu@cache=cold")
    assert of_auto.cases[0].workload.time == "wall"
    assert of_auto.with_device("cuda").cases[0].workload.time == "device"
    assert of_auto.with_device("cpu").cases[0].workload.time == "wall"
    assert plan_of().with_device("cuda").cases[0].workload.time == "wall"


def test_auto_becomes_what_the_worker_sees() -> None:
    launch = FakeLaunch()
    launch.facts = {"gpus": 1}
    result = run(
        plan_of("relu@cache=cold", workers=3, rounds=1, metrics="latency"),
        launch=launch,
    )
    work = result.plan.cases[0].workload
    assert (work.device, work.time) == ("cuda", "device")


def test_why_there_is_no_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "GPU_FILES", (str(tmp_path / "nvidiactl"),))
    assert "no GPU driver" in why_no_gpu()
    (tmp_path / "nvidiactl").touch()
    assert why_no_gpu() == ""
