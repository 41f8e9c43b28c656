"""The public functions `build`, which makes a module, and `load`, which reads a saved
run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ffnbench.api import building, saved_runs
from ffnbench.python.arguments import (
    Device,
    DTypes,
    Ints,
    Match,
    StrPath,
    Variants,
    argument_text,
    request_from_arguments,
)
from ffnbench.python.public import public
from ffnbench.report.shown_report import ShownReport as Report
from ffnbench.request import CompareRequest

if TYPE_CHECKING:
    from torch import nn


@public
def build(
    variants: Variants,
    *,
    d_model: Ints | None = None,
    d_ff: Ints | None = None,
    bias: bool | None = None,
    match: Match = "params",
    dtype: DTypes = "float32",
    device: Device | None = None,
) -> nn.Module:
    """The nn.Module of one variant, in this process: maps (..., d_model) to (...,
    d_model).

    Widths follow the same rules as in `compare`: a gated form has the parameters of the
    classic one at 4 * d_model unless d_ff, rule or match="none" say otherwise.
    `@dtype=` and `@device=` in the variant work too.

    >>> module = ffnbench.build("swiglu", d_model=768)
    """
    given = {name: value for name, value in locals().items() if name != "device"}
    return building.build_requested(
        request_from_arguments(CompareRequest, given), device
    )


@public
def load(path: StrPath) -> Report:
    """A saved run, by `Report.save("run.json")` or `-o run.json`; its figures are those
    of the file.

    >>> report = ffnbench.load("run.json")
    """
    return saved_runs.load_shown(argument_text("path", path))
