"""Machines that are not here: what is published of them (published.toml), or stands in a file of the user's; and how
near such bounds were to measured times on one that was (how_near.json, which benchmarks/estimates.py writes).
"""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path
from typing import Any

from ffnbench.common import jsonable
from ffnbench.common.errors import FfnbenchError
from ffnbench.common.files import content_of
from ffnbench.common.names import Registry
from ffnbench.extras.estimate.bounds import Hardware

FILE, NEAR = Path(__file__).with_name("published.toml"), Path(__file__).with_name("how_near.json")


@cache
def published() -> Registry[Hardware]:
    """Every machine of the table."""
    machines: Registry[Hardware] = Registry("hardware", "`ffnbench list hardware` shows all")
    for machine in hardware_in(FILE):
        machines.add(machine.name, machine)
    return machines


def hardware_in(path: Path) -> list[Hardware]:
    """The machines of a file; raises FfnbenchError for what can't be read."""
    try:
        data = tomllib.loads(content_of(path).decode())
        machines = []
        for name, row in data.items():
            if not isinstance(row, dict):
                raise ValueError(f"{name} stands in no table")
            machines.append(jsonable.decode(Hardware, {"name": name, **row}))
        return machines
    except (ValueError, RecursionError) as problem:
        hint = "it has tables such as [mine], with keys such as tflops_float32 = 20 and gb_per_s = 300"
        raise FfnbenchError(f"cannot read {str(path)!r}: {problem}", hint) from None


@cache
def how_near() -> dict[str, Any]:
    """What was found of bounds and measured times."""
    return jsonable.parse(NEAR.read_bytes())  # type: ignore[no-any-return]
