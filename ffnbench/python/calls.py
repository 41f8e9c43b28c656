"""The public functions: each a sentence of api/ behind a signature that is made of the command's own bundle."""

from __future__ import annotations

import os
from dataclasses import fields
from typing import TYPE_CHECKING

from ffnbench import api
from ffnbench.python.following import Following
from ffnbench.python.public import asks
from ffnbench.report.answers import Answer
from ffnbench.report.formats import View
from ffnbench.report.shown_check import ShownCheck as Check
from ffnbench.report.shown_check import as_shown_check
from ffnbench.report.shown_report import ShownReport as Report
from ffnbench.request import (
    CheckRequest,
    CompareRequest,
    CostRequest,
    SidesRequest,
)

if TYPE_CHECKING:
    import torch
    from torch import nn

BUILDS = {
    "variants", "d_model", "d_ff", "bias", "match", "multiple_of", "rule", "ratio", "ffn_dim_multiplier", "dropout",
    "init", "dtype",
}  # fmt: skip
HIDDEN = tuple(field.name for field in fields(CompareRequest) if field.name not in BUILDS)  # for a module alone


@asks(CompareRequest, follows=True)
def compare(request: CompareRequest, sink: Following) -> Report:
    """Measure FFN variants side by side: parameters, FLOPs, latency and memory, at equal parameters.

    Fresh processes measure. A class of your own as a variant must stand in a file; where that is the script which calls
    this, it does so under `if __name__ == "__main__":`. Raises ffnbench.Error for a mistake, before anything is
    measured, and KeyboardInterrupt at Ctrl-C: its `.report` holds what was measured by then.

    >>> report = ffnbench.compare(["relu", "swiglu"], d_model=256, quick=True)
    >>> report.frame()[["label", "params", "latency_s", "ratio", "verdict"]]
    """
    return api.compare(request, sink)


@asks(CostRequest)
def cost(request: CostRequest, sink: Following) -> Report:
    """Count parameters, FLOPs and bytes of variants; nothing is measured.

    >>> ffnbench.cost(["relu", "swiglu"], d_model=4096).frame()[["label", "d_ff", "params", "flops_forward"]]
    """
    return api.cost(CompareRequest(**vars(request)), sink)


@asks(CheckRequest, follows=True)
def check(request: CheckRequest, sink: Following) -> Check:
    """Measure a baseline's own plan again and say what has regressed: `.ok`, `.status`, a row for every metric.

    >>> found = ffnbench.check("baseline.json", tolerance={"latency": "5%"})
    >>> assert found.ok, str(found)
    """
    return as_shown_check(api.check(request, sink))


@asks(SidesRequest, follows=True)
def ab(request: SidesRequest, sink: Following) -> Check:
    """Measure one module twice, old and new side by side in the same minutes, and say what has regressed.

    Base and head are git revisions, folders, interpreters or environments; head is the working tree unless it is said
    otherwise.

    >>> found = ffnbench.ab("mypkg.mlp:SwiGLU", base_rev="origin/main", d_model=1024)
    """
    return as_shown_check(api.ab(request, sink))


@asks(CompareRequest, hidden=HIDDEN, in_worker=True)
def build(request: CompareRequest, sink: Following, device: str | torch.device | None = None) -> nn.Module:
    """The nn.Module of one variant, in this process: maps (..., d_model) to (..., d_model).

    Widths follow the same rules as in `compare`: a gated form has the parameters of the classic one at 4 * d_model
    unless d_ff, rule or match="none" say otherwise. `@dtype=` and `@device=` in the variant work too.

    >>> module = ffnbench.build("swiglu", d_model=768)
    """
    return api.build(request, device)


def load(path: str | os.PathLike[str]) -> Report:
    """A saved run, by `Report.save("run.json")` or `-o run.json`; its figures are those of the file.

    >>> report = ffnbench.load("run.json")
    """
    return api.load(os.fspath(path))


def answer_of(sink: Following, name: str) -> Answer:
    """What a call has shown, as the answer of a Python function."""
    assert sink.view is not None
    shown: View = sink.view()
    return Answer(shown=shown, name=name)
