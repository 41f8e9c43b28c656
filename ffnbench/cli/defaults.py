"""Defaults of flags from `[tool.ffnbench]` of a pyproject.toml: of all commands, or of
one (`[tool.ffnbench.compare]`).

They are Typer's `default_map`. The nearest file with such a table counts, from the
working folder upwards to the root of the repository. What is typed wins, and a default
that contradicts it is left out. The file may be somebody else's, and must not run or
write anything, so it may set only the flags of SETTABLE.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ffnbench.common.errors import FfnbenchError
from ffnbench.common.files import content_of
from ffnbench.common.names import hint_for

FILE, TABLE = "pyproject.toml", "tool.ffnbench"
# flags of how an answer is shown: no note names them
OF_OUTPUT = ("format", "verbose", "quiet", "sort", "columns")
SETTABLE = (
    "d_model", "d_ff", "bias", "match", "batch", "seq_len", "dtype", "mode", "device", "threads", "backend", "weights",
    "metrics",
    "precision", "budget", "timeout", "pause", "tolerance", "on_unclear", "hardware", "wait", *OF_OUTPUT,
)  # fmt: skip
PLAIN = (bool, int, float, str)  # what a flag may be set to
STATED_EFFORT = ("workers", "rounds", "quick")
GIVES_WAY_TO = {  # the default of a flag is left out where one of these is typed
    "precision": STATED_EFFORT,
    "budget": STATED_EFFORT,
    "d_model": ("preset",),
    "d_ff": ("preset",),
    "bias": ("preset",),
}


@dataclass(frozen=True, slots=True)
class Settings:
    """The table of a file: values of flags for every command, and tables of flags for
    one. Each value is as it would be typed.
    """

    path: Path
    table: Mapping[str, Any]

    def rows(self) -> list[tuple[str, str]]:
        """Facts for `ffnbench env`: the file, then each default with its value."""
        rows = [("defaults from", str(self.path))]
        for name, value in self.table.items():
            if isinstance(value, dict):
                rows += [
                    (f"default {name}.{key}", _shown(own)) for key, own in value.items()
                ]
            else:
                rows.append((f"default {name}", _shown(value)))
        return rows

    def by_command(self, commands: Sequence[str]) -> dict[str, dict[str, Any]]:
        """Typer's `default_map`: the defaults of each command."""
        of_all = {
            name: value
            for name, value in self.table.items()
            if not isinstance(value, dict)
        }
        return {command: of_all | self.table.get(command, {}) for command in commands}


def is_typed(context: Any, name: str) -> bool:
    """Whether a parameter was typed."""
    return str(context.get_parameter_source(name).name) == "COMMANDLINE"


def set_by_file(context: Any) -> dict[str, Any]:
    """The parameters that a file sets, with their values, in its order; without those
    that contradict what was typed.
    """
    values = {}
    for name in context.default_map or ():
        gives_way = any(
            is_typed(context, other)
            for other in GIVES_WAY_TO.get(name, ())
            if other in context.params
        )
        source = context.get_parameter_source(name)
        if source and source.name == "DEFAULT_MAP" and not gives_way:
            values[name] = context.params[name]
    return values


def defaults_note(defaults: Mapping[str, Any]) -> tuple[str, ...]:
    """A note on the defaults that a file has set; no note where there are none."""
    texts = [
        f"{name} {_shown(value)}"
        for name, value in defaults.items()
        if name not in OF_OUTPUT
    ]
    if texts:
        return (f"defaults from {FILE}: {', '.join(texts)}",)
    return ()


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(value) if isinstance(value, list) else str(value)


def found_settings(commands: Sequence[str]) -> Settings | None:
    """The settings that hold in this folder. Raises FfnbenchError for a file that is no
    TOML, an unknown command, and a key that no file may set.
    """
    try:
        here = Path.cwd()
    except FileNotFoundError:  # the folder is deleted
        return None
    for folder in (here, *here.parents):
        path = folder / FILE
        readable = path.is_file() and os.access(path, os.R_OK)
        if readable and b"[tool.ffnbench" in content_of(path):
            return Settings(path, _table_of(path, commands))
        if (folder / ".git").exists():
            break
    return None


def _table_of(path: Path, commands: Sequence[str]) -> dict[str, Any]:
    """The table of a file, its values as they would be typed."""
    try:
        table = tomllib.loads(content_of(path).decode())["tool"]["ffnbench"]
    except (ValueError, RecursionError) as problem:
        raise FfnbenchError(
            f"cannot read {str(path)!r}: {problem}", "it has to be TOML"
        ) from None
    values: dict[str, Any] = {}
    for key, value in table.items():
        if key in commands and isinstance(value, dict):
            values[key] = dict(_typed(path, *item) for item in value.items())
        else:
            name, typed = _typed(path, key, value)
            values[name] = typed
    return values


def _typed(path: Path, key: str, value: Any) -> tuple[str, bool | str | list[str]]:
    """The parameter that a key sets, and its value as it would be typed; raises
    FfnbenchError where no file may set it.
    """
    name = key.replace("-", "_")
    parts = value if isinstance(value, list) else [value]
    if name not in SETTABLE or not all(isinstance(part, PLAIN) for part in parts):
        raise FfnbenchError(
            f"{str(path)!r} can't set {key!r} to {value!r}",
            hint_for(name, SETTABLE, "a key is the name of a flag: seq_len = 128"),
        )
    if isinstance(value, bool):
        return name, value
    texts = [str(part) for part in parts]
    return name, texts if name == "tolerance" else ",".join(texts)
