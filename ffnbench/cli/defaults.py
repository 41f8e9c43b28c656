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
from ffnbench.request import spelling

FILE, TABLE = "pyproject.toml", "tool.ffnbench"
# flags of how an answer is shown: no note names them
OF_OUTPUT = ("format", "verbose", "quiet", "sort", "columns")
SETTABLE = (
    "d_model", "d_ff", "bias", "match", "batch", "seq_len", "dtype", "mode", "device", "threads", "backend", "weights",
    "metrics",
    "precision", "budget", "timeout", "pause", "tolerance", "on_unclear", "hardware", "wait", *OF_OUTPUT,
)  # fmt: skip
STATED_EFFORT = ("workers", "rounds", "quick")
GIVES_WAY_TO = {  # the default of a flag is left out where one of these is typed
    "precision": STATED_EFFORT,
    "budget": STATED_EFFORT,
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
        """Facts for `ffnbench env`: the file, then each default with its value."""
        return [
            ("defaults from", str(self.path)),
            *(
                (f"default {name}", _shown(value))
                for name, value in self.values.items()
            ),
        ]

    def of_command(self, command: str, options: Mapping[str, Any]) -> dict[str, Any]:
        """The defaults of a command with these options, by the names of its parameters.

        What is set for all commands and is no option of this one is left out. Raises
        FfnbenchError where that is set for this command alone.
        """
        defaults: dict[str, Any] = {}
        for key, value in self.values.items():
            of, dot, name = key.rpartition(".")
            if dot and of != command:
                continue
            if name in options:
                if isinstance(value, bool) or options[name].multiple:
                    defaults[name] = value
                else:
                    defaults[name] = ",".join(value)
            elif dot:
                raise FfnbenchError(
                    f"{command} has no {spelling(name)}, in [{TABLE}.{command}] of {str(self.path)!r}",
                    "take it out of that table",
                )
        return defaults


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
        if context.get_parameter_source(name).name == "DEFAULT_MAP" and not gives_way:
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
    """The settings that hold in this folder. Raises FfnbenchError for a table that
    can't be read, an unknown command, and a key that no file may set.
    """
    try:
        here = Path.cwd()
    except FileNotFoundError:  # the folder is deleted
        return None
    for folder in (here, *here.parents):
        path = folder / FILE
        table = _table(path) if path.is_file() else None
        if table is not None:
            return _settings_of(path, table, commands)
        if (folder / ".git").exists():
            break
    return None


def _table(path: Path) -> dict[str, Any] | None:
    """The table of a file; None where it has none, or can't be opened."""
    if not os.access(path, os.R_OK):
        return None
    text = content_of(path)
    if b"ffnbench" not in text:  # a mistake in a file of others does not matter here
        return None
    try:
        tool = tomllib.loads(text.decode()).get("tool", {})
    except (ValueError, RecursionError) as problem:
        raise FfnbenchError(
            f"cannot read {str(path)!r}: {problem}", "it has to be TOML"
        ) from None
    table = tool.get("ffnbench") if isinstance(tool, dict) else None
    return table if isinstance(table, dict) else None


def _settings_of(
    path: Path, table: dict[str, Any], commands: Sequence[str]
) -> Settings:
    """The settings of a table, those for all commands first; raises FfnbenchError for
    what no file may set, and for an unknown command.
    """
    of_all = {
        _settable_name(path, key): _as_typed(path, key, value)
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
            values[f"{command}.{_settable_name(path, key)}"] = _as_typed(
                path, key, value
            )
    return Settings(path, values)


def _settable_name(path: Path, key: str) -> str:
    """The parameter that a key names; raises FfnbenchError where no file may set it."""
    name = key.strip().replace("-", "_")
    if name not in SETTABLE:
        hint = hint_for(
            name,
            SETTABLE,
            "type it where it is wanted; a key is the name of a flag: seq_len, dtype, budget",
        )
        raise FfnbenchError(f"no file may set {key!r}, as {str(path)!r} does", hint)
    return name


def _as_typed(path: Path, key: str, value: Any) -> Default:
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
