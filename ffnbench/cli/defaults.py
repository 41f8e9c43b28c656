"""Defaults of flags from `[tool.ffnbench]` of a pyproject.toml: of all commands, or of one (`[tool.ffnbench.compare]`).

The nearest file with such a table counts, from the working folder upwards to the root of the repository. What is typed
wins, and a default that would do nothing beside it is left out. No default names code, an interpreter, an output, or
what may be trusted: a file of somebody else's must not run or write anything.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ffnbench.errors import FfnbenchError
from ffnbench.files import content_of
from ffnbench.names import hint_for

FILE, TABLE = "pyproject.toml", "tool.ffnbench"
NEVER = {  # fields, and what a file may not say by them
    "trust": "what may be trusted", "out": "an output", "export": "an output", "base_python": "an interpreter",
    "head_python": "an interpreter", "base_source": "where code is", "head_source": "where code is",
    "base_env": "the environment of a process", "head_env": "the environment of a process", "update": "an output",
    "append": "an output", "force": "an output", "json": "a format twice",
}  # fmt: skip
OF_CODE = ("variants", "variant", "activations", "style")  # may name code, or an address: plain names are taken
OF_CODE_KEYS = ("@python", "@source", "@env")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What a file sets: values by field for every command, and for each one by itself; `path` is the file."""

    path: Path
    shared: Mapping[str, Any]
    own: Mapping[str, Mapping[str, Any]]

    def of(self, command: str, known: Collection[str]) -> dict[str, Any]:
        """What is set for a command that has these fields."""
        found = {name: value for name, value in self.shared.items() if name in known}
        return found | dict(self.own.get(command, {}))

    def rows(self) -> list[tuple[str, str]]:
        """Names and values, as they stand in the file."""
        own = [(f"{command}.{name}", value) for command, of in self.own.items() for name, value in of.items()]
        return [(name, shown(value)) for name, value in [*self.shared.items(), *own]]


def shown(value: Any) -> str:
    """A value as it would be typed."""
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(map(shown, value)) if isinstance(value, list) else str(value)


def found_settings(flags: Mapping[str, Collection[str]], here: Path | None = None) -> Settings | None:
    """The settings that hold in a folder; `flags` are the fields of each command. Raises FfnbenchError for a table
    that can't be read, an unknown key, and a key that no file may set.
    """
    for folder in _upwards(here or Path.cwd()):
        if (path := folder / FILE).is_file() and (table := _table(path)) is not None:
            return _checked(path, table, flags)
    return None


def _upwards(here: Path) -> list[Path]:
    folders = [here, *here.parents]
    roots = [number for number, folder in enumerate(folders) if (folder / ".git").exists()]
    return folders[: roots[0] + 1] if roots else folders


def _table(path: Path) -> dict[str, Any] | None:
    if not os.access(path, os.R_OK):
        return None
    text = content_of(path)
    if b"ffnbench" not in text:  # somebody else's file is not even read
        return None
    try:
        tool = tomllib.loads(text.decode()).get("tool", {})
    except (ValueError, RecursionError) as problem:
        raise FfnbenchError(f"cannot read {str(path)!r}: {problem}", "it has to be TOML") from None
    table = tool.get("ffnbench") if isinstance(tool, dict) else None
    if table is not None and not isinstance(table, dict):
        raise FfnbenchError(f"{TABLE} of {str(path)!r} is no table", f"write [{TABLE}] and a line a flag")
    return table


def _checked(path: Path, table: Mapping[str, Any], flags: Mapping[str, Collection[str]]) -> Settings:
    every = {name for names in flags.values() for name in names}
    shared: dict[str, Any] = {}
    own: dict[str, dict[str, Any]] = {}
    for key, value in table.items():
        if isinstance(value, dict):
            if key not in flags:
                raise FfnbenchError(
                    f"no command is called {key!r}, in [{TABLE}.{key}] of {str(path)!r}",
                    hint_for(key, flags, "commands: " + ", ".join(flags)),
                )
            names = {_field(path, f"{TABLE}.{key}", one, flags[key]): of for one, of in value.items()}
            own[key] = {name: _value(path, name, of) for name, of in names.items()}
        else:
            name = _field(path, TABLE, key, every)
            shared[name] = _value(path, name, value)
    return Settings(path=path, shared=shared, own=own)


def _field(path: Path, table: str, key: str, known: Collection[str]) -> str:
    name = key.strip().replace("-", "_")
    if name not in known:
        plain = sorted(one.rstrip("_") for one in known if one not in NEVER)
        raise FfnbenchError(
            f"unknown key {key!r} in [{table}] of {str(path)!r}",
            hint_for(name, plain, "a key is the name of a flag: seq_len, dtype, budget, ..."),
        )
    if name in NEVER:
        raise FfnbenchError(
            f"{str(path)!r} sets {name}, which names {NEVER[name]}: no file may do that", "type it where it is wanted"
        )
    return name


def _value(path: Path, name: str, value: Any) -> Any:
    if not isinstance(value, bool | int | float | str | list) or (
        isinstance(value, list) and not all(isinstance(one, int | float | str) for one in value)
    ):
        raise FfnbenchError(f"{name} of {str(path)!r} is no value of a flag", 'for example seq_len = 128 or "2Ki"')
    text = shown(value)
    if name in OF_CODE and (":" in text or any(key in text for key in OF_CODE_KEYS)):
        raise FfnbenchError(
            f"{str(path)!r} sets {name} to {text!r}, which is no plain name: no file may set that",
            "type it where it is wanted",
        )
    return value


# Which defaults give way

EXACT, FREE = ("workers", "rounds", "quick"), ("precision", "budget")
MODELS = ("preset", "config")
Given = Mapping[str, Any]


def _variants(given: Given) -> str:
    """What is compared, as one list, typed with a flag or without."""
    texts = [given.get(name) or () for name in ("variants", "variant", "names")]
    return ",".join(",".join([text] if isinstance(text, str) else text) for text in texts)


def _models(given: Given) -> bool:
    """Whether a variant is a published model, which has a width of its own."""
    from ffnbench.models.presets import PRESETS

    parts = _variants(given).split(",")
    return any(part.partition("@")[0].rpartition("=")[2].strip() in PRESETS for part in parts)


NEEDS: Mapping[str, Callable[[Given], bool]] = {  # a default that only means something where this holds
    "ffn_dim_multiplier": lambda given: given.get("rule") is not None,
    "d_model": lambda given: not any(given.get(name) for name in MODELS) and not _models(given),
}
YIELDS: Mapping[str, tuple[str, ...]] = {  # a default gives way where one of these is typed
    **dict.fromkeys(EXACT, FREE), **dict.fromkeys(FREE, EXACT), "preset": ("config", "d_model"),
    "config": ("preset", "d_model"), "d_ff": ("ratio", "rule"), "ratio": ("d_ff",), "rule": ("d_ff",),
    "format": ("json",), "tolerance": ("fail_above",), "fail_above": ("tolerance",), "base_rev": ("base_source",),
    "head_rev": ("head_source",),
}  # fmt: skip


def that_hold(set_: Mapping[str, Any], typed: Collection[str], given: Given) -> dict[str, Any]:
    """The defaults that are not typed, and that nothing typed contradicts; `given` are all values without them."""
    found = {
        name: value for name, value in set_.items() if name not in typed and not {*YIELDS.get(name, ())} & {*typed}
    }
    together = {**given, **found}
    return {name: value for name, value in found.items() if name not in NEEDS or NEEDS[name](together)}
