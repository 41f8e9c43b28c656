"""What a field of a request holds, and how what is typed becomes its value: the same for a flag, an argument of Python
and a line of a pyproject.toml. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import Field
from typing import Any

from ffnbench.errors import FfnbenchError
from ffnbench.planning.lists import is_range, several
from ffnbench.request import EXAMPLES, TAKE_LISTS, Flag, spelling
from ffnbench.units import read_count, read_number, read_percent, read_seconds

LIST = "LIST"  # stands for the value of a flag that is a comma separated list, and that adds up if it is repeated
Typed = bool | Sequence[str]  # the texts of a flag, or whether it is on


def flag_of(field: Field[Any]) -> Flag:
    """How the field is typed."""
    found: Flag = field.metadata["flag"]
    return found


def kind_of(field: Field[Any]) -> str:
    """`int` of a field that is annotated as `int | tuple[int, ...] | None`, `str` of `tuple[str, ...]`."""
    return str(field.type).removeprefix("tuple[").partition(" ")[0].rstrip(",")


def takes_list(field: Field[Any]) -> bool:
    """Whether it may have several values."""
    return isinstance(field.default, tuple) or flag_of(field).metavar == LIST


def read(field: Field[Any], typed: Typed) -> Any:
    """The value of a field. Raises FfnbenchError for what it can't hold."""
    name, kind = spelling(field.name), kind_of(field)
    if isinstance(typed, bool) and kind == "bool":
        return typed
    if isinstance(typed, bool) or kind == "bool":
        said = str(typed).lower() if isinstance(typed, bool) else ",".join(typed)
        hint = "it is true or false" if kind == "bool" else "give it a value"
        raise FfnbenchError(f"{name} can't be {said!r}", hint)
    if not all(text.strip() for text in typed):  # a shell makes one of a variable that is not set
        shown = name if flag_of(field).named else flag_of(field).place
        raise FfnbenchError(f"{shown} has an empty value", "give it one, or leave it out; is a variable not set?")
    if isinstance(field.default, tuple):
        return tuple(typed)
    # words of a shell have commas at their ends, as in `relu, gelu ,silu`; in `relu,,gelu` a name is empty
    text = re.sub(",*\n[\n,]*", ",", "\n".join(typed))
    if flag_of(field).metavar == LIST:
        return _numbers(field.name, text, READERS[kind]) if kind in READERS else text
    reader = READERS.get(flag_of(field).metavar, READERS.get(kind, str))
    if "," in text and reader is not str:
        hint = TAKE_LISTS if field.name in EXAMPLES else "give one"
        raise FfnbenchError(f"{name} takes one value here, not {text!r}", hint)
    try:
        return reader(text)
    except FfnbenchError as problem:
        raise FfnbenchError(f"{name}: {problem.message}", problem.hint) from None


def typed_order(values: Mapping[str, Any]) -> tuple[str, ...]:
    """Which fields have lists, in the order in which they were typed; none where that is one."""
    found = [
        name
        for name, value in values.items()
        if (name in EXAMPLES and (isinstance(value, tuple) or any(sign in str(value) for sign in (",", ".."))))
        or (name == "variants" and "@" in value)
    ]
    return tuple(found) if len(found) > 1 else ()


def _numbers(name: str, text: str, read: Callable[[str], float]) -> float | str | tuple[float, ...]:
    """One number, or several with commas between; a range stays as it was typed."""

    def read_one(part: str) -> float:
        try:
            if re.fullmatch("0[0-9]+", part):
                raise FfnbenchError(f"{part!r} is not a whole number", "4,096 is a list of two, write 4096")
            return read(part)
        except FfnbenchError as problem:
            of = f", in {text!r}" if part != text else ""
            hint = f"{problem.hint}; for example {spelling(name)} {EXAMPLES[name]}"
            raise FfnbenchError(f"{spelling(name)}: {problem.message}{of}", hint) from None

    found = several(name, text, read_one)
    return text if is_range(text) else found[0] if len(found) == 1 else found


READERS: dict[str, Callable[[str], Any]] = {  # by what stands for the value, or by its kind
    "TIME": read_seconds, "PCT": read_percent, "int": read_count, "float": read_number,
}  # fmt: skip
