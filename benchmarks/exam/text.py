"""How the exams print: a table whose columns are as wide as they must be, and records
in a file.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any


def table(head: Sequence[str], rows: Iterable[Sequence[str]], left: int = 1) -> str:
    """The first `left` columns stand on the left, all others on the right."""
    lines = [head, *rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]

    def aligned(line: Sequence[str]) -> str:
        cells = enumerate(zip(line, widths, strict=True))
        return "  ".join(
            t.ljust(width) if place < left else t.rjust(width)
            for place, (t, width) in cells
        ).rstrip()

    return "\n".join(map(aligned, lines))


def share(hits: float, of: float) -> str:
    """In percent; a dash of none."""
    return f"{100 * hits / of:.1f}%" if of else "-"


def save(path: str | None, records: Sequence[Any]) -> None:
    """Write dataclasses as a list of JSON, one a line, where a path is given and there
    are any.
    """
    if path and records:
        lines = ",\n ".join(json.dumps(asdict(record)) for record in records)
        Path(path).write_text(f"[\n {lines}\n]\n", encoding="utf-8")
