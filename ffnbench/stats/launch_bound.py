"""Is a row's time the device's, or that of the CPU that issues its work? Pure.

The host figure is what issuing a call takes the CPU, the device's what the device works for it. Calls one after another
take whichever is longer. Two intervals that leave each other no room decide; where they overlap, nothing is said.
"""

from __future__ import annotations

from ffnbench.metrics import DEVICE_TIME, HOST_TIME
from ffnbench.result import Estimate, Report


def is_launch_bound(device: Estimate | None, host: Estimate | None) -> bool | None:
    """True where the CPU takes longer than the device for every value inside both intervals, False where it takes less;
    None where they overlap, have no ends, or one of the two is not known.
    """
    ends = [end for one in (device, host) if one for end in (one.low, one.high) if end is not None]
    if len(ends) < 4:
        return None
    device_low, device_high, host_low, host_high = ends
    if host_low > device_high:
        return True
    return False if host_high < device_low else None


def launch_bound(report: Report, label: str) -> bool | None:
    """Whether a row's time is that of the CPU that issues its work; None where that is not known."""
    return is_launch_bound(report.estimate(label, DEVICE_TIME), report.estimate(label, HOST_TIME))
