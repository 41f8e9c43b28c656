"""How what is typed becomes the value of a field of a request: the same for a flag, an argument of Python and a line of
a pyproject.toml. The field's type says how. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from types import NoneType
from typing import Any, get_args, get_origin, get_type_hints

from ffnbench.errors import FfnbenchError
from ffnbench.planning.lists import is_range, several
from ffnbench.request import EXAMPLES, TAKE_LISTS, Percent, Seconds, Texts, spelling
from ffnbench.units import read_count, read_number, read_percent, read_seconds

READERS: Mapping[Any, Callable[[str], Any]] = {
    int: read_count,
    float: read_number,
    Seconds: read_seconds,
    Percent: read_percent,
}


_hints = cache(get_type_hints)


def types_of(request: Any, name: str) -> tuple[Any, ...]:
    """The types that the value of a field may have, None left out: `(int, str, tuple[int, ...])`."""
    hint = _hints(request, include_extras=True)[name]
    if hint in READERS or hint == Texts or get_origin(hint) is tuple:
        return (hint,)
    return tuple(one for one in get_args(hint) if one is not NoneType) or (hint,)


def takes_several(types: Sequence[Any]) -> bool:
    """Whether a field of these types may have several values."""
    return Texts in types or any(get_origin(one) is tuple for one in types)


def read(request: type[Any], name: str, typed: bool | Sequence[str]) -> Any:
    """The value of a field of a request, from the texts that were typed for it, or from whether it is on. Raises
    FfnbenchError for what it can't hold.
    """
    types, flag = types_of(request, name), spelling(name)
    kind = types[0]
    if isinstance(typed, bool) and kind is bool:
        return typed
    if isinstance(typed, bool) or kind is bool:
        shown = str(typed).lower() if isinstance(typed, bool) else ",".join(typed)
        hint = "it is true or false" if kind is bool else "give it a value"
        raise FfnbenchError(f"{flag} can't be {shown!r}", hint)
    refuse_empty(name.upper() if name in getattr(request, "PLACED", ()) else flag, typed)
    if get_origin(kind) is tuple:
        return tuple(typed)
    # words of a shell have commas at their ends, as in `relu, gelu ,silu`; in `relu,,gelu` a name is empty
    text = re.sub(",*\n[\n,]*", ",", "\n".join(typed))
    if kind not in READERS:
        return text
    if takes_several(types):
        return _numbers(name, text, READERS[kind])
    if "," in text:
        hint = TAKE_LISTS if name in EXAMPLES else "give one"
        raise FfnbenchError(f"{flag} takes one value here, not {text!r}", hint)
    try:
        return READERS[kind](text)
    except FfnbenchError as problem:
        raise FfnbenchError(f"{flag}: {problem.message}", problem.hint) from None


def refuse_empty(name: str, texts: Sequence[str]) -> None:
    """Raise FfnbenchError for an empty text: a shell makes one of a variable that is not set."""
    if not all(text.strip() for text in texts):
        raise FfnbenchError(f"{name} has an empty value", "give it one, or leave it out; is a variable not set?")


def typed_order(values: Mapping[str, Any]) -> tuple[str, ...]:
    """Which fields have lists, in the order in which they were typed; none where that is one."""
    lists = []
    for name, value in values.items():
        several_values = isinstance(value, tuple) or "," in str(value) or ".." in str(value)
        if (name in EXAMPLES and several_values) or (name == "variants" and "@" in value):
            lists.append(name)
    return tuple(lists) if len(lists) > 1 else ()


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

    numbers = several(name, text, read_one)
    if is_range(text):
        return text
    return numbers[0] if len(numbers) == 1 else numbers
