"""Where a run happens: the machine, the software, and advice on how quiet it is. No torch in the parent.

`about_torch` runs in a worker and is sent along with its greeting; `describe` joins both halves.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import sys
import warnings
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from ffnbench import __version__
from ffnbench.device import nvml
from ffnbench.device.waiting import source, threads_of
from ffnbench.git import head
from ffnbench.plan import Plan
from ffnbench.result import Environment

USABLE = 0.95  # of the memory that is available: the rest keeps the machine alive
# the beginnings of variables that change how fast torch is, or which libraries it finds
SPEAKING = (
    "OMP_", "GOMP_", "KMP_", "MKL_", "ONEDNN_", "DNNL_", "OPENBLAS_", "BLIS_", "TORCH", "PYTORCH_", "ATEN_", "CUDA_",
    "CUBLAS", "CUDNN_", "NVIDIA_", "TRITON_", "HIP_", "HSA_", "ROCR_", "ROCM_", "MIOPEN_", "ROCBLAS_", "HIPBLASLT_",
    "TENSILE_", "SYCL_", "ZE_", "ONEAPI_", "MALLOC_", "GLIBC_TUNABLES", "LD_PRELOAD", "LD_LIBRARY_PATH", "PYTHONMALLOC",
    "PYTHONOPTIMIZE", "PYTHON_GIL",
)  # fmt: skip
NAMED_TWICE = ("TORCH_VERSION", "COMMIT_SHA")  # of the build settings: what names the version once more


def usable_cpus() -> int:
    """CPUs that this process may really use: the affinity mask and the cgroup's quota, whichever is less."""
    affinity = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = _cgroup_quota()
    return max(1, min(affinity, int(quota))) if quota else affinity


def physical_cpus() -> int:
    """Cores behind the CPUs that this process may use: two threads of one core are one."""
    if not hasattr(os, "sched_getaffinity"):
        return os.cpu_count() or 1
    path = "/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list"
    return len({_read(path.format(cpu)) or str(cpu) for cpu in os.sched_getaffinity(0)})


def _cgroup_quota() -> float | None:
    """CPUs by quota: cgroup v2's cpu.max, v1's cfs_quota_us, or None."""
    if text := _read("/sys/fs/cgroup/cpu.max"):
        quota, period = text.split()
        return None if quota == "max" else int(quota) / int(period)
    quota_us, period_us = (_read(f"/sys/fs/cgroup/cpu/cpu.cfs_{name}_us") for name in ("quota", "period"))
    return int(quota_us) / int(period_us) if quota_us and period_us and int(quota_us) > 0 else None


def usable_memory() -> int | None:
    """Bytes that a worker may take: the share of what is available that leaves the machine alive; None: not known."""
    available = _available_memory()
    return None if available is None else int(USABLE * available)


def memory_for(plan: Plan) -> int | None:
    """Usable bytes for what a plan measures on CPU; None where `auto` will become a GPU, or it asks for one."""
    devices = {case.workload.device.partition(":")[0] for case in plan.cases}
    if devices - {"auto", "cpu"} or ("auto" in devices and Path("/dev/nvidiactl").exists()):
        return None
    return usable_memory()


# what a driver leaves in Linux's file system, by what torch calls the kind of its GPUs
GPU_FILES = {
    "cuda": (  # of NVIDIA's driver, of Jetson's, of Windows' for Linux, of AMD's
        "/dev/nvidiactl", "/dev/nvidia0", "/proc/driver/nvidia", "/dev/nvhost-ctrl-gpu", "/dev/nvmap", "/dev/dxg",
        "/dev/kfd",
    ),
    "xpu": ("/dev/dri", "/dev/dxg"),
}  # fmt: skip
OTHER_BUILDS = {"cuda": ("cpu", "xpu"), "xpu": ("cpu", "cu", "rocm")}  # of torch, by how the version ends
HIDING = "CUDA_VISIBLE_DEVICES"


def why_no_gpu(kind: str = "cuda") -> str:
    """Why torch can see no GPU of that kind in this process, told without loading it; empty where it may see one.

    `kind` is cuda, of NVIDIA and of AMD, xpu, of Intel, or mps, of Apple.
    """
    if kind == "mps":
        return "" if sys.platform == "darwin" else f"MPS is of macOS, and this is {sys.platform}"
    if sys.platform != "linux":
        return "" if sys.platform == "win32" else f"there is no {kind.upper()} for {sys.platform}"
    if not any(Path(file).exists() for file in GPU_FILES[kind]):
        return f"this machine has no driver of {'an Intel' if kind == 'xpu' else 'a'} GPU (no {GPU_FILES[kind][0]})"
    if kind == "cuda" and os.environ.get(HIDING, "0") in ("", "-1"):
        return f"{HIDING} hides every GPU"
    try:
        torch = version("torch")
    except PackageNotFoundError:
        return ""
    build = torch.partition("+")[2]
    return f"torch {torch} is built without {kind.upper()}" if build.startswith(OTHER_BUILDS[kind]) else ""


def auto_device(facts: Mapping[str, Any]) -> str:
    """What `auto` becomes, from a worker's greeting: the accelerator that torch names, where it sees one."""
    return str(facts.get("accelerator") or "cuda") if facts["gpus"] else "cpu"


def _available_memory() -> int | None:
    """Bytes that can be allocated now: the kernel's estimate and the cgroup's limit, whichever is less."""
    free = None
    for line in (_read("/proc/meminfo") or "").splitlines():
        if line.startswith("MemAvailable:"):
            free = int(line.split()[1]) * 1024
    limit, used = _read("/sys/fs/cgroup/memory.max"), _read("/sys/fs/cgroup/memory.current")
    if free is not None and limit and used and limit != "max":
        return min(free, max(0, int(limit) - int(used)))
    return free


def about_torch() -> dict[str, Any]:
    """What torch says of itself, and which accelerators it sees; called in a worker."""
    import torch

    accelerators = about_accelerators()  # first of all: torch says only once why it sees none
    blas = re.search(r"BLAS_INFO=(\w+)", torch.__config__.show())
    return {
        "python": platform.python_version(),
        "build": about_build(),
        "version": torch.__version__,
        "threads": torch.get_num_threads(),
        "waits": source(threads_of()),
        "capability": torch.backends.cpu.get_cpu_capability(),
        "blas": blas[1] if blas else None,
        "cuda": torch.version.cuda,
        "hip": torch.version.hip,
        **accelerators,
    }


def about_accelerators() -> dict[str, Any]:
    """The kind that torch names (cuda is AMD's too), how many there are, their names; and what torch says where it was
    built for one and sees none: once in a process, by a warning.
    """
    import torch

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        there = torch.accelerator.is_available() or torch.cuda.is_available()
    found = torch.accelerator.current_accelerator() if there else None
    if found is None:
        said = [" ".join(str(one.message).split()) for one in caught]
        why = next((text for text in said if "initializ" in text or "driver" in text), "")
        return {"accelerator": None, "gpus": 0, "gpu_names": [], "no_gpu": why}
    count = torch.accelerator.device_count()
    names = [_device_name(f"{found.type}:{index}") for index in range(count)]
    return {"accelerator": found.type, "gpus": count, "gpu_names": names, "no_gpu": ""}


def _device_name(device: str) -> str:
    """What its driver calls it; Apple's has one name."""
    import torch

    name = getattr(getattr(torch, device.partition(":")[0], None), "get_device_name", None)
    return str(name(device)) if name else device.partition(":")[0].upper()


def about_device(device: str, label: str = "") -> dict[str, Any]:
    """Job: the device that a case will use, how much of its memory is free, and what its driver tells."""
    import torch

    from ffnbench.device.accelerator import accelerator_of

    kind = device.partition(":")[0]
    accelerator = accelerator_of(device)
    properties = getattr(getattr(torch, kind, None), "get_device_properties", None)
    found = properties(device) if properties else None
    capability = f"{found.major}.{found.minor}" if found and hasattr(found, "major") else None
    told = {
        "device": device,
        "gpu": _device_name(device),
        "gpu_memory_bytes": getattr(found, "total_memory", None),
        "gpu_free_bytes": accelerator.free_bytes() if accelerator else None,
        "gpu_capability": getattr(found, "gcnArchName", None) if torch.version.hip else capability,
    }
    of_nvidia = kind == "cuda" and torch.version.cuda is not None
    return told | (nvml.facts(device) if of_nvidia else {})


def about_build() -> dict[str, str]:
    """Everything in which two workers may differ and latency may depend on: called in a worker, shown where it differs.

    Of the variables only those that speak to torch, its libraries and the loader are told: others may be secrets.
    """
    import torch

    config, accelerators = torch.__config__.show(), about_accelerators()
    found = {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "torch commit": torch.version.git_version,
        "default threads": torch.get_num_threads(),
        "CPU capability": torch.backends.cpu.get_cpu_capability(),
        "CUDA": torch.version.cuda,
        "HIP": torch.version.hip,
        "cuDNN": torch.backends.cudnn.version() if accelerators["accelerator"] == "cuda" else None,
        "GPU": ", ".join(dict.fromkeys(accelerators["gpu_names"])) or None,
        "float32 matmul": torch.get_float32_matmul_precision(),
    }
    settings = re.search(r"Build settings: (.*?)[, ]*$", config, re.M)
    named = re.findall(r"(\w+)=(.*?)(?:, |$)", settings[1] if settings else "")
    found |= {f"build {name}": value.strip() for name, value in named if name not in NAMED_TWICE}
    found |= dict(re.findall(r"^  - (?!Build)(.*?)(?: Version)?:? (v?\d.*)$", config, re.M))
    told = {name: str(value) for name, value in found.items() if value is not None}
    return told | {name: value for name, value in os.environ.items() if name.startswith(SPEAKING)}


# of the device that is used: what its speed depends on and nobody changes from run to run, which the fingerprint holds
OF_DEVICE = (
    "hip", "gpu_capability", "gpu_memory_bytes", "driver", "gpu_power_limit_w", "gpu_max_clock_mhz",
    "gpu_application_clock_mhz", "gpu_ecc", "gpu_mig",
)  # fmt: skip
TOLD = ("blas", "waits", "allocator", "gpu", "cuda", "gpu_uuid", "gpu_persistence", *OF_DEVICE)


def describe(facts: dict[str, Any] | None) -> Environment:
    """The environment of this run; `facts` come from a worker's greeting, and from what it says of the device that is
    used (`about_device`); None where there was none.
    """
    facts = facts or {}
    commit, dirty = head(Path())
    cpu, usable = cpu_name(), usable_cpus()
    identity = (
        cpu, usable, platform.machine(),
        *(facts.get(name) for name in ("capability", "version", "blas", "gpu", "cuda")),
        *((name, facts[name]) for name in OF_DEVICE if facts.get(name) is not None),
    )  # fmt: skip
    return Environment(
        fingerprint=hashlib.sha256(repr(identity).encode()).hexdigest()[:12],
        cpu=cpu,
        cpus=os.cpu_count() or 1,
        usable_cpus=usable,
        memory_bytes=_total_memory(),
        system=f"{platform.system()} {platform.release()} {platform.machine()}",
        python=facts.get("python", platform.python_version()),
        ffnbench=__version__,
        torch=facts.get("version"),
        torch_threads=facts.get("threads"),
        cpu_capability=facts.get("capability"),
        **{name: facts.get(name) for name in TOLD},
        git_commit=commit,
        git_dirty=dirty,
    )


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
        found.append("this is a virtual machine: neighbours share its cores; trust ratios, not seconds")
    if usable_cpus() < cpus:
        found.append(f"only {usable_cpus()} of {cpus} CPUs may be used (affinity or cgroup): threads default to that")
    siblings = _read("/sys/devices/system/cpu/cpu0/topology/thread_siblings_list")
    if siblings and siblings != "0":
        found.append(f"CPUs {siblings} share one core: `--threads` at the number of cores is steadier")
    return found


def cpu_name() -> str:
    """The CPU's own name."""
    for line in (_read("/proc/cpuinfo") or "").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _total_memory() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        return None


def _read(path: str) -> str | None:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None
