"""The functions `check` and `ab` of Python."""

from __future__ import annotations

from ffnbench.gate import checking
from ffnbench.gate.shown_check import ShownCheck as Check
from ffnbench.gate.shown_check import as_shown_check
from ffnbench.python.arguments import (
    Device,
    DType,
    Float,
    Int,
    Mode,
    Pairs,
    StrPath,
    Texts,
    Variant,
    request_from_arguments,
)
from ffnbench.python.public import called_here, public
from ffnbench.request import CheckRequest, SidesRequest


@public
def check(
    baseline: StrPath,
    current: StrPath | None = None,
    *,
    tolerance: Pairs | None = None,
    exact_only: bool = False,
    budget: Float = 120.0,
    trust: Texts | None = None,
    quiet: bool = False,
    wait: bool = False,
) -> Check:
    """Measure a baseline's own plan again and say what has regressed: `.ok`, `.status`,
    a row for every metric.

    >>> found = ffnbench.check("baseline.json", tolerance={"latency": "5%"})
    >>> assert found.ok, str(found)
    """
    request = request_from_arguments(CheckRequest, locals())
    with called_here(quiet=quiet, wait=wait) as here:
        return as_shown_check(checking.check(request, here.world, here.following))


@public
def ab(
    variant: Variant,
    base_rev: str | None = None,
    *,
    d_model: Int | None = None,
    d_ff: Int | None = None,
    batch: Int = 1,
    seq_len: Int | None = None,
    dtype: DType = "float32",
    mode: Mode = "forward",
    device: Device = "auto",
    threads: Int | None = None,
    tolerance: Pairs | None = None,
    exact_only: bool = False,
    budget: Float = 120.0,
    base_python: StrPath | None = None,
    base_source: StrPath | None = None,
    base_env: Pairs | None = None,
    head_rev: str | None = None,
    allow_mismatch: bool = False,
    quiet: bool = False,
    wait: bool = False,
) -> Check:
    """Measure one module twice, old and new side by side in the same minutes, and say
    what has regressed.

    Base is a git revision, a folder, an interpreter or an environment; head is the
    working tree unless `head_rev` says otherwise.

    >>> found = ffnbench.ab("mypkg.mlp:SwiGLU", base_rev="origin/main", d_model=1024)
    """
    request = request_from_arguments(SidesRequest, locals())
    with called_here(quiet=quiet, wait=wait) as here:
        return as_shown_check(checking.ab(request, here.world, here.following))
