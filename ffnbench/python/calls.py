"""The public functions: each a sentence of api/ behind a signature that is made of the command's own bundle."""

from __future__ import annotations

import os
from dataclasses import fields
from typing import TYPE_CHECKING

from ffnbench.api import building, saved
from ffnbench.python.following import CalledHere
from ffnbench.python.public import asks
from ffnbench.report.shown_report import ShownReport as Report
from ffnbench.request import (
    CompareRequest,
)

if TYPE_CHECKING:
    import torch
    from torch import nn

BUILDS = {
    "variants", "d_model", "d_ff", "bias", "match", "multiple_of", "rule", "ratio", "ffn_dim_multiplier", "dropout",
    "init", "dtype",
}  # fmt: skip
HIDDEN = tuple(field.name for field in fields(CompareRequest) if field.name not in BUILDS)  # for a module alone


@asks(CompareRequest, hidden=HIDDEN, in_worker=True)
def build(request: CompareRequest, here: CalledHere, device: str | torch.device | None = None) -> nn.Module:
    """The nn.Module of one variant, in this process: maps (..., d_model) to (..., d_model).

    Widths follow the same rules as in `compare`: a gated form has the parameters of the classic one at 4 * d_model
    unless d_ff, rule or match="none" say otherwise. `@dtype=` and `@device=` in the variant work too.

    >>> module = ffnbench.build("swiglu", d_model=768)
    """
    return building.build(request, device)


def load(path: str | os.PathLike[str]) -> Report:
    """A saved run, by `Report.save("run.json")` or `-o run.json`; its figures are those of the file.

    >>> report = ffnbench.load("run.json")
    """
    return saved.load(os.fspath(path))
