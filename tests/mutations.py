"""JSON with one place changed: what reads a file has to bear it."""

from __future__ import annotations

import copy
import random
from typing import Any

VALUES = (
    None,
    True,
    False,
    -1,
    0,
    1,
    7,
    2.5,
    "",
    "no such",
    "\x1b[31m",
    "\ud800",
    "x" * 5000,
    1e308,
    2**63 - 1,
    "1",
    [],
    {},
    [[]],
    [1],
    {"a": 1},
)


def mutated(data: dict, dice: random.Random) -> tuple[dict, tuple]:
    """A copy that has another value somewhere, lacks one, or has one more; and which.
    The place is drawn level by level, so that many samples hide nothing else.
    """
    changed = copy.deepcopy(data)
    at: Any = changed
    way = []
    while True:
        last = dice.choice(list(at) if isinstance(at, dict) else range(len(at)))
        way.append(last)
        inner = at[last]
        if not inner or not isinstance(inner, dict | list) or dice.random() < 0.15:
            break
        at = inner
    how = dice.choice(("put", "put", "take", "add"))
    value = copy.deepcopy(dice.choice(VALUES))
    if how == "put":
        at[last] = value
    elif how == "take":
        del at[last]
    elif isinstance(at, dict):
        at["nobody"] = value
    else:
        at.append(value)
    return changed, (how, *way, value)
