"""Lists as people type them: `128,512`, `float32,bf16`; empty and double values are mistakes. Pure.

`compare` and `cost` make a group of each value; commands that take one value refuse a list.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from ffnbench.errors import FfnbenchError
from ffnbench.request import Request, spelling

T = TypeVar("T")
TAKE_LISTS = "`ffnbench compare` and `ffnbench cost` take lists"
EXAMPLES = {
    "d_model": "512,1024", "dtype": "float32,bfloat16", "mode": "forward,train", "threads": "1,2", "batch": "1,8",
    "seq_len": "1,128",
}  # fmt: skip


def parts_of(name: str, text: str) -> list[str]:
    """The values of a list, `name` that of the flag's field; raises FfnbenchError where one is empty."""
    parts = [part.strip() for part in text.split(",")]
    if not any(parts):
        raise FfnbenchError(f"{spelling(name)} has no value", f"for example {_example(name)}")
    if not all(parts):
        cut = not parts[-1]  # the shell has cut the list at a space
        written = _example(name) if cut else f"{spelling(name)} {','.join(part for part in parts if part)}"
        raise FfnbenchError(
            f"{spelling(name)} {text!r} {'ends in a comma' if cut else 'has an empty value'}",
            f"a list has commas and no spaces: {written}",
        )
    return parts


def once_each(name: str, values: Iterable[T]) -> tuple[T, ...]:
    """The values as they are; raises FfnbenchError for one that stands twice."""
    found = tuple(values)
    for value in found:
        if found.count(value) > 1:
            once = ",".join(map(str, dict.fromkeys(found)))
            raise FfnbenchError(f"{value} stands twice in {spelling(name)}", f"give it once: {spelling(name)} {once}")
    return found


def several(name: str, value: Any, read: Callable[[Any], T]) -> tuple[T, ...]:
    """The values of a field that may be a list, each read; a text is cut at its commas."""
    values = parts_of(name, value) if isinstance(value, str) else value if isinstance(value, tuple | list) else (value,)
    if not values:
        raise FfnbenchError(f"{spelling(name)} has no value", f"for example {_example(name)}")
    return once_each(name, map(read, values))


def one(name: str, value: Any) -> Any:
    """The value of a field that may be a list, where there can be one only; raises FfnbenchError for several."""
    if isinstance(value, tuple | list) and len(value) == 1:
        return value[0]
    if isinstance(value, tuple | list) or (isinstance(value, str) and "," in value):
        text = value if isinstance(value, str) else ",".join(map(str, value))
        raise FfnbenchError(f"{spelling(name)} takes one value here, not {text!r}", TAKE_LISTS)
    return value


def refuse_lists(request: Request, *names: str) -> None:
    """Raise FfnbenchError for a list in one of these fields of a request."""
    for name in names:
        one(name, getattr(request, name))


def _example(name: str) -> str:
    return f"{spelling(name)} {EXAMPLES[name]}"
