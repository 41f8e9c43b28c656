"""Describes where a run happens: the machine and its caches, its devices, the software,
and what makes the machine noisy.

The parent does not load torch. The functions `about_...` run in a worker;
`environment_of_run` joins what they return with what the parent knows.
"""

from __future__ import annotations

import hashlib
import math
import os
import platform
import re
import warnings
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ffnbench import __version__
from ffnbench.common.choices import ROTATED_BYTES
from ffnbench.record.result import Environment

if TYPE_CHECKING:
    import torch

    from ffnbench.device.accelerator import Accelerator
    from ffnbench.record.messages import DeviceFacts, Greeting

# the share of the available memory that a worker may take: without the rest the machine
# would stop
USABLE = 0.95
# files of GPU drivers: of NVIDIA, Jetson, WSL and AMD
GPU_FILES = (
    "/dev/nvidiactl",
    "/dev/nvidia0",
    "/dev/nvhost-ctrl-gpu",
    "/dev/nvmap",
    "/dev/dxg",
    "/dev/kfd",
)


CPUS = Path("/sys/devices/system/cpu")
# bytes that the last cache is taken to hold where the kernel does not tell
UNKNOWN_CACHE = 1 << 25


def usable_cpus() -> int:
    """The number of CPUs that this process may really use: that of the affinity mask or
    of the quota of cgroup v2, whichever is less.
    """
    cpus = len(_affinity()) or os.cpu_count() or 1
    quota, _, period = (_read("/sys/fs/cgroup/cpu.max") or "max").partition(" ")
    if quota == "max":
        return cpus
    return max(1, min(cpus, int(quota) // int(period)))


def _affinity() -> list[int]:
    """The CPUs that this process may run on; none on macOS, which does not tell."""
    if not hasattr(os, "sched_getaffinity"):
        return []
    return sorted(os.sched_getaffinity(0))


def usable_memory() -> int | None:
    """Bytes that a worker may take: the share USABLE of what the kernel takes for
    available or of what the cgroup's limit leaves, whichever is less; None where that
    is not known.
    """
    available = re.search(r"^MemAvailable:\s*(\d+)", _read("/proc/meminfo") or "", re.M)
    if available is None:
        return None
    free = 1024 * int(available[1])
    limit = _read("/sys/fs/cgroup/memory.max")
    used = _read("/sys/fs/cgroup/memory.current")
    if limit and used and limit != "max":
        free = min(free, max(0, int(limit) - int(used)))
    return int(USABLE * free)


def why_no_gpu() -> str:
    """Why there can be no GPU here, found without torch; empty where there may be
    one.
    """
    if any(Path(file).exists() for file in GPU_FILES):
        return ""
    return f"no GPU driver was found (no {GPU_FILES[0]})"


def about_machine() -> dict[str, Any]:
    """What the system says of the machine that a worker runs on: fields of its
    Greeting.
    """
    return {
        "cpu": _cpu_name(),
        "cpus": os.cpu_count() or 1,
        "usable_cpus": usable_cpus(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "usable_bytes": usable_memory(),
        "machine": platform.machine(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
    }


@cache
def last_cache_bytes(root: Path = CPUS) -> int:
    """Bytes of all last caches that hold data of the CPUs that this process may run on;
    UNKNOWN_CACHE where the kernel does not tell.

    https://www.kernel.org/doc/Documentation/ABI/testing/sysfs-devices-system-cpu
    """
    sizes: dict[tuple[int, str], int] = {}  # by level, and the CPUs that share one
    for cpu in _affinity():
        for folder in (root / f"cpu{cpu}" / "cache").glob("index*"):
            level, size, kind, shared = (
                _read(str(folder / name)) or ""
                for name in ("level", "size", "type", "shared_cpu_list")
            )
            if level and size and kind in ("Data", "Unified"):
                sizes[int(level), shared] = _bytes(size)
    last = max((level for level, _ in sizes), default=0)
    total = sum(size for (level, _), size in sizes.items() if level == last)
    return total or UNKNOWN_CACHE


def _bytes(text: str) -> int:
    """The bytes of a size as the kernel writes it, `512K` or `32M`."""
    units = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
    if text[-1:] in units:
        return int(text[:-1]) * units[text[-1]]
    return int(text)


def rotated_copies(weight_bytes: int) -> int:
    """How many copies of weights of so many bytes no cache holds: together they have
    ROTATED_BYTES, or four times the last caches where that is more; at least two.

    ROTATED_BYTES: with 48 MiB of weights a layer was 18.8 % off its time inside of a
    model, with 512 MiB 1.1 % (github.com/ROCm/vllm/pull/1065).
    """
    together = max(4 * last_cache_bytes(), ROTATED_BYTES)
    return max(2, math.ceil(together / weight_bytes))


def auto_device(greeting: Greeting) -> str:
    """The device that `auto` stands for on the machine of a worker's greeting."""
    return "cuda" if greeting.gpus else "cpu"


def about_torch() -> dict[str, Any]:
    """What torch says of itself, and which GPUs it sees: fields of a worker's
    Greeting.
    """
    import torch

    from ffnbench.device.waiting import threads_of, wait_source

    gpus = about_gpus()  # first of all: torch says only once why it sees none
    blas = re.search(r"BLAS_INFO=(\w+)", torch.__config__.show())
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "torch_commit": torch.version.git_version,
        "torch_threads": torch.get_num_threads(),
        "waits": wait_source(threads_of()),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "blas": blas[1] if blas else None,
        "cuda": torch.version.cuda,
        "hip": torch.version.hip,
        **gpus,
    }


def about_gpus() -> dict[str, Any]:
    """How many GPUs torch sees and their names; or, where it was built for some and
    sees none, why. torch says this once in a process, by a warning.
    """
    import torch

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    names = [torch.cuda.get_device_name(index) for index in range(count)]
    facts: dict[str, Any] = {"gpus": count, "gpu_names": names}
    if names:
        return facts
    texts = [" ".join(str(warning.message).split()) for warning in caught]
    reasons = [text for text in texts if "driver" in text or "initializ" in text]
    return facts | {"no_gpu": reasons[0] if reasons else ""}


def about_device(device: str) -> DeviceFacts:
    """What the GPU is that a case will use, how much of its memory is free, and why
    its clocks can't be seen. Called in a worker.
    """
    import torch

    from ffnbench.device.nvml import why_unseen
    from ffnbench.record.messages import DeviceFacts

    accelerator = accelerator_of(device)
    assert accelerator is not None
    properties = torch.cuda.get_device_properties(device)
    if torch.version.hip is None:
        capability: str | None = f"{properties.major}.{properties.minor}"
        missing = why_unseen(device)
    else:
        capability, missing = getattr(properties, "gcnArchName", None), ""
    return DeviceFacts(
        gpu=torch.cuda.get_device_name(device),
        gpu_memory_bytes=properties.total_memory,
        gpu_free_bytes=accelerator.free_bytes(),
        gpu_capability=capability,
        nvml_missing=missing,
    )


def accelerator_of(device: str | torch.device) -> Accelerator | None:
    """The accelerator of this name, of which a worker has one; None for the CPU."""
    name = str(device)
    if not name.startswith("cuda"):
        return None
    from ffnbench.device.accelerator import of_name

    return of_name(name)


def resolved_device(name: str) -> str:
    """A workload's device, with `auto` replaced by what it stands for in this
    worker.
    """
    import torch

    if name != "auto":
        return name
    return "cuda" if torch.cuda.is_available() else "cpu"


def torch_device(device: str) -> torch.device:
    """The torch.device of a workload's device."""
    import torch

    accelerator = accelerator_of(device)
    if accelerator is None:
        return torch.device(device)
    return accelerator.device


# fields of a worker's Greeting, and of its DeviceFacts, that are saved with a run only
# for its reader
FACTS_OF_WORKER = (
    "cpus",
    "memory_bytes",
    "system",
    "python",
    "torch_threads",
    "blas",
    "waits",
    "allocator",
    "cuda",
    "hip",
)
FACTS_OF_DEVICE = ("gpu_capability", "gpu_memory_bytes")


def environment_of_run(
    greeting: Greeting, device: DeviceFacts | None = None
) -> Environment:
    """The environment of a run, from what a worker says of itself and of the GPU that
    is used; `device` is None on a CPU.
    """
    from ffnbench.common.git import head
    from ffnbench.record.messages import DeviceFacts

    gpu = device or DeviceFacts()
    commit, dirty = head(Path())
    facts = {name: getattr(greeting, name) for name in FACTS_OF_WORKER}
    facts |= {name: getattr(gpu, name) for name in FACTS_OF_DEVICE}
    facts["ffnbench"] = __version__
    return Environment(
        fingerprint=_fingerprint(greeting, gpu),
        cpu=greeting.cpu,
        usable_cpus=greeting.usable_cpus,
        cpu_capability=greeting.cpu_capability,
        gpu=gpu.gpu,
        torch=greeting.torch,
        git_commit=commit,
        git_dirty=dirty,
        facts={name: value for name, value in facts.items() if value is not None},
    )


def _fingerprint(greeting: Greeting, gpu: DeviceFacts) -> str:
    """A name for this kind of machine and software: a hash of all that latency depends
    on and that does not change from run to run.
    """
    identity: tuple[object, ...] = (
        greeting.cpu,
        greeting.usable_cpus,
        greeting.machine,
        greeting.cpu_capability,
        greeting.torch,
        greeting.blas,
        gpu.gpu,
        greeting.cuda,
    )
    if greeting.hip is not None:
        identity += (("hip", greeting.hip),)
    for name in FACTS_OF_DEVICE:
        value = getattr(gpu, name)
        if value is not None:
            identity += ((name, value),)
    return hashlib.sha256(repr(identity).encode()).hexdigest()[:12]


def noise_advice() -> list[str]:
    """Sentences on what makes this machine noisy now, each with what to do about it."""
    texts = []
    load, cpus = os.getloadavg()[0], os.cpu_count() or 1
    if load > 0.3 * cpus:
        texts.append(
            f"load average is {load:.1f} on {cpus} CPUs: something else runs here; wait or stop it"
        )
    governor = _read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
    if governor and governor != "performance":
        texts.append(
            f"the CPU governor is {governor!r}: clocks will change; `cpupower frequency-set -g performance`"
        )
    boost = _read("/sys/devices/system/cpu/cpufreq/boost") == "1"
    if boost or _read("/sys/devices/system/cpu/intel_pstate/no_turbo") == "0":
        text = "turbo is on: clocks depend on temperature and on the other cores"
        texts.append(f"{text}; switch it off for steadier seconds")
    if "hypervisor" in (_read("/proc/cpuinfo") or ""):
        texts.append(
            "virtual machine: others may share its cores; compare ratios, not seconds"
        )
    siblings = _read("/sys/devices/system/cpu/cpu0/topology/thread_siblings_list")
    if siblings and siblings != "0":
        texts.append(
            f"CPUs {siblings} share one core: `--threads` at the number of cores is steadier"
        )
    return texts


def _cpu_name() -> str:
    name = re.search(r"^model name\s*: (.*)$", _read("/proc/cpuinfo") or "", re.M)
    if name:
        return name[1].strip()
    return platform.processor() or platform.machine()


def _read(path: str) -> str | None:
    """The text of a file; None where it can't be read."""
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None
