"""What a config class of transformers has where a config.json leaves a key out. The data are defaults.json.

A published config.json is sparse: it leaves out what equals the class's default. `python tests/hf_data.py` writes
defaults.json from transformers, whose version it records, for every model type of families.toml.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from ffnbench import jsonable

FILE = Path(__file__).with_name("defaults.json")


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A nested config.

    type      its model type where the file names none; with `fixed` whatever the file names
    renamed   model types of files, each with the one that the class takes it for
    optional  whether it may be missing
    init      what it holds where the file leaves it out whole; with `beneath` also under what the file says
    instead   the key of older files that stands in its place where both are there
    """

    type: str
    fixed: bool = False
    optional: bool = False
    beneath: bool = False
    instead: str | None = None
    renamed: Mapping[str, str] = field(default_factory=dict)
    init: Mapping[str, Any] = field(default_factory=dict)

    def type_of(self, nested: Mapping[str, Any]) -> Any:
        """The model type that the class gives to a nested config of the file."""
        named = nested.get("model_type", self.type)
        return self.type if self.fixed else self.renamed.get(named, named) if isinstance(named, str) else named


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassDefaults:
    """The config class of one model type, as far as the table of families reads it.

    values   key -> what the class has where the key is left out, before it derives anything from null
    without  the keys of the table that the class does not have
    names    other names of keys, each with the key that it stands for
    asks     keys of older files that the class turns into others; what they come to is left to transformers
    parts    the nested configs; `flat` is the one whose keys may stand at the top instead
    also     further keys of the class that would say something about FFNs in another, and nested configs
    classes  the models of transformers that take it for their config
    """

    values: Mapping[str, Any] = field(default_factory=dict)
    without: tuple[str, ...] = ()
    names: Mapping[str, str] = field(default_factory=dict)
    asks: tuple[str, ...] = ()
    parts: Mapping[str, Part] = field(default_factory=dict)
    flat: str | None = None
    also: tuple[str, ...] = ()
    classes: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Defaults:
    """The whole file: the version of transformers that it was made from, and a row a model type."""

    version: str
    by_type: Mapping[str, ClassDefaults]


NOTHING = ClassDefaults()  # of a model type that the file does not have: nothing may be left out


@cache
def defaults() -> Defaults:
    """The data of defaults.json, read at the first call."""
    data = jsonable.parse(FILE.read_bytes(), ours=False)
    rows = {name: _row(row) for name, row in data["types"].items()}
    return Defaults(version=data["transformers"], by_type=MappingProxyType(rows))


def _row(row: dict[str, Any]) -> ClassDefaults:
    parts = {key: Part(**part) for key, part in row.get("parts", {}).items()}
    return ClassDefaults(
        **{
            **row,
            "parts": parts,
            "without": tuple(row.get("without", ())),
            "asks": tuple(row.get("asks", ())),
            "also": tuple(row.get("also", ())),
            "classes": frozenset(row.get("classes", ())),
        }
    )


def defaults_of(model_type: str) -> ClassDefaults:
    """The row of a model type; an empty one where there is none."""
    return defaults().by_type.get(model_type, NOTHING)
