"""The Python function `estimate`."""

from __future__ import annotations

from ffnbench.extras.estimate.estimating import EstimateRequest, estimate_answer
from ffnbench.python.arguments import (
    DTypes,
    Int,
    Ints,
    Match,
    Modes,
    StrPath,
    Texts,
    Variants,
    request_from_arguments,
)
from ffnbench.python.public import called_here, public
from ffnbench.report.shown_report import Answer


@public
def estimate(
    variants: Variants = "relu,gelu,swiglu",
    *,
    preset: StrPath | None = None,
    d_model: Ints | None = None,
    d_ff: Ints | None = None,
    bias: bool | None = None,
    match: Match = "params",
    batch: Ints = 1,
    seq_len: Ints | None = None,
    dtype: DTypes = "float32",
    mode: Modes = "forward",
    hardware: Texts = "h100",
    tensor_parallel: Int = 1,
) -> Answer:
    """Bound the time of variants on machines that are not here, by published peaks;
    nothing is measured.

    `ffnbench estimate --help-all` says what each argument means.

    >>> ffnbench.estimate("relu,swiglu", hardware="h100,a100", dtype="bf16").frame()
    """
    request = request_from_arguments(EstimateRequest, locals())
    with called_here() as here:
        return Answer(shown=estimate_answer(request, here.world), name="estimate")
