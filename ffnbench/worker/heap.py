"""The allocator of a process that measures: told to keep the memory that is freed, before anything is allocated.

By itself glibc may give freed memory back to the kernel after each call and take it again in the next, a page fault for
each page; whether it does so depends on where a process's blocks happen to lie. So some processes pay for a thousand
faults a call and most for none (docs/methodology.md). Both ways are conditions of a run: KEEPS and SYSTEM.
"""

from __future__ import annotations

import ctypes
import os
import sys

ALLOCATOR = "FFNBENCH_ALLOCATOR"  # in the environment of a process that measures
KEEPS, SYSTEM = "keeps", "system"
M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4  # glibc's malloc.h
NEVER_TRIM, NO_MMAP = -1, 0


def keep_freed_memory() -> str:
    """Have this process keep what it frees, unless its environment says SYSTEM; gives what it does, KEEPS or SYSTEM.

    glibc alone: musl, macOS and Windows have no such switch, and an allocator that was preloaded is left alone. That
    nothing is mapped by itself (M_MMAP_MAX 0) holds for blocks of any size; M_MMAP_THRESHOLD ends at 32 MiB in glibc
    before 2.35.
    """
    if sys.platform != "linux" or os.environ.get(ALLOCATOR) == SYSTEM or "malloc" in os.environ.get("LD_PRELOAD", ""):
        return SYSTEM
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None or not hasattr(ctypes.CDLL(None), "gnu_get_libc_version"):
        return SYSTEM
    return KEEPS if mallopt(M_MMAP_MAX, NO_MMAP) and mallopt(M_TRIM_THRESHOLD, NEVER_TRIM) else SYSTEM
