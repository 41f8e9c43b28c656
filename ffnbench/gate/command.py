"""The commands that ask whether it has got slower, or larger: against a stored baseline, or old beside new code."""

from __future__ import annotations

from ffnbench.cli.commands import command
from ffnbench.errors import FfnbenchError
from ffnbench.report.flags import CheckOutput, Updating
from ffnbench.request import CheckRequest, SidesRequest


@command(
    "check",
    "ffnbench check baseline.json --tolerance 5% --format github",
    "ffnbench check baseline.json --exact-only",
    "ffnbench check baseline.json --budget 5m --append",
    docs="docs/ci.md#a-stored-baseline",
)
def check(request: CheckRequest, updating: Updating, output: CheckOutput) -> int:
    """Measure a baseline's own plan again and say what has regressed: exit 1, and nothing else exits 1."""
    from ffnbench.gate import checking
    from ffnbench.gate.destination import CheckDestination
    from ffnbench.gate.shown import check_view
    from ffnbench.run.world import this_machine

    if updating.update and updating.append:
        raise FfnbenchError("--update replaces the baseline, --append adds to it", "give one of the two")
    if updating.append and request.exact_only:
        raise FfnbenchError("--append adds latencies, and --exact-only measures none", "leave --exact-only out")
    if updating.append and request.current:
        raise FfnbenchError("--append adds a run that is measured now", f"leave {request.current!r} out")
    with CheckDestination(output, request.baseline, request.current, updating) as destination:
        for default in destination.defaults:
            destination.progress.tell(f"note: {default}")
        world = this_machine(wait=output.wait)
        checked = checking.check(request, world, destination.following, updates=updating.update)
        destination.show(check_view(checked))
    return destination.code


@command(
    "ab",
    "ffnbench ab mypkg.mlp:SwiGLU origin/main --d-model 1024 --fail-above 5%",
    "ffnbench ab swiglu --base-python .venv-old/bin/python --mode train",
    "ffnbench ab mypkg/mlp.py:SwiGLU v1.0 --exact-only --format github",
    docs="docs/ci.md#ab-in-a-pull-request",
)
def ab(request: SidesRequest, output: CheckOutput) -> int:
    """Measure one module twice, old and new side by side, and say what has regressed: exit 1.

    Base and head may be git revisions, folders, interpreters, environments. Head is this environment and the working
    tree as it is, unless it is said otherwise. With no baseline to be kept, it decides as `ffnbench check` does.
    """
    from ffnbench.gate import checking
    from ffnbench.gate.destination import CheckDestination
    from ffnbench.gate.shown import check_view
    from ffnbench.run.world import this_machine

    with CheckDestination(output) as destination:
        world = this_machine(wait=output.wait)
        checked = checking.ab(request, world, destination.following, notes=destination.defaults)
        destination.show(check_view(checked))
    return destination.code
