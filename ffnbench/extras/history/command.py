"""The command `history`."""

from __future__ import annotations

from dataclasses import dataclass

from ffnbench.cli.commands import command, destination_of
from ffnbench.report.flags import ALSO_FOR_GITHUB, PICTURES, Kept, out_flag
from ffnbench.request import ARGUMENTS, CURVES, OUTPUT, flag

FOLLOWED = {"ratio": "ratio", "latency": "latency", "params": "params", "flops": "flops_timed", "peak": "peak_bytes"}


@dataclass(frozen=True, kw_only=True)
class Followable:
    """Runs over time."""

    paths: tuple[str, ...] = flag(
        (), "A .json that `compare -o` or `check --append` wrote, or a folder of them.", ARGUMENTS, place="FILE...",
    )  # fmt: skip
    metric: str = flag("", f"{', '.join(FOLLOWED)}. [default: the ratio, which cancels what moves the machine; latency "
                       "where there is none; what is exact where it has changed]", CURVES, "NAME")  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Followed(Kept):
    """How rows over time are shown and written."""

    format: str = flag("table", ALSO_FOR_GITHUB, OUTPUT, "NAME", short="-f")
    out: tuple[str, ...] = out_flag(f".csv, .json, .md, .tex, {PICTURES}")


@command(
    "history",
    "ffnbench history results/",
    "ffnbench history results/*.json -o history.png",
    "ffnbench history baseline.json --metric latency --format github",
    docs="docs/history.md#over-time",
)
def history(asked: Followable, output: Followed) -> int:
    """Show saved runs over time, a line each row: first and last value, and the commits at which it has changed."""
    from ffnbench.extras.history import following
    from ffnbench.report.formats import CHECK_FORMATS
    from ffnbench.report.output import one_of

    with destination_of(output, "history", *asked.paths, pictures=True, formats=CHECK_FORMATS) as destination:
        if asked.metric:
            one_of("--metric", asked.metric, list(FOLLOWED))
        tell = destination.progress.tell
        timeline = following.history(asked.paths, tell, metric=FOLLOWED.get(asked.metric, ""))
        destination.show(following.history_view(timeline))
    return destination.code
