"""The caches of this machine, as the kernel tells them, and which of them holds so many bytes. No torch."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from ffnbench.stats.ceilings import MEMORY

CPUS = Path("/sys/devices/system/cpu")


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheLevel:
    """A level of data caches: bytes of one of them, and how many the CPUs that may be used have."""

    level: int
    bytes: int
    instances: int

    @property
    def name(self) -> str:
        """L1, L2 or L3."""
        return f"L{self.level}"

    def capacity(self, threads: int) -> int:
        """Bytes that so many threads find in it, each on a CPU of its own."""
        return self.bytes * max(1, min(threads, self.instances))


def caches(root: Path = CPUS, cpus: Iterable[int] | None = None) -> tuple[CacheLevel, ...]:
    """Those that hold data, the smallest first; empty where the kernel does not tell.

    https://www.kernel.org/doc/Documentation/ABI/testing/sysfs-devices-system-cpu
    """
    sizes: dict[int, int] = {}
    groups: dict[int, set[str]] = {}
    for cpu in _usable() if cpus is None else cpus:
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


def _usable() -> Iterable[int]:
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)


def _bytes(text: str) -> int:
    """`512K` or `32M` of the kernel."""
    units = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
    return int(text[:-1]) * units[text[-1]] if text[-1:] in units else int(text)


def level_of(size: int, threads: int, found: Iterable[CacheLevel]) -> str:
    """The smallest cache that holds so many bytes, memory where none does; empty where no cache is known."""
    known = tuple(found)
    name = next((cache.name for cache in known if size <= cache.capacity(threads)), MEMORY)
    return name if known else ""
