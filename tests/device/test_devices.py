"""Devices by scripts: what NVML says and doesn't, which are there, which go together,
what fits. No GPU is needed.
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from fake_machine import FakeLaunch, planned, run

from ffnbench.common.errors import FfnbenchError
from ffnbench.device import nvml
from ffnbench.device.environment import (
    about_gpus,
    usable_cpus,
    usable_memory,
)
from ffnbench.device.nvml import DeviceWatch, clock_advice
from ffnbench.plan.plan import Plan
from ffnbench.record.messages import DeviceFacts, Sampled
from ffnbench.record.result import DeviceReadings
from ffnbench.stats.verdict import summarise

A100 = {
    "gpu": "NVIDIA A100-SXM4-80GB",
    "gpu_memory_bytes": 80 << 30,
    "gpu_capability": "8.0",
    "gpu_free_bytes": 79 << 30,
}


@pytest.mark.parametrize(
    ("found", "hint"), [(None, True), (ModuleType("pynvml"), False)]
)
def test_without_nvml_a_gpu_says_what_is_missing_and_nothing_fails(
    monkeypatch: pytest.MonkeyPatch, found: ModuleType | None, hint: bool
) -> None:
    """It is not installed, or its driver does not answer."""
    monkeypatch.setitem(sys.modules, "pynvml", found)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: None)
    nvml.library.cache_clear()
    told = nvml.nvml_facts("cuda")
    assert set(told) == {"nvml_missing"}
    assert ("pip install 'ffnbench[cuda]'" in told["nvml_missing"]) == hint
    assert told["nvml_missing"] in clock_advice(DeviceFacts(**told))[0]
    sampled = Sampled(value=1.0)
    assert DeviceWatch().after(sampled, "cuda") == sampled
    nvml.library.cache_clear()


# The runner


def on(device: str, **options: Any) -> Plan:
    asked = {
        "variants": "relu,gelu",
        "d_model": 64,
        "workers": 3,
        "rounds": 6,
        "device": device,
        **options,
    }
    return planned(**asked)


def launched(count: int = 2, **told: Any) -> FakeLaunch:
    launch = FakeLaunch()
    names = [told.get("gpu", A100["gpu"])] * count
    launch.facts = {"gpus": count, "gpu_names": names, "cuda": "12.4"}
    launch.device = lambda name: A100 | {"driver": "550.54.15"} | told
    return launch


def test_a_device_that_is_not_there_is_told_with_those_that_are() -> None:
    with pytest.raises(
        FfnbenchError,
        match=r"'cuda:2' was asked for, but torch 2.0-fake has 2 CUDA devices",
    ) as caught:
        run(on("cuda:2"), launch=launched())
    assert (
        caught.value.hint
        == "there is cuda:0 (NVIDIA A100-SXM4-80GB), cuda:1 (NVIDIA A100-SXM4-80GB)"
    )


TOO_OLD = (  # c10/cuda/CUDAFunctions.cpp
    "CUDA initialization: The NVIDIA driver on your system is too old (found version 11040). Please update your GPU "
    "driver by downloading and installing a new version from the URL: http://www.nvidia.com/Download/index.aspx "
    "Alternatively, go to: https://pytorch.org to install a PyTorch version that has been compiled with your version "
    "of the CUDA driver. "
    "(Triggered internally at /pytorch/c10/cuda/CUDAFunctions.cpp:109.)"
)


def test_a_driver_too_old_is_one_error_in_torchs_words(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def warn() -> bool:
        warnings.warn(TOO_OLD, stacklevel=2)
        return False

    monkeypatch.setattr(torch.cuda, "is_available", warn)
    launch = FakeLaunch()
    launch.facts = about_gpus()
    assert launch.facts["gpus"] == 0
    with pytest.raises(
        FfnbenchError,
        match=r"can't use it: The NVIDIA driver on your system is too old",
    ) as caught:
        run(on("cuda"), launch=launch)
    assert "nvidia-smi" in caught.value.hint
    by_itself = run(on("auto"), launch=launch)
    assert {case.workload.device for case in by_itself.plan.cases} == {"cpu"}
    assert [
        note.text
        for note in by_itself.warnings
        if "measured on the CPU: The NVIDIA driver" in note.text
    ]


def test_what_fits_is_foretold_from_the_free_memory_of_the_device() -> None:
    plan = on("cuda:1", d_model=4096, d_ff=16384, match="none")
    assert run(plan, launch=launched()).failures == ()
    launch = launched(gpu_free_bytes=1 << 28)
    failures = run(plan, launch=launch).failures
    assert {failure.case for failure in failures} == {case.label for case in plan.cases}
    assert "243 MiB are available on cuda:1" in failures[0].message
    assert not any(job in ("begin", "open") for _, job, _ in launch.log)
    assert (
        run(plan, launch=launched(gpu_free_bytes=None)).failures == ()
    )  # not known: it is tried


def test_what_a_worker_saw_of_its_device_is_kept_and_told_in_one_line() -> None:
    launch, clocks = launched(), iter([1980, 1965, 1410] * 99)
    launch.sample_fields = lambda label: {
        "throttled": "power cap" if label == "gelu" else "",
        "clock_mhz": next(clocks),
        "others": 2,
    }
    done = run(on("cuda"), launch=launch)
    assert done.devices[0] == DeviceReadings(
        worker=0,
        device="cuda",
        least_clock_mhz=1410,
        most_clock_mhz=1980,
        others=2,
    )
    assert [seen.worker for seen in done.devices] == [0, 1, 2]
    notes = [note.text for note in summarise(done)[2]]
    assert "2 other processes computed on cuda" in notes


@pytest.mark.parametrize(
    ("quota", "limit", "cpus", "gigabytes"),
    [("max 100000", "max", 4, 40), ("250000 100000", "16000000000", 2, 10), ("50000 100000", "5000000000", 1, 0),
     ("900000 100000", "90000000000", 4, 40), (None, None, 4, 40)],
)  # fmt: skip
def test_a_container_has_what_its_limits_leave(
    monkeypatch, quota, limit, cpus: int, gigabytes: int
) -> None:
    """Of a machine of 4 CPUs and 40 GB that are free, in a cgroup that uses 6 GB
    already.
    """
    told = {"cpu.max": quota, "memory.max": limit, "memory.current": limit and "6000000000",
            "meminfo": "MemFree: 7 kB\nMemAvailable: 39062500 kB\n"}  # fmt: skip

    def read_text(path: Path, **_: object) -> str:
        if told.get(path.name) is None:
            raise FileNotFoundError(path)
        return f"{told[path.name]}\n"

    monkeypatch.setattr(Path, "read_text", read_text)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: range(4), raising=False)
    assert usable_cpus() == cpus
    assert 0.93e9 * gigabytes <= usable_memory() <= 1e9 * gigabytes
