"""Variants that are typed without a flag: `ffnbench compare relu gelu`; and what the shell has cut out of a list."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import typer

from ffnbench.errors import FfnbenchError
from ffnbench.ffn.dtypes import DTYPES
from ffnbench.names import normalise
from ffnbench.plan import MODE_ALIASES, Backend, Mode, values_of
from ffnbench.request import spelling

NUMBERS = ("d_model", "seq_len", "batch", "threads")


def with_names(context: typer.Context, variants: str, names: Sequence[str] | None) -> str:
    """The list of variants: those of the flag where it was typed, then the names. Raises FfnbenchError for a name that
    is a part of another flag's list.
    """
    if not names:
        return variants
    typed = {name for name in context.params if _is_typed(context, name)}
    for name in names:
        for flag in _flags_of(name, typed):
            _refuse(context, flag, name)
    given = [variants] if "variants" in typed else []
    return ",".join([*given, *names])


def _flags_of(name: str, typed: set[str]) -> Iterator[str]:
    """The flags whose list a name may have been cut out of; of numbers those that were typed come first."""
    first = name.partition(",")[0].strip()
    if first.isdigit():
        yield next((flag for flag in NUMBERS if flag in typed), "seq_len")
    elif first in DTYPES:
        yield "dtype"
    elif normalise(first) in (*values_of(Mode), *MODE_ALIASES):
        yield "mode"
    elif first in (*values_of(Backend), "all"):
        yield "backend"


def _is_typed(context: typer.Context, flag: str) -> bool:
    source = context.get_parameter_source(flag)
    return source is not None and source.name == "COMMANDLINE"


def _refuse(context: typer.Context, flag: str, name: str) -> None:
    given = context.params.get(flag) if _is_typed(context, flag) else None
    parts = [part.strip() for text in (*(given or ()), name) for part in text.split(",") if part.strip()]
    raise FfnbenchError(
        f"{name!r} is no variant", f"a list has commas and no spaces: {spelling(flag)} {','.join(dict.fromkeys(parts))}"
    )
