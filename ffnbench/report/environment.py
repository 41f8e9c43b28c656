"""The facts of an environment, for `env` and for a page."""

from __future__ import annotations

from ffnbench.common.jsonable import encode
from ffnbench.common.units import IEC, quantity
from ffnbench.record.result import Environment
from ffnbench.report.frame import Row

# the units of an environment's fields by the end of their names; bytes get a prefix
UNIT_OF_SUFFIX = {"_bytes": "", "_w": "W", "_mhz": "MHz"}


def environment_records(environment: Environment) -> list[Row]:
    """One record for each known fact of the environment, with its unit."""
    return [
        _fact(name, value)
        for name, value in encode(environment).items()
        if value is not None
    ]


def _fact(name: str, value: object) -> Row:
    """The record of a field: of `cpu_clock_mhz` the fact `cpu clock`, `3,000 MHz`."""
    for end, unit in UNIT_OF_SUFFIX.items():
        if name.endswith(end) and isinstance(value, int | float):
            text = f"{value:,.0f} {unit}" if unit else quantity(value, IEC)
            return {"fact": name.removesuffix(end).replace("_", " "), "value": text}
    return {"fact": name.replace("_", " "), "value": str(value)}
