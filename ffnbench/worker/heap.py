"""The allocator of a process that measures: told to keep the memory that is freed, before anything is allocated.

By itself glibc may give freed memory back to the kernel after each call and take it again in the next, a page fault for
each page; whether it does so depends on where a process's blocks happen to lie. So some processes pay for a thousand
faults a call and most for none (docs/methodology.md). Both ways are conditions of a run: KEEPS and SYSTEM.
"""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path

ALLOCATOR = "FFNBENCH_ALLOCATOR"  # in the environment of a process that measures
KEEPS, SYSTEM = "keeps", "system"
M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4  # glibc's malloc.h
NEVER_TRIM, NO_MMAP = -1, 0
MAPS = Path("/proc/self/maps")
OTHERS = ("jemalloc", "tcmalloc", "mimalloc", "tbbmalloc")


def preloaded(maps: Path = MAPS) -> str:
    """The allocator that was loaded in place of the system's, "" for none."""
    try:
        text = maps.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    return next((name for name in OTHERS if f"lib{name}" in text), "")


def keep_freed_memory() -> str:
    """Have this process keep what it frees; gives what became of it: KEEPS, SYSTEM or the name of a preloaded one.

    glibc alone: musl, macOS and Windows have no such switch, and an allocator that was preloaded is left alone. That
    nothing is mapped by itself (M_MMAP_MAX 0) holds for blocks of any size; M_MMAP_THRESHOLD ends at 32 MiB in glibc
    before 2.35.
    """
    if name := preloaded():
        return name
    if sys.platform != "linux":
        return SYSTEM
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None or not hasattr(ctypes.CDLL(None), "gnu_get_libc_version"):
        return SYSTEM
    return KEEPS if mallopt(M_MMAP_MAX, NO_MMAP) and mallopt(M_TRIM_THRESHOLD, NEVER_TRIM) else SYSTEM
