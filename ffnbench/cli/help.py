"""How `--help` reads: flags by panel, further spellings of them left out, examples as they are typed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from typer.core import TyperArgument

from ffnbench.request import (
    ATTENTION,
    CURVES,
    EFFORT,
    LIMITS,
    MEASURING,
    MODEL,
    OUTPUT,
    SIDES,
    WIDTHS,
    WORKLOAD,
)

PANELS = (
    "Arguments", SIDES, MODEL, WIDTHS, ATTENTION, CURVES, WORKLOAD, LIMITS, MEASURING, EFFORT, OUTPUT, "Options",
)  # fmt: skip
LEFT = 28  # columns of names; the meaning of a longer one stands below it


def examples(*lines: str, docs: str) -> str:
    """The end of a command's help: what can be typed, and where more is said."""
    return "\n".join(["Examples:", *(f"  {line}" for line in lines), "", f"More: {docs}"])


def write_examples(command: Any, formatter: Any) -> None:
    """The end of a help, its lines as they are: they are copied."""
    formatter.write(f"\n{command.epilog}\n")


def write_options(command: Any, ctx: Any, formatter: Any) -> None:
    """Arguments and flags, panel by panel."""
    panels: dict[str, list[tuple[str, str]]] = {name: [] for name in PANELS}
    for param in command.get_params(ctx):
        own = "Arguments" if isinstance(param, TyperArgument) else "Options"
        panels[getattr(param, "rich_help_panel", None) or own].append((_name(param), _meaning(param, ctx)))
    for title, rows in panels.items():
        if rows:
            with formatter.section(title):
                formatter.write_dl(rows, col_max=LEFT)


def _name(param: Any) -> str:
    """A flag or an argument, with what stands for its value."""
    if isinstance(param, TyperArgument):
        return str(param.metavar or param.name)
    shorts = [one for one in param.opts if not one.startswith("--")]
    off = f" / {_first_long(param.secondary_opts)}" if param.secondary_opts else ""
    value = f" {param.metavar}" if param.metavar and not param.is_flag else ""
    return f"{', '.join((*shorts, _first_long(param.opts)))}{off}{value}"


def _first_long(names: Sequence[str]) -> str:
    """The main name: further ones are spellings that people try."""
    return next((one for one in names if one.startswith("--")), names[0])


def _meaning(param: Any, ctx: Any) -> str:
    text = " ".join((param.help or "").replace("\\[", "[").split())
    default = param.get_default(ctx, call=False)
    if isinstance(default, list):  # of a flag whose values add up to one list
        default = ",".join(map(str, default))
    if "[default:" in text or default is None or default == "" or isinstance(default, bool | tuple):
        return text
    shown = f"{default:g}" if isinstance(default, float) else str(default)
    return f"{text} [default: {shown}{'s' if param.metavar == 'TIME' else ''}]"
