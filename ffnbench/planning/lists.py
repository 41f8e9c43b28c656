"""Lists as people type them: `128,512`, `float32,bf16`; what stands twice counts once. Pure.

`compare` and `cost` make a group of each value; commands that take one value refuse a list.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from ffnbench.errors import FfnbenchError
from ffnbench.request import Request, spelling

T = TypeVar("T")
TAKE_LISTS = "`ffnbench compare` and `ffnbench cost` take lists"
EXAMPLES = {
    "d_model": "512,1024", "dtype": "float32,bfloat16", "mode": "forward,train", "threads": "1,2", "batch": "1,8",
    "seq_len": "1,128", "elements": "4096,1048576",
}  # fmt: skip


def several(name: str, value: Any, read: Callable[[Any], T]) -> tuple[T, ...]:
    """The values of a field that may be a list, each read; a text is cut at its commas. Raises FfnbenchError where one
    is empty.
    """
    if isinstance(value, str):
        value = [part.strip() for part in value.split(",")]
    values = value if isinstance(value, tuple | list) else (value,)
    if not values or "" in values:
        typed = ",".join(map(str, values))
        hint = f"a list has commas and no spaces: {spelling(name)} {EXAMPLES[name]}"
        raise FfnbenchError(f"{spelling(name)} {typed!r} has an empty value", hint)
    return tuple(dict.fromkeys(map(read, values)))


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
