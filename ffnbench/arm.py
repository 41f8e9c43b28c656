"""Where a case runs: the keys `@python=PATH`, `@source=DIR` and `@env=NAME:VALUE` of a variant -> Arm. Pure text."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from ffnbench.errors import FfnbenchError

ARM_KEYS = ("python", "source", "env")
_PAIR = re.compile(r"(?P<name>[A-Za-z_]\w*):(?P<value>.*)", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """An interpreter, a folder put first on the module path, environment variables; empty is this process's own.

    Cases of equal arms share a process. `name` says which arm it is, and sets apart what differs in nothing else.
    """

    python: str = ""
    source: str = ""
    env: tuple[tuple[str, str], ...] = ()
    name: str = ""

    def __str__(self) -> str:
        keys = [f"@python={self.python}"] * bool(self.python) + [f"@source={self.source}"] * bool(self.source)
        return self.name or "".join([*keys, *(f"@env={name}:{value}" for name, value in self.env)])


OWN = Arm()


def take_arm(text: str, pairs: Iterable[str]) -> tuple[Arm, list[str]]:
    """The arm among the `KEY=VALUE` pairs of a variant, and the pairs that are left."""
    given: dict[str, str] = {}
    env: list[str] = []
    rest = []
    for pair in pairs:
        key, _, value = pair.partition("=")
        key, value = key.strip(), value.strip()
        if key not in ARM_KEYS or not value:
            rest.append(pair)
        elif key == "env":
            env += value.split(";")
        elif key in given:
            raise FfnbenchError(f"key {key!r} stands twice in {text!r}", "give each key once")
        else:
            given[key] = value
    return Arm(env=parse_env(env), **given), rest


def parse_env(texts: Iterable[str]) -> tuple[tuple[str, str], ...]:
    """`NAME:VALUE` of each text; a name that stands twice takes its last value."""
    found: dict[str, str] = {}
    for text in texts:
        match = _PAIR.fullmatch(text.strip())
        if match is None:
            raise FfnbenchError(f"cannot read the variable {text!r}", "write NAME:VALUE, for example OMP_NUM_THREADS:1")
        found[match["name"]] = match["value"]
    return tuple(found.items())
