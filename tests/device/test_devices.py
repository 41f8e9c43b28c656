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
from ffnbench.device import environment, nvml
from ffnbench.device.environment import (
    about_gpus,
    usable_cpus,
    usable_memory,
)
from ffnbench.plan.plan import Plan

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
    nvml.handle_of.cache_clear()
    told = nvml.why_unseen("cuda")
    assert ("pip install 'ffnbench[cuda]'" in told) == hint
    assert nvml.throttled("cuda") is None
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
    launch.device = lambda name: A100 | told
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


def test_what_held_the_clocks_down_stands_in_each_sample() -> None:
    launch = launched(nvml_missing="NVML can't be used")
    launch.sample_fields = lambda label: {
        "throttled": "sw thermal slowdown" if label == "gelu" else ""
    }
    done = run(on("cuda"), launch=launch)
    held = {sample.case for sample in done.samples if sample.throttled}
    assert held == {"gelu"}
    notes = [note.text for note in done.warnings]
    assert "it was not seen whether cuda was throttled: NVML can't be used" in notes


@pytest.mark.parametrize(
    ("bits", "names"),
    [
        (0x00, ""),
        (0x01, ""),
        (0x04, "power cap"),
        (0x08, "hw slowdown"),
        (0x48, "hw thermal slowdown"),
        (0x24, "sw thermal slowdown, power cap"),
    ],
)
def test_the_reasons_are_those_of_nvml_h(bits: int, names: str) -> None:
    """By the bits nvmlClocksEventReason... of NVML's header; 0x01 is an idle GPU."""
    assert nvml.throttle_reasons(bits) == names


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


@pytest.mark.parametrize(
    ("cpus", "total"),
    [(range(8), 2 * (32 << 20)), (range(4), 32 << 20), ((9,), 32 << 20)],
)
def test_the_last_caches_are_those_of_the_cpus_that_may_be_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cpus: Any, total: int
) -> None:
    """Two of 32 MiB for four CPUs each, below them one of 1 MiB for each CPU; of CPU 9
    the kernel tells nothing, and 32 MiB are supposed.
    """
    for cpu in range(8):
        shared = "0-3" if cpu < 4 else "4-7"
        for index, (level, kind, size, of) in enumerate(
            [
                ("1", "Instruction", "64K", str(cpu)),
                ("2", "Unified", "1024K", str(cpu)),
                ("3", "Unified", "32M", shared),
            ]
        ):
            folder = tmp_path / f"cpu{cpu}" / "cache" / f"index{index}"
            folder.mkdir(parents=True)
            for name, text in (
                ("level", level),
                ("type", kind),
                ("size", size),
                ("shared_cpu_list", of),
            ):
                (folder / name).write_text(f"{text}\n")
    monkeypatch.setattr(environment, "_affinity", lambda: sorted(cpus))
    environment.last_cache_bytes.cache_clear()
    assert environment.last_cache_bytes(tmp_path) == total
    environment.last_cache_bytes.cache_clear()
