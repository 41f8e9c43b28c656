"""The Python function `train`."""

from __future__ import annotations

from ffnbench.api.preparing import prepare_plan
from ffnbench.extras.train.measuring import measure_training
from ffnbench.extras.train.plan import TrainRequest, plan_train
from ffnbench.python.arguments import (
    Device,
    DType,
    Float,
    Int,
    Match,
    StrPath,
    Texts,
    Variants,
    request_from_arguments,
)
from ffnbench.python.public import called_here, public
from ffnbench.report.shown_report import ShownReport as Report


@public
def train(
    variants: Variants = "relu,gelu,swiglu",
    *,
    preset: StrPath | None = None,
    d_model: Int | None = None,
    d_ff: Int | None = None,
    match: Match = "params",
    device: Device = "auto",
    threads: Int | None = None,
    seed: Int = 0,
    layers: Int = 3,
    context: Int = 128,
    batch: Int = 24,
    dtype: DType = "float32",
    steps: Int = 800,
    seeds: Int = 3,
    lr: Texts = "3e-3",
    text: str | None = None,
    budget: Float | None = None,
    quiet: bool = False,
    wait: bool = False,
) -> Report:
    """Train a small language model of bytes with each variant: held-out loss beside the
    time of a step.

    `ffnbench train --help-all` says what each argument means.

    >>> losses = ffnbench.train(["relu", "swiglu"], steps=200).frame()
    >>> losses[["variant", "loss", "difference", "verdict"]]
    """
    request = request_from_arguments(TrainRequest, locals())
    with called_here(quiet=quiet, wait=wait) as here:
        return measure_training(
            prepare_plan(request, here.world, plan_train), here.world, here.following
        )
