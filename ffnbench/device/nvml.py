"""Asks NVIDIA's management library (NVML) about a GPU: what it is, what holds its
clocks down now, and how many other processes use it.

NVML is reached by `pynvml` (package nvidia-ml-py), which is loaded when it is first
needed. An answer is None where it can't be had: without the package or a driver, or
where this card or this user may not use a function. No setting is changed here.
"""

from __future__ import annotations

import os
import warnings
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from ffnbench.common.units import counted
from ffnbench.record.messages import DeviceFacts, Sampled
from ffnbench.record.result import POWER_CAP

# NVML's clock event reasons that hold clocks down, by their bits, without those of an
# idle GPU and of clocks that somebody has set
HW_SLOWDOWN = 0x08
REASONS = (
    (0x40, "hw thermal slowdown"),
    (0x20, "sw thermal slowdown"),
    (0x80, "power brake"),
    (HW_SLOWDOWN, "hw slowdown"),
    (0x04, POWER_CAP),
)
CAUSES_OF_SLOWDOWN = 0xC0  # with each of these bits, that of hw slowdown is set too
SM = 1  # NVML_CLOCK_SM
NVML_NOT_INSTALLED = "nvidia-ml-py is not installed: pip install 'ffnbench[cuda]'"


@cache
def library() -> tuple[Any, str]:
    """NVML, opened once in a process, and ""; or None, and why it can't be opened."""
    try:
        with warnings.catch_warnings():
            # an older package of the same name warns when it is imported
            warnings.simplefilter("ignore")
            import pynvml
        pynvml.nvmlInit()
    except ImportError:
        return None, NVML_NOT_INSTALLED
    except Exception as problem:
        return None, f"NVML can't be used: {problem}"
    return pynvml, ""


@dataclass(frozen=True, slots=True)
class Card:
    """A GPU as NVML knows it."""

    module: Any
    handle: Any

    def ask(self, name: str, *arguments: object) -> Any:
        """What a function of NVML says of this GPU; None where it can't be had."""
        try:
            return getattr(self.module, name)(self.handle, *arguments)
        except Exception:
            # an error of NVML, or of ctypes: an older driver lacks functions
            return None

    def about(self) -> dict[str, Any]:
        """What the GPU is and how it is set, by the names of DeviceFacts' fields."""
        facts = {
            "gpu_uuid": _text(self.ask("nvmlDeviceGetUUID")),
            "gpu_max_clock_mhz": self.ask("nvmlDeviceGetMaxClockInfo", SM),
        }
        with suppress(Exception):
            facts["driver"] = _text(self.module.nvmlSystemGetDriverVersion())
        limit_mw = self.ask("nvmlDeviceGetPowerManagementLimit")
        if limit_mw is not None:
            facts["gpu_power_limit_w"] = limit_mw / 1000
        ecc = self.ask("nvmlDeviceGetEccMode")
        if ecc:
            facts["gpu_ecc"] = bool(ecc[0])
        return facts

    def clock_mhz(self) -> int | None:
        """The clock of the GPU's cores at this moment."""
        clock: int | None = self.ask("nvmlDeviceGetClockInfo", SM)
        return clock

    def throttled(self) -> str | None:
        """The reasons that hold the GPU's clocks down at this moment, separated by
        commas; "" for none, None where that is not known.
        """
        bits = self.ask("nvmlDeviceGetCurrentClocksEventReasons")
        if bits is None:
            # the older name of the function
            bits = self.ask("nvmlDeviceGetCurrentClocksThrottleReasons")
        if bits is None:
            return None
        return throttle_reasons(int(bits))

    def others(self) -> int | None:
        """How many processes compute on the GPU beside this one and the other workers
        of this run, which have the same parent.

        None where that is not known: inside a container NVML has the process numbers of
        the host, and this process is not among them.
        """
        processes = {
            int(process.pid)
            for process in self.ask("nvmlDeviceGetComputeRunningProcesses") or ()
        }
        if os.getpid() not in processes:
            return None
        others = [
            pid
            for pid in processes
            if pid != os.getpid() and parent_of(pid) != os.getppid()
        ]
        return len(others)


def throttle_reasons(bits: int) -> str:
    """The names of the reasons whose bits are set, separated by commas; "" for none."""
    if bits & CAUSES_OF_SLOWDOWN:
        bits &= ~HW_SLOWDOWN
    return ", ".join(name for bit, name in REASONS if bits & bit)


def card_of(device: str) -> Card | None:
    """The GPU that torch calls by this name in this process; None where it is not one
    of NVIDIA's, or NVML can't be used.
    """
    import torch

    if device == "cpu" or torch.version.cuda is None or not torch.cuda.is_available():
        return None
    # found by its UUID: environment variables may give it another index in torch than
    # in NVML
    properties = torch.cuda.get_device_properties(torch.device(device).index or 0)
    module, _ = library()
    with suppress(Exception):
        uuid = str(properties.uuid).removeprefix("GPU-")
        return Card(module, module.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}"))
    return None


def parent_of(pid: int) -> int | None:
    """The number of a process's parent; None where that can't be read."""
    with suppress(OSError, ValueError, IndexError):
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        return int(stat.rpartition(")")[2].split()[1])
    return None


@dataclass(slots=True)
class DeviceWatch:
    """Asks NVML about the GPUs of a worker between its samples."""

    cards: dict[str, Card | None] = field(default_factory=dict)

    def after(self, sampled: Sampled, device: str) -> Sampled:
        """The sample with what NVML says now. The first sample on a device also gets
        the number of other processes that compute there.
        """
        is_first = device not in self.cards
        if is_first:
            self.cards[device] = card_of(device)
        card = self.cards[device]
        if card is None:
            return sampled
        others = card.others() if is_first else None
        return replace(
            sampled,
            throttled=card.throttled(),
            clock_mhz=card.clock_mhz(),
            others=others,
        )


def clock_advice(device: DeviceFacts) -> list[str]:
    """Sentences on what makes times on this GPU noisy, each with what the user can do
    about it: these settings belong to the machine, and hold for all its users.
    """
    texts = []
    if device.nvml_missing:
        texts.append(
            f"clocks, throttling and other processes of the GPU can't be seen: {device.nvml_missing}"
        )
    top = device.gpu_max_clock_mhz
    if top:
        steady = round(0.75 * top / 15) * 15  # clocks come in steps of 15 MHz
        text = f"the GPU's clock moves with load and heat, up to {top:,} MHz: `sudo nvidia-smi -i {device.gpu_uuid}"
        texts.append(
            f"{text} -lgc {steady}` holds it at one that it can keep (-rgc undoes it)"
        )
    if device.gpu_others:
        processes = counted(device.gpu_others, "other process")
        texts.append(
            f"the GPU is in use by {processes} now; wait, or stop what uses it"
        )
    return texts


def nvml_facts(device: str) -> dict[str, Any]:
    """Fields of the DeviceFacts of a device: what it is, how it is set, and how many
    other processes use it; or why that is not known.
    """
    card = card_of(device)
    if card is not None:
        return card.about() | {"gpu_others": card.others()}
    _, problem = library()
    return {"nvml_missing": problem or "NVML does not know this device"}


def _text(value: str | bytes | None) -> str | None:
    if isinstance(value, bytes):
        return value.decode()
    return value
