"""Where the files of this repository are."""

from __future__ import annotations

import json
from pathlib import Path

from ffnbench.plan import Kind, kind_names

ROOT = Path(__file__).resolve().parents[1]


def committed_runs() -> list[Path]:
    """The runs under results/, but for those of a kind that a feature adds which is not
    there.
    """
    runs = []
    for path in sorted(ROOT.glob("results/**/*.json")):
        kind = (
            json.loads(path.read_text(encoding="utf-8"))["plan"].get("kind")
            or Kind.COMPARE
        )
        if kind in kind_names():
            runs.append(path)
    return runs
