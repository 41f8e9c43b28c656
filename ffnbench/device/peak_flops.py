"""The matrix products per second that clock, width and cores of a CPU allow at most. No torch."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

FREQUENCY = Path("/sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq")  # kHz, boost included
CPUINFO = Path("/proc/cpuinfo")
# FLOPs of float32 in a cycle of one core: two fused multiply-adds of the width; some cores have one such unit
WIDTHS = (({"avx512f"}, 64), ({"avx2", "fma"}, 32))
DTYPES = (("float32", 1.0), ("float64", 0.5))


def peaks(cores: int, frequency: Path = FREQUENCY, cpuinfo: Path = CPUINFO) -> tuple[tuple[str, float], ...]:
    """FLOPs per second by dtype; none where the clock or the width is not known: a base clock is no peak."""
    try:
        clock_hz = 1e3 * int(frequency.read_text(encoding="ascii"))
        lines = cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines()
    except (OSError, ValueError):
        return ()
    flags = next((line.partition(":")[2].split() for line in lines if line.startswith("flags")), [])
    each = flops_a_cycle(flags)
    return tuple((dtype, share * each * clock_hz * cores) for dtype, share in DTYPES) if each and clock_hz > 0 else ()


def flops_a_cycle(flags: Iterable[str]) -> int:
    """Of float32, by one core; 0 where its width is not known."""
    there = set(flags)
    return next((flops for needed, flops in WIDTHS if needed <= there), 0)
