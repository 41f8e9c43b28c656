"""Asks NVIDIA's management library (NVML) what holds the clocks of a GPU down now: a
sample that was taken meanwhile is disturbed.

NVML is reached by `pynvml` (package nvidia-ml-py), which is loaded when it is first
needed. An answer is None where it can't be had: without the package or a driver, or
where this card or this user may not use a function. No setting is changed here.
"""

from __future__ import annotations

import warnings
from contextlib import suppress
from functools import cache
from typing import Any

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
NVML_NOT_INSTALLED = "nvidia-ml-py is not installed: pip install 'ffnbench[cuda]'"
# the newer and the older name of a function
CLOCK_REASONS = (
    "nvmlDeviceGetCurrentClocksEventReasons",
    "nvmlDeviceGetCurrentClocksThrottleReasons",
)


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


@cache
def handle_of(device: str) -> Any:
    """NVML's handle of the GPU that torch calls by this name in this process; None
    where it is not one of NVIDIA's, or NVML can't be used.
    """
    import torch

    if torch.version.cuda is None or not torch.cuda.is_available():
        return None
    # found by its UUID: environment variables may give it another index in torch than
    # in NVML
    properties = torch.cuda.get_device_properties(torch.device(device).index or 0)
    module, _ = library()
    with suppress(Exception):
        uuid = str(properties.uuid).removeprefix("GPU-")
        return module.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}")
    return None


def throttled(device: str) -> str | None:
    """The reasons that hold the clocks of a GPU down at this moment, separated by
    commas; "" for none, None where that is not known.
    """
    handle = handle_of(device)
    if handle is None:
        return None
    module, _ = library()
    for name in CLOCK_REASONS:
        # an error of NVML, or of ctypes: an older driver lacks functions
        with suppress(Exception):
            return throttle_reasons(int(getattr(module, name)(handle)))
    return None


def throttle_reasons(bits: int) -> str:
    """The names of the reasons whose bits are set, separated by commas; "" for none."""
    if bits & CAUSES_OF_SLOWDOWN:
        bits &= ~HW_SLOWDOWN
    return ", ".join(name for bit, name in REASONS if bits & bit)


def why_unseen(device: str) -> str:
    """Why it is not known whether the clocks of a GPU are held down; "" where it is."""
    if throttled(device) is not None:
        return ""
    return library()[1] or "NVML does not know this device"
