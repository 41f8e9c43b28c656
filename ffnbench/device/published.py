"""Machines that are not here: what is published of them (published.toml, which explains its keys), or in a file of the
user's; and how near bounds were to measured times on one that was (how_near.json, made by benchmarks/estimates.py).
"""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path

from ffnbench import jsonable
from ffnbench.errors import FfnbenchError
from ffnbench.files import content_of
from ffnbench.names import Registry
from ffnbench.stats.estimates import Hardware, HowNear

FILE, NEAR = Path(__file__).with_name("published.toml"), Path(__file__).with_name("how_near.json")
TABLES = "tables such as [mine], with keys such as tflops_float32 = 20 and gb_per_s = 300"


@cache
def published() -> Registry[Hardware]:
    """Every machine of the table."""
    known: Registry[Hardware] = Registry("hardware", "`ffnbench list hardware` shows all")
    for machine in machines_in(FILE):
        known.add(machine.name, machine)
    return known


def machines_in(path: Path) -> list[Hardware]:
    """The machines of a file; raises FfnbenchError for what can't be read."""
    try:
        data = tomllib.loads(content_of(path).decode())
        found = [jsonable.decode(Hardware, {"name": name, **dict(row)}) for name, row in data.items()]
    except (ValueError, TypeError, RecursionError) as problem:
        raise FfnbenchError(f"cannot read {str(path)!r}: {problem}", f"it has {TABLES}") from None
    if not found:
        raise FfnbenchError(f"{str(path)!r} names no machine", f"it has {TABLES}")
    return found


@cache
def how_near() -> HowNear | None:
    """What was found of bounds and measured times; None before anybody has measured."""
    return jsonable.decode(HowNear, jsonable.parse(NEAR.read_bytes())) if NEAR.is_file() else None
