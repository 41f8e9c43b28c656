"""What NVIDIA's management library tells of a GPU: what it is, what holds its clocks
down now, who else is on it.

Through `pynvml` (package nvidia-ml-py), which is loaded when it is first asked.
Whatever can't be had is None: no package, no driver, a function that this card or this
user may not use. Nothing is set here.
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
from ffnbench.messages import DeviceFacts, Sampled
from ffnbench.result import POWER_CAP

# the bits of NVML's clock event reasons that hold clocks down: not idle, not clocks
# that somebody has set
HW_SLOWDOWN = 0x08
REASONS = (
    (0x40, "hw thermal slowdown"),
    (0x20, "sw thermal slowdown"),
    (0x80, "power brake"),
    (HW_SLOWDOWN, "hw slowdown"),
    (0x04, POWER_CAP),
)
CAUSES_OF_SLOWDOWN = 0xC0  # beside each of these hw slowdown is set too
SM = 1  # NVML_CLOCK_SM
NVML_NOT_INSTALLED = "nvidia-ml-py is not installed: pip install 'ffnbench[cuda]'"


@cache
def library() -> tuple[Any, str]:
    """NVML, opened once in a process; or None and why it could not be."""
    try:
        with warnings.catch_warnings():
            # an older package of the same name warns of itself
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
        """What a function says of it; None where it can't be had."""
        try:
            return getattr(self.module, name)(self.handle, *arguments)
        except Exception:
            # of NVML's own class, and of ctypes: an older driver lacks functions
            return None

    def about(self) -> dict[str, Any]:
        """What it is and how it is set, by the names of DeviceFacts' fields."""
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
        """The clock of its cores at this moment."""
        clock: int | None = self.ask("nvmlDeviceGetClockInfo", SM)
        return clock

    def throttled(self) -> str | None:
        """What holds its clocks down at this moment, by commas; "" for nothing, None
        where that is not known.
        """
        bits = self.ask("nvmlDeviceGetCurrentClocksEventReasons")
        if bits is None:
            # its older name
            bits = self.ask("nvmlDeviceGetCurrentClocksThrottleReasons")
        if bits is None:
            return None
        return throttle_reasons(int(bits))

    def others(self) -> int | None:
        """How many processes compute on it beside this one and the other workers of
        this run, which have its parent.

        None where that is not known: inside a container NVML counts by the numbers of
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
    """The names of what holds the clocks down, by commas; "" for nothing."""
    if bits & CAUSES_OF_SLOWDOWN:
        bits &= ~HW_SLOWDOWN
    return ", ".join(name for bit, name in REASONS if bits & bit)


def card_of(device: str) -> Card | None:
    """That which torch calls so in this process; None where it is no GPU of NVIDIA's,
    or NVML is not to be had.
    """
    import torch

    if device == "cpu" or torch.version.cuda is None or not torch.cuda.is_available():
        return None
    # by its UUID: variables may give torch other indices than NVML's
    properties = torch.cuda.get_device_properties(torch.device(device).index or 0)
    module, _ = library()
    with suppress(Exception):
        uuid = str(properties.uuid).removeprefix("GPU-")
        return Card(module, module.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}"))
    return None


def parent_of(pid: int) -> int | None:
    """The process that has started it; None where that is not to be seen."""
    with suppress(OSError, ValueError, IndexError):
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        return int(stat.rpartition(")")[2].split()[1])
    return None


@dataclass(slots=True)
class DeviceWatch:
    """What a worker sees of its GPUs between its samples."""

    cards: dict[str, Card | None] = field(default_factory=dict)

    def after(self, sampled: Sampled, device: str) -> Sampled:
        """The sample with what NVML says now; the first one of a device also says who
        else computes there.
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
    """How the clocks of a GPU are kept steady, as far as they aren't. It is for the
    user to do: these settings are the machine's, and hold for everybody on it.
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
        texts.append(f"{processes} compute on the GPU now; wait or stop them")
    return texts


def nvml_facts(device: str) -> dict[str, Any]:
    """Fields of the DeviceFacts of a device: what it is, how it is set, who else is on
    it; or why that is not known.
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
