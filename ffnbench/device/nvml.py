"""What NVIDIA's management library tells of a GPU: what it is, what holds its clocks down now, who else is on it.

Through `pynvml` (package nvidia-ml-py), which is loaded when it is first asked. Whatever can't be had is None: no
package, no driver, a function that this card or this user may not use, a part of a card (MIG). Nothing is set here.
"""

from __future__ import annotations

import os
import warnings
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from ffnbench.result import POWER_CAP

# the bits of NVML's clock event reasons that hold clocks down: not idle, not clocks that somebody has set
REASONS = (
    (0x40, "hw thermal slowdown"), (0x20, "sw thermal slowdown"), (0x80, "power brake"), (0x08, "hw slowdown"),
    (0x04, POWER_CAP),
)  # fmt: skip
HW_SLOWDOWN, ITS_CAUSES = "hw slowdown", ("hw thermal slowdown", "power brake")  # it is set beside each of these
SM, TEMPERATURE = 1, 0  # NVML_CLOCK_SM, NVML_TEMPERATURE_GPU
NOT_INSTALLED = "nvidia-ml-py is not installed: pip install 'ffnbench[cuda]'"


@dataclass(frozen=True, slots=True)
class Library:
    """NVML, opened; or why it could not be."""

    module: Any = None
    missing: str = ""

    def ask(self, name: str, *arguments: object) -> Any:
        """What a function says; None where it can't be had."""
        try:
            return getattr(self.module, name)(*arguments)
        except Exception:  # of NVML's own class, and of ctypes: an older driver lacks functions
            return None


@cache
def library() -> Library:
    """The one of this process."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # an older package of the same name warns of itself
            import pynvml
        pynvml.nvmlInit()
    except ImportError:
        return Library(missing=NOT_INSTALLED)
    except Exception as problem:
        return Library(missing=f"NVML can't be used: {problem}")
    return Library(pynvml)


@dataclass(frozen=True, slots=True)
class Card:
    """A GPU as NVML knows it. `whole` is the card that a part (MIG) belongs to, else the same: it has the clocks."""

    nvml: Library
    handle: Any
    whole: Any

    def about(self) -> dict[str, Any]:
        """What it is and how it is set, by the names of Environment's fields."""
        ask, whole = self.nvml.ask, self.whole
        ecc, mig = ask("nvmlDeviceGetEccMode", whole), ask("nvmlDeviceGetMigMode", whole)
        persistence = ask("nvmlDeviceGetPersistenceMode", whole)
        return {
            "driver": _text(ask("nvmlSystemGetDriverVersion")),
            "gpu_uuid": _text(ask("nvmlDeviceGetUUID", self.handle)),
            "gpu_power_limit_w": _thousandth(ask("nvmlDeviceGetPowerManagementLimit", whole)),
            "gpu_power_default_w": _thousandth(ask("nvmlDeviceGetPowerManagementDefaultLimit", whole)),
            "gpu_max_clock_mhz": _number(ask("nvmlDeviceGetMaxClockInfo", whole, SM)),
            "gpu_application_clock_mhz": _number(ask("nvmlDeviceGetApplicationsClock", whole, SM)),
            "gpu_ecc": bool(ecc[0]) if ecc else None,
            "gpu_mig": bool(mig[0]) if mig else None,
            "gpu_persistence": None if persistence is None else bool(persistence),
        }

    def reading(self) -> dict[str, Any]:
        """This moment: `throttled`, and under `device` clock, temperature and power."""
        ask, whole = self.nvml.ask, self.whole
        names = ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons")  # and its older
        bits = next((told for name in names if (told := ask(name, whole)) is not None), None)
        now = {
            "clock_mhz": _number(ask("nvmlDeviceGetClockInfo", whole, SM)),
            "temperature_c": _number(ask("nvmlDeviceGetTemperature", whole, TEMPERATURE)),
            "power_w": _thousandth(ask("nvmlDeviceGetPowerUsage", whole)),
        }
        return {"throttled": None if bits is None else reasons(int(bits)), "device": now}

    def others(self, own: int, family: int) -> int | None:
        """How many processes compute on it beside this one and the other workers of this run, children of `family`.

        None where that is not known: inside a container NVML counts by the numbers of the host, and this process is not
        among them.
        """
        found = self.nvml.ask("nvmlDeviceGetComputeRunningProcesses", self.handle)
        if found is None:
            return None
        numbers = {int(process.pid) for process in found}
        return sum(parent_of(pid) != family for pid in numbers - {own}) if own in numbers else None


def reasons(bits: int) -> str:
    """The names of what holds the clocks down, by commas; "" for nothing."""
    found = [name for bit, name in REASONS if bits & bit]
    if any(name in found for name in ITS_CAUSES):
        found = [name for name in found if name != HW_SLOWDOWN]
    return ", ".join(found)


def card_of(device: str) -> Card | None:
    """That which torch calls so in this process; None where it is no GPU of NVIDIA's, or NVML is not to be had."""
    import torch

    if not device.startswith("cuda") or torch.version.cuda is None or not torch.cuda.is_available():
        return None
    # by its UUID: variables may give torch other indices than NVML's
    found = torch.cuda.get_device_properties(torch.device(device).index or 0)
    uuid = str(found.uuid).removeprefix("GPU-").removeprefix("MIG-")
    nvml = library()
    for prefix in ("GPU", "MIG"):
        if (handle := nvml.ask("nvmlDeviceGetHandleByUUID", f"{prefix}-{uuid}")) is not None:
            whole = nvml.ask("nvmlDeviceGetDeviceHandleFromMigDeviceHandle", handle)
            return Card(nvml, handle, handle if whole is None else whole)
    return None


def parent_of(pid: int) -> int | None:
    """The process that has started it; None where that is not to be seen."""
    with suppress(OSError, ValueError, IndexError):
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        return int(stat.rpartition(")")[2].split()[1])
    return None


@dataclass(slots=True)
class DeviceWatch:
    """What a worker sees of its devices between its samples. Once for each also who else computes on it."""

    cards: dict[str, Card | None] = field(default_factory=dict)

    def told(self, device: str) -> dict[str, Any]:
        """What a sample's answer tells; nothing of a CPU, nor where NVML is not to be had."""
        if device == "cpu":
            return {}
        first = device not in self.cards
        if first:
            self.cards[device] = card_of(device)
        if (found := self.cards[device]) is None:
            return {}
        now = found.reading()
        if first:
            now["device"]["others"] = found.others(os.getpid(), os.getppid())
        return now


def advice(told: dict[str, Any]) -> list[str]:
    """How the clocks of a GPU are kept steady, as far as they aren't; `told` are the facts of a device. It is for the
    user to do: these settings are the machine's, and hold for everybody on it.
    """
    found = []
    uuid = str(told.get("gpu_uuid") or "")
    which = f"-i {uuid} " if uuid.startswith("GPU-") else ""  # nvidia-smi takes no part of a card
    if told.get("nvml_missing"):
        found.append(f"clocks, throttling and other processes of the GPU can't be seen: {told['nvml_missing']}")
    if told.get("gpu_persistence") is False:
        text = "the GPU's persistence mode is off: its driver unloads between workers, and its clocks start anew"
        found.append(f"{text}; `sudo nvidia-smi {which}-pm 1`")
    if top := told.get("gpu_max_clock_mhz"):
        steady = round(0.75 * top / 15) * 15  # clocks come in steps of 15 MHz
        text = f"the GPU's clock moves with load and heat, up to {top:,} MHz: `sudo nvidia-smi {which}-lgc {steady}`"
        found.append(f"{text} holds it at one that it can keep (-rgc undoes it)")
    limit, usual = told.get("gpu_power_limit_w"), told.get("gpu_power_default_w")
    if limit and usual and limit < usual:
        text = f"the GPU may take {limit:.0f} W, by default {usual:.0f} W: heavy products are slower so"
        found.append(f"{text}; `sudo nvidia-smi {which}-pl {usual:.0f}`")
    if told.get("gpu_mig"):
        found.append("the GPU is cut into parts (MIG): neighbours share its memory's speed and its power")
    if others := told.get("gpu_others"):
        found.append(f"{others} other process{'es' if others > 1 else ''} compute on the GPU now; wait or stop them")
    return found


def facts(device: str) -> dict[str, Any]:
    """Of a device: what it is, how it is set, who else is on it; or why that is not known."""
    if (found := card_of(device)) is not None:
        return found.about() | {"gpu_others": found.others(os.getpid(), os.getppid())}
    return {"nvml_missing": library().missing or "NVML does not know this device"}


def _text(value: str | bytes | None) -> str | None:
    return value.decode() if isinstance(value, bytes) else value


def _number(value: object) -> int | None:
    return int(value) if isinstance(value, int | float) else None


def _thousandth(value: object) -> float | None:
    """mW -> W."""
    return value / 1000 if isinstance(value, int | float) else None
