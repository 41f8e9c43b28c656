"""Devices by name, and which time is the latency where: what can't be is refused, in a plan or once `auto` is known."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import FACTS, ROOT, FakeLaunch, FakeWorker
from test_cli import call  # noqa: F401 - a fixture

from ffnbench import api
from ffnbench.api import world
from ffnbench.device import environment
from ffnbench.device.environment import why_no_gpu
from ffnbench.errors import FfnbenchError
from ffnbench.plan import Plan, Workload
from ffnbench.planning.compare import plan_compare
from ffnbench.planning.workload import device_of
from ffnbench.request import CheckRequest, CompareRequest
from ffnbench.run.runner import run


def plan_of(variants: str = "relu", **flags: Any) -> Plan:
    return plan_compare(CompareRequest(variants=variants, d_model=64, threads=1, **flags))


def works(variants: str = "relu", **flags: Any) -> list[Workload]:
    return [case.workload for case in plan_of(variants, **flags).cases]


@pytest.mark.parametrize(
    ("name", "hint"),
    [("quantum", "devices: auto"), ("gpu", "AMD's GPUs"),
     ("mps:0", "devices: auto"), ("xpu:", "devices: auto"), ("cuda:x", "devices: auto"),
     ("cudo", "did you mean 'cuda'")],
)  # fmt: skip
def test_what_is_no_device_gets_a_hint(name: str, hint: str) -> None:
    with pytest.raises(FfnbenchError, match="unknown device") as caught:
        device_of(name)
    assert hint in caught.value.hint


def test_which_time_is_the_latency() -> None:
    """wall where nothing is said; the device's where a cold cache leaves no other."""
    assert [(w.time, w.cache) for w in works()] == [("wall", "hot")]
    assert works(device="cuda")[0].time == "wall"
    assert works(device="cuda", time="device")[0].time == "device"
    assert works(device="cuda", cache="cold")[0].time == works("relu@device=xpu@cache=cold")[0].time == "device"
    assert works(device="cpu", cache="cold")[0].time == works(device="cpu", cache="cold", time="wall")[0].time == "wall"
    assert [w.time for w in works("relu,gelu@device=cpu", device="cuda", time="device")] == ["device", "wall"]
    assert plan_of(time="device").with_device("cpu").cases[0].workload.time == "wall"
    of_auto = plan_of(cache="cold")
    assert of_auto.cases[0].workload.time == "wall"
    assert of_auto.with_device("cuda").cases[0].workload.time == "device"
    assert of_auto.with_device("cpu").cases[0].workload.time == "wall"
    assert plan_of().with_device("cuda").cases[0].workload.time == "wall"


@pytest.mark.parametrize(
    ("flags", "said"),
    [({"device": "cuda", "time": "wall", "cache": "cold"}, "calls of a cold cache are timed one by one"),
     ({"variants": "relu@cache=cold", "time": "wall"}, "calls of a cold cache are timed one by one"),
     ({"time": "gpu"}, "unknown time 'gpu'"), ({"cache": "warm"}, "unknown cache 'warm'")],
)  # fmt: skip
def test_what_contradicts_is_refused_in_a_plan(flags: dict[str, Any], said: str) -> None:
    with pytest.raises(FfnbenchError, match=said) as caught:
        plan_of(**flags)
    assert caught.value.hint


class OnGPU(FakeWorker):
    accelerator: str | None = "cuda"

    def greeting(self) -> dict:
        return {**FACTS, "gpus": 1, "accelerator": self.accelerator}


class LaunchGPU(FakeLaunch):
    def __call__(self, arm: object = None) -> OnGPU:
        worker = OnGPU(self, len(self.workers))
        self.workers.append(worker)
        return worker


@pytest.mark.parametrize(("told", "device"), [("cuda", "cuda"), ("xpu", "xpu"), ("mps", "mps"), (None, "cuda")])
def test_auto_becomes_what_the_worker_names(told: str | None, device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OnGPU, "accelerator", told)
    result = run(plan_of(workers=3, rounds=1, metrics="latency", cache="cold"), launch=LaunchGPU())
    work = result.plan.cases[0].workload
    assert (work.device, work.time) == (device, "device")


@pytest.mark.parametrize("device", ["xpu", "mps", "xpu:1", "cuda:1"])
def test_a_device_of_another_kind_than_torch_sees_is_refused(device: str) -> None:
    with pytest.raises(FfnbenchError, match=f"device '{device}' was asked for, but torch"):
        run(plan_of(device=device, workers=3, rounds=1), launch=LaunchGPU())


def test_why_there_is_no_gpu_of_a_kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for platform, known in (("linux", "MPS is of macOS"), ("darwin", "")):
        monkeypatch.setattr(sys, "platform", platform)
        assert why_no_gpu("mps").startswith(known)
        assert bool(why_no_gpu("mps")) == bool(known)
    assert "no XPU for darwin" in why_no_gpu("xpu")
    monkeypatch.setattr(sys, "platform", "linux")
    files = {kind: (str(tmp_path / kind),) for kind in ("cuda", "xpu")}
    monkeypatch.setattr(environment, "GPU_FILES", files)
    assert "no driver of an Intel GPU" in why_no_gpu("xpu")
    for kind in files:
        (tmp_path / kind).touch()
    builds = {"2.13.0+xpu": (False, True), "2.13.0+rocm7.0": (True, False), "2.13.0": (True, True)}
    for build, sees in builds.items():
        monkeypatch.setattr(environment, "version", lambda name, build=build: build)
        assert (not why_no_gpu("cuda"), not why_no_gpu("xpu")) == sees


def test_a_baseline_of_a_device_that_is_not_here_is_refused_before_anything_is_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def started(*_: object) -> Any:
        raise AssertionError("a process was started")

    monkeypatch.setattr(world, "MACHINE", world.Machine(launch=started, no_gpu=lambda kind: "there is none"))
    with pytest.raises(FfnbenchError, match="device 'cuda' was asked for, but there is none"):
        api.check(CheckRequest(baseline=str(ROOT / "tests/golden/cuda.json")))
