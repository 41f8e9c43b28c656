"""How `--help` reads: flags by panel, further spellings of them left out, examples as they are typed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import Field
from pathlib import Path
from typing import Any

from typer.core import TyperArgument

from ffnbench.planning.fields import flag_of
from ffnbench.request import PANELS

FEW = 16  # so many flags are shown at once; of more, those that few people use stand in --help-all alone
RARE = {
    "absolute", "across_machines", "allow_mismatch", "base_env", "base_source", "bias", "cache", "causal",
    "columns", "control", "dropout", "ffn_dim_multiplier", "head_dim", "head_env", "head_python",
    "head_rev", "head_source", "heads", "init", "kv_heads", "matmul_precision", "metrics", "multiple_of",
    "pause", "quiet", "ratio", "reduced_reductions", "reference", "resume", "rounds", "routing", "rule", "runs",
    "seed", "shard", "sort", "textbook", "time", "timeout", "wait", "workers",
}  # fmt: skip
LEFT = 28  # columns of names; the meaning of a longer one stands below it


def meaning(field: Field[Any]) -> str:
    """The help of a flag with its default, where that says something."""
    how, default = flag_of(field), field.default
    if "[default:" in how.help or default in (None, "") or isinstance(default, bool | tuple):
        return how.help
    shown = f"{default:g}" if isinstance(default, float) else str(default)
    return f"{how.help} [default: {shown}{'s' if how.metavar == 'TIME' else ''}]"


def page_of(path: str) -> str:
    """The URL of a page beside the code that runs, in a wheel as in a checkout: of this version, and offline."""
    name, mark, heading = path.partition("#")
    package = Path(__file__).parents[1]
    beside = package if (package / "docs").is_dir() else package.parent
    return f"{(beside / name).as_uri()}{mark}{heading}"


def write_end(formatter: Any, examples: Sequence[str], docs: str) -> None:
    """The end of a help, its lines as they are: they are copied."""
    lines = ["Examples:", *(f"  {line}" for line in examples), "", f"More: {page_of(docs)}"]
    formatter.write("\n" + "\n".join(lines) + "\n")


def write_options(command: Any, ctx: Any, formatter: Any, *, every: bool = True) -> None:
    """Arguments and flags, panel by panel; where they are many, those that people use, and those of the examples,
    unless `every` is wanted.
    """
    panels: dict[str, list[tuple[str, str]]] = {name: [] for name in PANELS}
    params = command.get_params(ctx)
    every = every or len(params) <= FEW
    described = getattr(command, "described", None)  # the group of all has none
    rare = RARE | {*described.added} if described else RARE
    examples = str(described)
    for param in params:
        if param.name in rare and not every and f" {param.opts[0]} " not in examples:
            continue
        panels[param.rich_help_panel or "Options"].append((_name(param), " ".join((param.help or "").split())))
    for title, rows in panels.items():
        if rows:
            with formatter.section(title):
                formatter.write_dl(rows, col_max=LEFT)


def _name(param: Any) -> str:
    """A flag or an argument, with what stands for its value."""
    if isinstance(param, TyperArgument):
        return str(param.metavar)
    shorts = [one for one in param.opts if not one.startswith("--")]
    off = f" / {_first_long(param.secondary_opts)}" if param.secondary_opts else ""
    value = f" {param.metavar}" if param.metavar and not param.is_flag else ""
    return f"{', '.join((*shorts, _first_long(param.opts)))}{off}{value}"


def _first_long(names: Sequence[str]) -> str:
    """The main name: further ones are spellings that people try."""
    return next(one for one in names if one.startswith("--"))
