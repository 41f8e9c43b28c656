"""Defaults of flags from `[tool.ffnbench]` of a pyproject.toml: of all commands, or of
one (`[tool.ffnbench.compare]`).

They are Typer's `default_map`. The nearest file with such a table counts, from the
working folder upwards to the root of the repository. What is typed wins, and a default
that contradicts it is left out. A file of somebody else's must not run or write
anything, so it sets only what MAY has.
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
from ffnbench.request import spelling

FILE, TABLE = "pyproject.toml", "tool.ffnbench"
# how an answer is shown: not told with it
OF_OUTPUT = ("format", "verbose", "quiet", "sort", "columns")
MAY = (
    "d_model", "d_ff", "bias", "match", "batch", "seq_len", "dtype", "mode", "device", "threads", "backend", "weights",
    "metrics",
    "precision", "budget", "timeout", "pause", "tolerance", "on_unclear", "hardware", "wait", *OF_OUTPUT,
)  # fmt: skip
NUMBERED = ("workers", "rounds", "quick")
YIELDS = {  # a default gives way where one of these is typed
    "precision": NUMBERED,
    "budget": NUMBERED,
    "d_model": ("preset",),
    "d_ff": ("preset",),
    "bias": ("preset",),
}
Default = bool | list[str]


@dataclass(frozen=True, slots=True)
class Settings:
    """What a file sets, each value as it would be typed: `seq_len` for every command,
    `compare.seq_len` for one.
    """

    path: Path
    values: Mapping[str, Default]

    def rows(self) -> list[tuple[str, str]]:
        """The file, then names and values."""
        return [
            ("defaults from", str(self.path)),
            *(
                (f"default {name}", _shown(value))
                for name, value in self.values.items()
            ),
        ]

    def of_command(self, command: str, options: Mapping[str, Any]) -> dict[str, Any]:
        """What holds for a command with these options; of what is set for all, that
        which it has. Raises FfnbenchError for what is set for it alone and it has not.
        """
        held: dict[str, Any] = {}
        for key, value in self.values.items():
            of, dot, name = key.rpartition(".")
            if dot and of != command:
                continue
            if name in options:
                if isinstance(value, bool) or options[name].multiple:
                    held[name] = value
                else:
                    held[name] = ",".join(value)
            elif dot:
                raise FfnbenchError(
                    f"{command} has no {spelling(name)}, in [{TABLE}.{command}] of {str(self.path)!r}",
                    "take it out of that table",
                )
        return held


def is_typed(context: Any, name: str) -> bool:
    """Whether a parameter was typed."""
    return str(context.get_parameter_source(name).name) == "COMMANDLINE"


def set_by_file(context: Any) -> dict[str, Any]:
    """Which parameters a file sets, in its order, without what contradicts those that
    were typed.
    """
    values = {}
    for name in context.default_map or ():
        gives_way = any(
            is_typed(context, other)
            for other in YIELDS.get(name, ())
            if other in context.params
        )
        if context.get_parameter_source(name).name == "DEFAULT_MAP" and not gives_way:
            values[name] = context.params[name]
    return values


def noted(defaults: Mapping[str, Any]) -> tuple[str, ...]:
    """What a reader should know of the defaults that a file has set."""
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
    """The settings that hold in this folder. Raises FfnbenchError for a table that
    can't be read, an unknown command, and a key that no file may set.
    """
    try:
        here = Path.cwd()
    except FileNotFoundError:  # it is deleted, and there is no file in it
        return None
    for folder in (here, *here.parents):
        path = folder / FILE
        table = _table(path) if path.is_file() else None
        if table is not None:
            return _checked(path, table, commands)
        if (folder / ".git").exists():
            break
    return None


def _table(path: Path) -> dict[str, Any] | None:
    """The table of a file; None where it has none, or can't be opened."""
    if not os.access(path, os.R_OK):
        return None
    text = content_of(path)
    if b"ffnbench" not in text:  # somebody else's file is not even read
        return None
    try:
        tool = tomllib.loads(text.decode()).get("tool", {})
    except (ValueError, RecursionError) as problem:
        raise FfnbenchError(
            f"cannot read {str(path)!r}: {problem}", "it has to be TOML"
        ) from None
    table = tool.get("ffnbench") if isinstance(tool, dict) else None
    return table if isinstance(table, dict) else None


def _checked(path: Path, table: dict[str, Any], commands: Sequence[str]) -> Settings:
    """The values of a table, those for all commands first."""
    of_all = {
        _name(path, key): _default(path, key, value)
        for key, value in table.items()
        if not isinstance(value, dict)
    }
    values: dict[str, Default] = {**of_all}
    for command, own in table.items():
        if not isinstance(own, dict):
            continue
        if command not in commands:
            raise FfnbenchError(
                f"no command is called {command!r}, in [{TABLE}.{command}] of {str(path)!r}",
                hint_for(command, commands, "commands: " + ", ".join(commands)),
            )
        for key, value in own.items():
            values[f"{command}.{_name(path, key)}"] = _default(path, key, value)
    return Settings(path, values)


def _name(path: Path, key: str) -> str:
    """The flag of a key; raises FfnbenchError where no file may set it."""
    name = key.strip().replace("-", "_")
    if name not in MAY:
        hint = hint_for(
            name,
            MAY,
            "type it where it is wanted; a key is the name of a flag: seq_len, dtype, budget",
        )
        raise FfnbenchError(f"no file may set {key!r}, as {str(path)!r} does", hint)
    return name


def _default(path: Path, key: str, value: Any) -> Default:
    """A value as it would be typed; raises FfnbenchError for what can't be."""
    if isinstance(value, bool):
        return value
    parts = value if isinstance(value, list) else [value]
    if not parts or not all(isinstance(part, int | float | str) for part in parts):
        raise FfnbenchError(
            f"{key} of {str(path)!r} is no value of a flag",
            'for example seq_len = 128 or "2Ki"',
        )
    return [str(part) for part in parts]
