"""The JSON Schema of a saved run, made from the types of the code. `python
tests/report/result_schema.py` writes it.
"""

from __future__ import annotations

import json
import types
from dataclasses import MISSING, Field
from enum import Enum
from pathlib import Path
from typing import Any, Union, get_args, get_origin, get_type_hints

from ffnbench.common import jsonable
from ffnbench.record.result import SCHEMA, Report

WRITTEN = Path(__file__).parents[2] / "docs" / "result.schema.json"
LINE = 110  # characters
SCALARS: dict[Any, str] = {
    str: "string",
    int: "integer",
    float: "number",
    bool: "boolean",
    type(None): "null",
}


def schema_text() -> str:
    """The JSON Schema of what `report_text` gives and `read_report` reads:
    what fits into a line is one.
    """
    found = schema_of(Report)
    found["description"] += (
        " In seconds and bytes. What is not known is null; what is left out is its default."
    )
    found["properties"]["schema"] = {"const": SCHEMA}
    head = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:ffnbench:result:{SCHEMA}",
        "title": "A run of ffnbench, as -o run.json writes it",
    }
    return _indented(head | found) + "\n"


def _indented(value: Any, by: str = "") -> str:
    text = jsonable.json_text(value)
    if not isinstance(value, dict) or len(by + text) < LINE:
        return text
    inner = by + "  "
    items = (
        f"{inner}{json.dumps(key)}: {_indented(item, inner)}"
        for key, item in value.items()
    )
    return "{\n" + ",\n".join(items) + f"\n{by}}}"


def schema_of(kind: type) -> dict[str, Any]:
    """What `decode` takes for a dataclass, as a JSON Schema; the types in it stand by
    their names in `$defs`.
    """
    named: dict[str, Any] = {}
    _schema(kind, named)
    return {**named.pop(kind.__name__), "$defs": dict(sorted(named.items()))}


def _schema(kind: Any, named: dict[str, Any]) -> dict[str, Any]:
    if kind in SCALARS:
        return {"type": SCALARS[kind]}
    if get_origin(kind) in (Union, types.UnionType):
        choices = [_schema(choice, named) for choice in get_args(kind)]
        scalar = all(choice.keys() == {"type"} for choice in choices)
        return (
            {"type": [choice["type"] for choice in choices]}
            if scalar
            else {"anyOf": choices}
        )
    if get_origin(kind) is tuple:
        inner = get_args(kind)
        if inner[1:] == (Ellipsis,):
            return {"type": "array", "items": _schema(inner[0], named)}
        items = [_schema(of, named) for of in inner]
        return {
            "type": "array",
            "prefixItems": items,
            "minItems": len(items),
            "maxItems": len(items),
        }
    if kind.__name__ not in named:
        named[kind.__name__] = {}  # a type may hold its own
        told = {"description": " ".join(kind.__doc__.split())}
        of_enum = (
            {"enum": [each.value for each in kind]} if issubclass(kind, Enum) else None
        )
        named[kind.__name__] = told | (of_enum or _object(kind, named))
    return {"$ref": f"#/$defs/{kind.__name__}"}


def _object(kind: Any, named: dict[str, Any]) -> dict[str, Any]:
    hints = get_type_hints(kind)
    saved = jsonable.saved_fields(kind)
    others = [
        _schema(get_args(hints[name])[1], named)
        for name, one in saved.items()
        if one.metadata == jsonable.OTHER_FIELDS
    ]
    own = {
        name: one
        for name, one in saved.items()
        if one.metadata != jsonable.OTHER_FIELDS
    }
    return {
        "type": "object",
        "properties": {
            name: _property(one, hints[name], named) for name, one in own.items()
        },
        "required": [name for name, one in own.items() if _is_required(one)],
        "additionalProperties": others[0] if others else False,
    }


def _is_required(one: Field[Any]) -> bool:
    return one.default is MISSING and one.default_factory is MISSING


def _property(one: Field[Any], kind: Any, named: dict[str, Any]) -> dict[str, Any]:
    """Its type, and what it is where a file leaves it out."""
    found = _schema(kind, named)
    if not _is_required(one):
        found["default"] = jsonable.encode(
            one.default if one.default_factory is MISSING else one.default_factory()
        )
    return found


if __name__ == "__main__":
    WRITTEN.write_text(schema_text(), encoding="utf-8")
