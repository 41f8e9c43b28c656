"""Where the files of this repository are."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def committed_runs() -> list[Path]:
    """The runs under results/."""
    return sorted(ROOT.glob("results/**/*.json"))
