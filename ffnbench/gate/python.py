"""The Python functions `check` and `ab`."""

from __future__ import annotations

from ffnbench.gate import checking
from ffnbench.gate.shown import ShownCheck as Check
from ffnbench.gate.shown import as_shown_check
from ffnbench.python.following import CalledHere
from ffnbench.python.public import asks
from ffnbench.request import CheckRequest, SidesRequest


@asks(CheckRequest, follows=True)
def check(request: CheckRequest, here: CalledHere) -> Check:
    """Measure a baseline's own plan again and say what has regressed: `.ok`, `.status`, a row for every metric.

    >>> found = ffnbench.check("baseline.json", tolerance={"latency": "5%"})
    >>> assert found.ok, str(found)
    """
    return as_shown_check(checking.check(request, here.world, here.following))


@asks(SidesRequest, follows=True)
def ab(request: SidesRequest, here: CalledHere) -> Check:
    """Measure one module twice, old and new side by side in the same minutes, and say what has regressed.

    Base and head are git revisions, folders, interpreters or environments; head is the working tree unless it is said
    otherwise.

    >>> found = ffnbench.ab("mypkg.mlp:SwiGLU", base_rev="origin/main", d_model=1024)
    """
    return as_shown_check(checking.ab(request, here.world, here.following))
