"""Where a run happens: the machine and its caches, its devices, the software, and advice on how quiet it is.

No torch in the parent. The functions `about_...` run in a worker; `describe` joins what they tell with what the parent
knows.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import warnings
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ffnbench import __version__
from ffnbench.messages import CacheLevel, DeviceFacts, Greeting
from ffnbench.result import MEMORY, Environment

if TYPE_CHECKING:
    import torch

    from ffnbench.device.accelerator import Accelerator

USABLE = 0.95  # of the memory that is available: the rest keeps the machine alive
# the beginnings of variables that change how fast torch is, or which libraries it finds
SPEAKING = (
    "OMP_", "GOMP_", "KMP_", "MKL_", "ONEDNN_", "DNNL_", "OPENBLAS_", "BLIS_", "TORCH", "PYTORCH_", "ATEN_", "CUDA_",
    "CUBLAS", "CUDNN_", "NVIDIA_", "TRITON_", "HIP_", "HSA_", "ROCR_", "ROCM_", "MIOPEN_", "ROCBLAS_", "HIPBLASLT_",
    "MALLOC_", "GLIBC_TUNABLES", "LD_PRELOAD", "LD_LIBRARY_PATH", "PYTHONMALLOC", "PYTHONOPTIMIZE", "PYTHON_GIL",
)  # fmt: skip
# what a driver leaves in the file system: NVIDIA's, Jetson's, that of WSL, AMD's
GPU_FILES = ("/dev/nvidiactl", "/dev/nvidia0", "/dev/nvhost-ctrl-gpu", "/dev/nvmap", "/dev/dxg", "/dev/kfd")


CPUS = Path("/sys/devices/system/cpu")
UNKNOWN_CACHE = 1 << 25  # bytes, where the kernel does not tell


def usable_cpus() -> int:
    """CPUs that this process may really use: the affinity mask and the quota of cgroup v2, whichever is less."""
    affinity = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota, _, period = (_read("/sys/fs/cgroup/cpu.max") or "max").partition(" ")
    return affinity if quota == "max" else max(1, min(affinity, int(quota) // int(period)))


def usable_memory() -> int | None:
    """Bytes that a worker may take: of the kernel's estimate and the cgroup's limit, whichever is less, the share that
    leaves the machine alive; None where that is not known.
    """
    found = re.search(r"^MemAvailable:\s*(\d+)", _read("/proc/meminfo") or "", re.M)
    if found is None:
        return None
    free, limit, used = (
        1024 * int(found[1]),
        *map(_read, ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current")),
    )
    if limit and used and limit != "max":
        free = min(free, max(0, int(limit) - int(used)))
    return int(USABLE * free)


def why_no_gpu() -> str:
    """Why there can be no GPU here, told without torch; empty where there may be one."""
    if any(Path(file).exists() for file in GPU_FILES):
        return ""
    return f"no GPU driver was found (no {GPU_FILES[0]})"


def about_machine() -> dict[str, Any]:
    """What the system says of the machine that a worker runs on: fields of its Greeting."""
    return {
        "cpu": _cpu_name(),
        "cpus": os.cpu_count() or 1,
        "usable_cpus": usable_cpus(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "usable_bytes": usable_memory(),
        "machine": platform.machine(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "caches": [asdict(level) for level in caches()],
    }


def caches(root: Path = CPUS, cpus: Iterable[int] | None = None) -> tuple[CacheLevel, ...]:
    """Those that hold data, the smallest first; empty where the kernel does not tell.

    https://www.kernel.org/doc/Documentation/ABI/testing/sysfs-devices-system-cpu
    """
    sizes: dict[int, int] = {}
    groups: dict[int, set[str]] = {}
    if cpus is None:
        cpus = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else ()  # macOS has no such files
    for cpu in cpus:
        for index in sorted((root / f"cpu{cpu}" / "cache").glob("index*")):
            try:
                level, kind, size, shared = (
                    (index / name).read_text(encoding="ascii").strip()
                    for name in ("level", "type", "size", "shared_cpu_list")
                )
                found, number = _bytes(size), int(level)
            except (OSError, ValueError):
                continue
            if kind in ("Data", "Unified") and found > 0:
                sizes[number] = min(found, sizes.get(number, found))
                groups.setdefault(number, set()).add(shared)
    return tuple(CacheLevel(level=level, bytes=sizes[level], instances=len(groups[level])) for level in sorted(sizes))


def _bytes(text: str) -> int:
    """`512K` or `32M` of the kernel."""
    units = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
    return int(text[:-1]) * units[text[-1]] if text[-1:] in units else int(text)


def level_of(size: int, threads: int, found: Iterable[CacheLevel]) -> str:
    """The smallest cache that holds so many bytes, memory where none does; empty where no cache is known."""
    known = tuple(found)
    name = next((f"L{cache.level}" for cache in known if size <= cache.capacity(threads)), MEMORY)
    return name if known else ""


def auto_device(greeting: Greeting) -> str:
    """What `auto` becomes where a worker greets so."""
    return "cuda" if greeting.gpus else "cpu"


def about_torch() -> dict[str, Any]:
    """What torch says of itself, which GPUs it sees, and what speaks to it: fields of a worker's Greeting.

    Of the variables only those that speak to torch, its libraries and the loader are told: others may be secrets.
    """
    import torch

    from ffnbench.device.waiting import source, threads_of

    gpus = about_gpus()  # first of all: torch says only once why it sees none
    blas = re.search(r"BLAS_INFO=(\w+)", torch.__config__.show())
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "torch_commit": torch.version.git_version,
        "torch_threads": torch.get_num_threads(),
        "waits": source(threads_of()),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "blas": blas[1] if blas else None,
        "cuda": torch.version.cuda,
        "hip": torch.version.hip,
        "variables": [(name, value) for name, value in os.environ.items() if name.startswith(SPEAKING)],
        **gpus,
    }


def about_gpus() -> dict[str, Any]:
    """How many there are and their names; and what torch says where it was built for some and sees none: once in a
    process, by a warning.
    """
    import torch

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    said = (" ".join(str(one.message).split()) for one in caught)
    why = next((text for text in said if "driver" in text or "initializ" in text), "")
    names = [torch.cuda.get_device_name(index) for index in range(count)]
    return {"gpus": count, "gpu_names": names, "no_gpu": "" if count else why}


def about_device(device: str) -> DeviceFacts:
    """The GPU that a case will use, how much of its memory is free, and what its driver tells. Called in a worker."""
    import torch

    from ffnbench.device import nvml

    accelerator = accelerator_of(device)
    assert accelerator is not None
    properties = torch.cuda.get_device_properties(device)
    if torch.version.hip is None:
        capability: str | None = f"{properties.major}.{properties.minor}"
        of_driver = nvml.facts(device)
    else:
        capability, of_driver = getattr(properties, "gcnArchName", None), {}
    return DeviceFacts(
        gpu=torch.cuda.get_device_name(device),
        gpu_memory_bytes=properties.total_memory,
        gpu_free_bytes=accelerator.free_bytes(),
        gpu_capability=capability,
        **of_driver,
    )


def accelerator_of(device: str | torch.device) -> Accelerator | None:
    """The one accelerator of that name in this worker; None for the CPU."""
    name = str(device)
    if not name.startswith("cuda"):
        return None
    from ffnbench.device.accelerator import of_name

    return of_name(name)


def known_device(name: str) -> str:
    """The name of a workload's device; of `auto` what that is in this worker."""
    import torch

    return ("cuda" if torch.cuda.is_available() else "cpu") if name == "auto" else name


def place_of(device: str) -> torch.device:
    """Where tensors of a workload's device live."""
    import torch

    found = accelerator_of(device)
    return torch.device(device) if found is None else found.device


def describe(greeting: Greeting, device: DeviceFacts | None = None) -> Environment:
    """The environment of a run, from what a worker says of itself and of the GPU that is used, None on a CPU."""
    from ffnbench.common.git import head

    gpu = device or DeviceFacts()
    commit, dirty = head(Path())
    return Environment(
        fingerprint=_fingerprint(greeting, gpu),
        cpu=greeting.cpu,
        cpus=greeting.cpus,
        usable_cpus=greeting.usable_cpus,
        memory_bytes=greeting.memory_bytes,
        system=greeting.system,
        python=greeting.python or platform.python_version(),
        ffnbench=__version__,
        torch=greeting.torch,
        torch_threads=greeting.torch_threads,
        cpu_capability=greeting.cpu_capability,
        blas=greeting.blas,
        waits=greeting.waits,
        allocator=greeting.allocator,
        cuda=greeting.cuda,
        hip=greeting.hip,
        gpu=gpu.gpu,
        gpu_memory_bytes=gpu.gpu_memory_bytes,
        gpu_capability=gpu.gpu_capability,
        gpu_uuid=gpu.gpu_uuid,
        driver=gpu.driver,
        gpu_power_limit_w=gpu.gpu_power_limit_w,
        gpu_max_clock_mhz=gpu.gpu_max_clock_mhz,
        gpu_ecc=gpu.gpu_ecc,
        git_commit=commit,
        git_dirty=dirty,
    )


def _fingerprint(greeting: Greeting, gpu: DeviceFacts) -> str:
    """The name of this kind of machine and software: of what latency depends on, and nobody changes from run to run."""
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
    of_device = {
        "hip": greeting.hip,
        "gpu_capability": gpu.gpu_capability,
        "gpu_memory_bytes": gpu.gpu_memory_bytes,
        "driver": gpu.driver,
        "gpu_power_limit_w": gpu.gpu_power_limit_w,
        "gpu_max_clock_mhz": gpu.gpu_max_clock_mhz,
        "gpu_ecc": gpu.gpu_ecc,
    }
    identity += tuple((name, value) for name, value in of_device.items() if value is not None)
    return hashlib.sha256(repr(identity).encode()).hexdigest()[:12]


def advice() -> list[str]:
    """What makes this machine noisy now, each with what to do about it."""
    found = []
    load, cpus = os.getloadavg()[0], os.cpu_count() or 1
    if load > 0.3 * cpus:
        found.append(f"load average is {load:.1f} on {cpus} CPUs: something else runs here; wait or stop it")
    governor = _read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
    if governor and governor != "performance":
        found.append(f"the CPU governor is {governor!r}: clocks will change; `cpupower frequency-set -g performance`")
    boost = _read("/sys/devices/system/cpu/cpufreq/boost") == "1"
    if boost or _read("/sys/devices/system/cpu/intel_pstate/no_turbo") == "0":
        text = "turbo is on: clocks depend on temperature and on the other cores"
        found.append(f"{text}; switch it off for steadier seconds")
    if "hypervisor" in (_read("/proc/cpuinfo") or ""):
        found.append("virtual machine: others may share its cores; compare ratios, not seconds")
    siblings = _read("/sys/devices/system/cpu/cpu0/topology/thread_siblings_list")
    if siblings and siblings != "0":
        found.append(f"CPUs {siblings} share one core: `--threads` at the number of cores is steadier")
    return found


def _cpu_name() -> str:
    name = re.search(r"^model name\s*: (.*)$", _read("/proc/cpuinfo") or "", re.M)
    return name[1].strip() if name else platform.processor() or platform.machine()


def _read(path: str) -> str | None:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None
