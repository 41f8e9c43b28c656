"""The command that follows rows through many runs."""

from __future__ import annotations

from dataclasses import dataclass

from ffnbench.cli.commands import command, sink_of
from ffnbench.report.flags import Followed
from ffnbench.request import ARGUMENTS, LIMITS, flag

METRICS = ("latency", "ratio", "params", "flops", "peak")


@dataclass(frozen=True, kw_only=True)
class Followable:
    """Which runs, and what of them."""

    paths: tuple[str, ...] = flag(
        (), "A .json that `compare -o` or `check --append` wrote, or a folder of them; several.", ARGUMENTS,
        place="FILE...",
    )  # fmt: skip
    metric: str = flag(
        "", "latency, ratio, params, flops or peak. [default: the ratio to the reference, which cancels what moves the "
        "machine; latency of what has none; and what is exact where it has changed]", LIMITS, "NAME",
    )  # fmt: skip


@command(
    "history",
    "ffnbench history results/",
    "ffnbench history results/*.json -o history.html",
    "ffnbench history baseline.json --metric latency --format github",
    docs="docs/ci.md#history",
)
def history(asked: Followable, output: Followed) -> int:
    """Show saved runs over time, a line each row: first and last value, and the commits at which it has changed."""
    from ffnbench import api
    from ffnbench.report.formats import CHECK_FORMATS
    from ffnbench.report.output import one_of

    with sink_of(output, "history", *asked.paths, pictures=True, formats=CHECK_FORMATS) as sink:
        if asked.metric:
            one_of("--metric", asked.metric, METRICS)
        api.history(asked.paths, sink, metric=asked.metric)
    return sink.code
