"""The flags of how an answer is shown and written, and of what becomes of it: bundles, as the requests are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ffnbench.features import suffixes
from ffnbench.request import EFFORT, LIMITS, OUTPUT, flag


def out_flag(suffixes: str, *, default: tuple[str, ...] = ()) -> Any:
    """The flag `-o` of a command that writes files with these suffixes; `default` where none is named."""
    told = f"Write a file ({suffixes}), or all of them into a folder/. Repeatable."
    return flag(default, told, OUTPUT, "PATH", short="-o", also=("--output",))


ALSO_FOR_GITHUB = "On stdout: table, markdown, latex, csv, json or github."
PICTURES = ", ".join((*suffixes(), ".png", ".svg", ".pdf"))  # and the files of features
WITH_PICTURES = f".csv, .json, .md, .tex, {PICTURES}; roofline.png: under ceilings"


@dataclass(frozen=True, kw_only=True)
class Shown:
    """What stands on stdout. `said` is what a reader should know of how it was asked for."""

    format: str = flag("table", "On stdout: table, markdown, latex, csv or json.", OUTPUT, "NAME", short="-f")
    json: bool = flag(False, "Short for --format json.", OUTPUT)
    verbose: bool = flag(False, "Show every column and all details below.", OUTPUT, short="-v", also=("--wide",))
    said: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Arranged:
    """Which columns are shown, and in which order rows stand."""

    columns: str = flag(
        "", "Only these, named as in the CSV or by their heading: params,latency,ratio; +gflops adds one.", OUTPUT,
        "LIST")  # fmt: skip
    sort: str = flag(
        "", "Sort rows by a column, the reference among them; -latency: largest first. Rows of one "
        "reference stay together.", OUTPUT, "COLUMN")  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Written:
    """The files of a picture."""

    out: tuple[str, ...] = out_flag(".png, .svg, .pdf, .csv; default: activations.png", default=("activations.png",))


@dataclass(frozen=True, kw_only=True)
class Kept(Shown):
    """How an answer is shown and written where nothing is measured."""

    out: tuple[str, ...] = out_flag(".csv, .json, .md, .tex")


@dataclass(frozen=True, kw_only=True)
class Reported(Arranged, Kept):
    """How what is counted, and a saved run, is shown and written."""

    out: tuple[str, ...] = out_flag(WITH_PICTURES)


@dataclass(frozen=True, kw_only=True)
class Quiet:
    """Whether progress is told."""

    quiet: bool = flag(False, "No progress on stderr.", OUTPUT, short="-q")


@dataclass(frozen=True, kw_only=True)
class ShownQuietly(Quiet, Shown):
    """How an answer is shown, and whether anything is told beside it."""


@dataclass(frozen=True, kw_only=True)
class Output(Quiet, Kept):
    """How an answer is shown and written, whether progress is told, and whether it waits for its turn."""

    wait: bool = flag(False, "Wait while another run of ffnbench measures on this machine.", EFFORT)


@dataclass(frozen=True, kw_only=True)
class MeasuredOutput(Arranged, Output):
    """How what was measured is shown and written. `measure` is what a feature measures with in place of the core."""

    out: tuple[str, ...] = out_flag(WITH_PICTURES)
    resume: bool = flag(False, "Go on with the file of -o: what it has of these groups is not measured again.", EFFORT)
    measure: Callable[..., Any] | None = None


@dataclass(frozen=True, kw_only=True)
class FactsOutput(MeasuredOutput):
    """How facts of activations are shown and written, and with --time what was measured."""

    out: tuple[str, ...] = out_flag(f".csv, .json, .md, .tex; with --time also {PICTURES}")


@dataclass(frozen=True, kw_only=True)
class CheckOutput(Output):
    """How a check is shown and written, and what follows from it."""

    format: str = flag("table", ALSO_FOR_GITHUB, OUTPUT, "NAME", short="-f")
    out: tuple[str, ...] = out_flag(".xml, .md, .tex, .json, .csv")
    on_unclear: str = flag("pass", "Exit 0 (pass) or 4 (fail) where the run can't tell.", LIMITS, "pass|fail")


@dataclass(frozen=True, kw_only=True)
class Updating:
    """What a check does to its baseline."""

    update: bool = flag(False, "Accept what was found: it becomes the baseline.", LIMITS)
    append: bool = flag(False, "Add this run to the baseline's, unless it is busy or REGRESSED.", LIMITS)
