"""The table of families: under which keys of config.json the numbers of a model's layers stand, each row in full.

The data are families.toml, which explains every key of a row, and defaults.json: what a class of transformers has where
a file is known to leave a key out.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("families.toml")
DEFAULTS = Path(__file__).with_name("defaults.json")
PARTS = ("text_config", "vision_config")  # of a composite model
Row = Mapping[str, Any]
MORE_KEYS = {  # what a row may say beside the keys of its default
    "stack": {"ratio", "acts_as", "assumes", "experts", "attention", "types", "stacks", "like"},
    "experts": {"shared_d_ff", "limit", "like"},
    "attention": {"kv_heads", "head_dim", "assumes", "like"},
    "rest": {"assumes", "equal", "types", "stacks", "like"},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Families:
    """The whole table.

    stacks      model type -> the rows of its stacks of layers
    rest        model type -> what each of these stacks has beside FFNs and attentions; not of every type
    composites  model type -> the model types of its PARTS
    alias       published model type -> transformers' name for it
    classes     what a file's class is built of, by the end of its name for `stacks` and `parts`, by all for `other`
    defaults    model type -> key -> what the class of transformers has where the key is left out
    version     of transformers, whose defaults these are
    """

    stacks: Mapping[str, tuple[Row, ...]]
    rest: Mapping[str, tuple[Row, ...]]
    composites: Mapping[str, tuple[str, str]]
    alias: Mapping[str, str]
    classes: Mapping[str, Mapping[str, Any]]
    defaults: Mapping[str, Row]
    version: str

    @property
    def types(self) -> list[str]:
        """Every model type that the table reads."""
        return [*self.stacks, *self.composites]


@cache
def families() -> Families:
    """The table, read at the first call; raises ValueError for a row with a key that no row has."""
    import tomllib  # not before it is needed

    data = tomllib.loads(FILE.read_text(encoding="utf-8"))
    defaults = json.loads(DEFAULTS.read_text(encoding="utf-8"))
    return Families(
        stacks=_by_type("stack", data["family"], data),
        rest=_by_type("rest", data["rest"], data),
        composites={name: (text, vision) for name, (text, vision) in data["composite"].items()},
        alias=data["alias"],
        classes=data["classes"],
        defaults=defaults["types"],
        version=defaults["transformers"],
    )


def _by_type(kind: str, rows: Row, data: Row) -> dict[str, tuple[Row, ...]]:
    """Model type -> its rows in full, one a stack."""
    found: dict[str, tuple[Row, ...]] = {}
    for row in rows.values():
        shared = {key: value for key, value in row.items() if key not in ("types", "stacks")}
        stacks = tuple(_full(kind, shared | stack, data) for stack in row.get("stacks", [{}]))
        found |= dict.fromkeys(row.get("types", ()), stacks)
    return found


def _full(kind: str, row: Row, data: Row) -> Row:
    """A row on top of the one that it is like; its experts and its attention too."""
    default = data[kind]["default"]
    if wrong := row.keys() - default.keys() - MORE_KEYS[kind]:
        raise ValueError(f"families.toml: a {kind} has no {sorted(wrong)[0]!r}")
    base = {} if row is default else _full(kind, data[kind][row.get("like", "default")], data)
    own = {key: value for key, value in row.items() if key not in ("like", "types", "stacks")}
    if kind == "stack":
        own |= {key: _full(key, own[key], data) for key in ("experts", "attention") if key in own}
    return {**base, **own}
