"""Defaults of flags from `[tool.ffnbench]` of a pyproject.toml: of all commands, or of one (`[tool.ffnbench.compare]`).

They are Typer's `default_map`. The nearest file with such a table counts, from the working folder upwards to the root
of the repository. What is typed wins, and a default that contradicts it is left out. No default names code, an
interpreter, an output, or what may be trusted: a file of somebody else's must not run or write anything.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ffnbench.common.errors import FfnbenchError
from ffnbench.common.files import content_of
from ffnbench.common.names import hint_for

FILE, TABLE = "pyproject.toml", "tool.ffnbench"
NEVER = {  # no file sets what runs, what is trusted, and what is written
    "trust", "out", "base_python", "head_python", "base_source", "head_source", "base_env", "head_env",
    "update", "append", "json", "resume", "shard", "on", "slurm", "state", "prefix",
}  # fmt: skip
OF_CODE = ("variants", "variant", "activations")  # may name code: plain names are taken
OF_CODE_KEYS = ("@python", "@source", "@env")
OF_OUTPUT = ("format", "verbose", "quiet", "sort", "columns")  # how an answer is shown: not told with it
EXACT, FREE = ("workers", "rounds", "quick"), ("precision", "budget")
YIELDS: Mapping[str, tuple[str, ...]] = {  # a default gives way where one of these is typed
    **dict.fromkeys(EXACT, FREE), **dict.fromkeys(FREE, EXACT), "preset": ("d_model",),
    "d_model": ("preset",), "d_ff": ("ratio", "rule"), "ratio": ("d_ff",),
    "rule": ("d_ff",), "format": ("json",), "tolerance": ("fail_above",), "fail_above": ("tolerance",),
    **dict.fromkeys((*OF_CODE, "base_rev"), ("placed",)),
}  # fmt: skip
Default = bool | list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What a file sets, as it would be typed: by option for every command, and for each one by itself."""

    path: Path
    shared: Mapping[str, Default]
    own: Mapping[str, Mapping[str, Default]]

    def rows(self) -> list[tuple[str, str]]:
        """The file, then names and values."""
        own = [(f"{command}.{name}", value) for command, of in self.own.items() for name, value in of.items()]
        rows = [(f"default {name}", _shown(value)) for name, value in [*self.shared.items(), *own]]
        return [("defaults from", str(self.path)), *rows]

    def of_command(self, command: str, options: Mapping[str, Any]) -> dict[str, Any]:
        """What holds for a command with these options: of what is shared, that which it has."""
        both = {**self.shared, **self.own.get(command, {})}
        known = {name: value for name, value in both.items() if name in options}
        return {name: value if options[name].multiple else _typed(value) for name, value in known.items()}


def is_typed(context: Any, name: str) -> bool:
    """Whether a parameter was typed."""
    return str(context.get_parameter_source(name).name) == "COMMANDLINE"


def held_of(context: Any) -> dict[str, Any]:
    """Which parameters a file sets, in its order, without what contradicts those that were typed."""
    typed = {name for name in context.params if is_typed(context, name)}
    return {
        name: context.params[name]
        for name in context.default_map or ()
        if context.get_parameter_source(name).name == "DEFAULT_MAP" and typed.isdisjoint(YIELDS.get(name, ()))
    }


def noted(held: Mapping[str, Any]) -> tuple[str, ...]:
    """What a reader should know of the defaults that a file has set."""
    told = [f"{name.rstrip('_')} {_shown(value)}" for name, value in held.items() if name not in OF_OUTPUT]
    return (f"defaults from {FILE}: {', '.join(told)}",) if told else ()


def _shown(value: Default | str) -> str:
    return str(value).lower() if isinstance(value, bool) else str(_typed(value))


def _typed(value: Default | str) -> bool | str:
    """The value as one word, as it would be typed."""
    return ",".join(value) if isinstance(value, list) else value


def found_settings(options: Callable[[], Mapping[str, Collection[str]]]) -> Settings | None:
    """The settings that hold in this folder; `options` gives those of all commands. Raises FfnbenchError for a table
    that can't be read, an unknown key, and a key that no file may set.
    """
    try:
        here = Path.cwd()
    except FileNotFoundError:  # it is deleted, and there is no file in it
        return None
    for folder in (here, *here.parents):
        path = folder / FILE
        if path.is_file():
            table = _table(path)
            if table is not None:
                return _checked(path, table, options())
        if (folder / ".git").exists():
            break
    return None


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
    return table if isinstance(table, dict) else None


def _checked(path: Path, table: dict[str, Any], options: Mapping[str, Collection[str]]) -> Settings:
    every = {name for known in options.values() for name in known}
    shared: dict[str, Default] = {}
    own: dict[str, dict[str, Default]] = {}
    for key, value in table.items():
        if not isinstance(value, dict):
            shared |= _setting(path, TABLE, key, value, every)
        elif key in options:
            for name, of in value.items():
                own.setdefault(key, {}).update(_setting(path, f"{TABLE}.{key}", name, of, options[key]))
        else:
            raise FfnbenchError(
                f"no command is called {key!r}, in [{TABLE}.{key}] of {str(path)!r}",
                hint_for(key, options, "commands: " + ", ".join(options)),
            )
    return Settings(path=path, shared=shared, own=own)


def _setting(path: Path, table: str, key: str, value: Any, known: Collection[str]) -> dict[str, Default]:
    """The option of a key with its value as it would be typed, if a file may set that."""
    names = {name.rstrip("_"): name for name in known}
    plain = key.strip().replace("-", "_")
    if plain not in names:
        where = "a key is the name of a flag: seq_len, dtype, budget, ..."
        raise FfnbenchError(f"unknown key {key!r} in [{table}] of {str(path)!r}", hint_for(plain, names, where))
    parts = value if isinstance(value, list) else [value]
    if not parts or not all(isinstance(one, int | float | str) for one in parts):
        raise FfnbenchError(f"{key} of {str(path)!r} is no value of a flag", 'for example seq_len = 128 or "2Ki"')
    text = ",".join(map(str, parts))
    of_code = plain in OF_CODE and (":" in text or any(one in text for one in OF_CODE_KEYS))
    if plain in NEVER or of_code:
        what = f"{key} to {text!r}, which is no plain name" if of_code else key
        raise FfnbenchError(f"{str(path)!r} sets {what}: no file may do that", "type it where it is wanted")
    return {names[plain]: value if isinstance(value, bool) else [str(one) for one in parts]}
