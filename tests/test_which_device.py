"""Devices by name, and which time is the latency where: what can't be is refused, in a plan or once `auto` is known."""

from __future__ import annotations

import csv
import inspect
import io
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import FACTS, ROOT, FakeLaunch, FakeWorker
from test_cli import call  # noqa: F401 - a fixture

import ffnbench
from ffnbench import api
from ffnbench.api import world
from ffnbench.cli import completing
from ffnbench.device import environment
from ffnbench.device.environment import auto_device, why_no_gpu
from ffnbench.errors import FfnbenchError
from ffnbench.plan import Arm, NoProbe, Plan, Workload
from ffnbench.planning.block import plan_block
from ffnbench.planning.compare import plan_compare
from ffnbench.planning.sides import plan_sides
from ffnbench.planning.workload import device_of
from ffnbench.request import BlockRequest, CheckRequest, CompareRequest, SidesRequest
from ffnbench.run.runner import run


def plan_of(variants: str = "relu", **flags: Any) -> Plan:
    return plan_compare(CompareRequest(variants=variants, d_model=64, threads=1, **flags))


def works(variants: str = "relu", **flags: Any) -> list[Workload]:
    return [case.workload for case in plan_of(variants, **flags).cases]


@pytest.mark.parametrize("name", ["auto", "cpu", "cuda", "cuda:1", "CUDA:0", "xpu", "xpu:3", "mps"])
def test_devices_have_torchs_names(name: str) -> None:
    assert device_of(name) == name.lower()


@pytest.mark.parametrize(
    ("name", "hint"),
    [("quantum", "devices: auto"), ("rocm", "--device cuda"), ("hip:1", "--device cuda:1"), ("gpu", "--device cuda"),
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
    of_auto = plan_of(cache="cold")
    assert of_auto.cases[0].workload.time == "wall"
    assert of_auto.with_device("cuda").cases[0].workload.time == "device"
    assert of_auto.with_device("cpu").cases[0].workload.time == "wall"
    assert plan_of().with_device("cuda").cases[0].workload.time == "wall"


@pytest.mark.parametrize(
    ("flags", "said"),
    [({"device": "cpu", "time": "device"}, "a CPU has no time of its own"),
     ({"variants": "relu@time=device@device=cpu"}, "a CPU has no time of its own"),
     ({"variants": "relu@time=device", "device": "cpu"}, "a CPU has no time of its own"),
     ({"device": "cuda", "time": "wall", "cache": "cold"}, "calls of a cold cache are timed one by one"),
     ({"variants": "relu@cache=cold", "time": "wall"}, "calls of a cold cache are timed one by one"),
     ({"time": "gpu"}, "unknown time 'gpu'"), ({"cache": "warm"}, "unknown cache 'warm'")],
)  # fmt: skip
def test_what_contradicts_is_refused_in_a_plan(flags: dict[str, Any], said: str) -> None:
    with pytest.raises(FfnbenchError, match=said) as caught:
        plan_of(**flags)
    assert caught.value.hint


def test_block_and_ab_take_them_too() -> None:
    flags: dict[str, Any] = {
        "device": "cuda", "cache": "cold", "matmul_precision": "high", "dtype": "float32", "threads": 1,
    }  # fmt: skip
    block = plan_block(BlockRequest(d_model=64, **flags))
    model = plan_block(BlockRequest(preset="gpt2", time="device", device="cuda", threads=1))
    arms = (Arm(env=(("A", "1"),)), Arm())
    sides = plan_sides(SidesRequest(variant="relu", base_env=("A:1",), d_model=64, **flags), arms, (NoProbe(),) * 2)
    for case in (*block.cases, *sides.cases):
        work = case.workload
        assert (work.time, work.cache, work.matmul_precision) == ("device", "cold", "high")
    assert {case.workload.time for case in model.cases} == {"device"}


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


def test_auto_without_a_gpu_is_the_cpu() -> None:
    assert auto_device({**FACTS, "accelerator": None}) == "cpu"
    assert auto_device(FACTS) == "cpu"


@pytest.mark.parametrize("device", ["xpu", "mps", "xpu:1", "cuda:1"])
def test_a_device_of_another_kind_than_torch_sees_is_refused(device: str) -> None:
    with pytest.raises(FfnbenchError, match=f"device '{device}' was asked for, but torch"):
        run(plan_of(device=device, workers=3, rounds=1), launch=LaunchGPU())


def test_the_devices_time_is_refused_once_auto_is_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    launch = FakeLaunch()
    with pytest.raises(FfnbenchError, match="'relu': a CPU has no time of its own"):
        run(plan_of(time="device", workers=3, rounds=1), launch=launch)
    assert not launch.log
    monkeypatch.setattr(world, "MACHINE", world.Machine(no_gpu=lambda kind: f"no {kind} here"))
    with pytest.raises(FfnbenchError, match="'relu': a CPU has no time of its own"):  # before any process
        api.measure(api.prepare(CompareRequest(time="device", variants="relu", d_model=64)), launch=None)


def test_why_there_is_no_gpu_of_a_kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for platform, known in (("linux", "MPS is of macOS"), ("darwin", "")):
        monkeypatch.setattr(sys, "platform", platform)
        assert why_no_gpu("mps").startswith(known)
        assert bool(why_no_gpu("mps")) == bool(known)
    assert "no XPU for darwin" in why_no_gpu("xpu")
    monkeypatch.setattr(sys, "platform", "linux")
    files = {kind: (str(tmp_path / kind),) for kind in ("cuda", "xpu")}
    monkeypatch.setattr(environment, "GPU_FILES", files)
    monkeypatch.setattr(environment, "AMD", str(tmp_path / "kfd"))
    monkeypatch.setattr(environment, "NVIDIA", str(tmp_path / "nvidiactl"))
    for name in environment.HIDING:
        monkeypatch.delenv(name, raising=False)
    assert "no driver of an Intel GPU" in why_no_gpu("xpu")
    for kind in files:
        (tmp_path / kind).touch()
    builds = {"2.13.0+xpu": (False, True), "2.13.0+rocm7.0": (True, False), "2.13.0": (True, True)}
    for build, sees in builds.items():
        monkeypatch.setattr(environment, "version", lambda name, build=build: build)
        assert (not why_no_gpu("cuda"), not why_no_gpu("xpu")) == sees
    monkeypatch.setenv("HIP_VISIBLE_DEVICES", "-1")
    assert why_no_gpu("cuda") == ""  # a GPU of NVIDIA's does not read it
    (tmp_path / "kfd").touch()
    assert why_no_gpu("cuda") == "HIP_VISIBLE_DEVICES hides every GPU"


def test_a_shell_offers_them() -> None:
    assert completing.completer("time")("") == ["wall", "device"]
    assert {"xpu", "mps", "cuda", "cpu", "auto"} == set(completing.completer("device")(""))


def test_a_file_sets_them_and_python_takes_them(call, tmp_path: Path, monkeypatch) -> None:  # noqa: F811
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pyproject.toml").write_text(
        "[tool.ffnbench]\ncache = 'cold'\nmatmul_precision = 'medium'\nreduced_reductions = false\n"
    )
    code, out, _ = call("compare", "relu", "swiglu", "--d-model", "64", "--device", "cpu", "--quick", "-f", "csv")
    row = next(csv.DictReader(io.StringIO(out)))
    assert code == 0
    assert (row["cache"], row["matmul_precision"], row["latency_time"]) == ("cold", "medium", "wall")
    parameters = inspect.signature(ffnbench.compare).parameters
    assert {"time", "cache", "matmul_precision", "reduced_reductions"} <= parameters.keys()


def test_a_baseline_of_a_device_that_is_not_here_is_refused_before_anything_is_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def started(*_: object) -> Any:
        raise AssertionError("a process was started")

    monkeypatch.setattr(world, "MACHINE", world.Machine(launch=started, no_gpu=lambda kind: "there is none"))
    with pytest.raises(FfnbenchError, match="device 'cuda' was asked for, but there is none"):
        api.check(CheckRequest(baseline=str(ROOT / "tests/golden/cuda.json")))
