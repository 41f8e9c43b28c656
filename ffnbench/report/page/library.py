"""Whether a page can be made here: the extra `page` is needed."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from ffnbench.errors import FfnbenchError
from ffnbench.request import command_again
from ffnbench.result import Report

PAGE = ".html"


def page_installed() -> bool:
    """Whether the tables of a page can be made here."""
    return find_spec("itables") is not None


def bundle() -> Path:
    """DataTables, which itables carries. That is not imported: it would read a configuration of the current folder."""
    found = find_spec("itables")
    assert found is not None
    return Path(str(found.origin)).parent / "html" / "dt_bundle.js"


def no_page() -> FfnbenchError:
    """What to say where they can't."""
    return FfnbenchError("a page needs itables, which is not installed", "pip install 'ffnbench[page]'")


def no_samples(run: Report) -> FfnbenchError:
    """What to say of a file in which nothing was measured."""
    command = command_again(run.plan.request, measured=bool(run.environment))
    return FfnbenchError("this run has no samples to make a page of", f"measure it again: {command}")
