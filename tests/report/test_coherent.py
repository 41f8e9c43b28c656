"""A saved report whose parts do not belong together is refused where it is read, and
not met later on.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from fake_machine import FakeLaunch, measure, prepare

from ffnbench.app import commands
from ffnbench.common.errors import FfnbenchError
from ffnbench.report.store import read_report, report_text

Change = Callable[[dict], object]


@pytest.fixture(scope="module")
def texts() -> dict[str, str]:
    compared = dict(variants="relu,swiglu", d_model=64, threads=1, precision=0.5)
    block = dict(
        variants="relu",
        d_model=64,
        seq_len="16,32",
        threads=1,
        workers=3,
        rounds=6,
        command=commands.block,
    )
    asked = {"compare": compared, "block": block}
    return {
        kind: report_text(measure(prepare(**one), launch=FakeLaunch()))
        for kind, one in asked.items()
    }


OF_COMPARE: list[tuple[Change, str]] = [
    (lambda d: d["plan"]["cases"].clear(), "its plan has no cases"),
    (
        lambda d: d["plan"]["cases"].append(d["plan"]["cases"][0]),
        "two cases have one label",
    ),
    (
        lambda d: d["plan"]["protocol"].update(precision=0.0),
        "its protocol has no looks, or no precision",
    ),
    (lambda d: d["costs"].pop(), "a case has no cost"),
    (
        lambda d: d["plan"]["protocol"].update(looks=0),
        "its protocol has no looks, or no precision",
    ),
    (
        lambda d: d["samples"][3].update(case="x"),
        "it has no 'latency' of 'x', and a sample of it",
    ),
    (
        lambda d: d["samples"][3].update(metric="x"),
        "it has no 'x' of",
    ),
    (lambda d: d["samples"][3].update(value=5e18), "a latency of 5e.18 is none"),
    (lambda d: d["samples"][3].update(value=-1.0), "a latency of -1 is none"),
    (lambda d: d.update(environment=None), "it has figures, and no environment"),
    (
        lambda d: d.update(environment=None, samples=[]),
        "it has figures, and no environment",
    ),
]
OF_BLOCK: list[tuple[Change, str]] = [
    (lambda d: d["plan"]["cases"].pop(1), "a point has no stack, or none without FFNs"),
    (lambda d: d["plan"]["cases"].pop(2), "a stack has no FFN alone beside it"),
    (lambda d: d["plan"]["cases"].reverse(), "a point has no stack"),
    (lambda d: d["plan"].update(kind="compare"), "is nothing that compare measures"),
]


@pytest.mark.parametrize(
    ("kind", "change", "says"),
    [("compare", *row) for row in OF_COMPARE] + [("block", *row) for row in OF_BLOCK],
)
def test_what_belongs_to_nothing_is_refused(
    tmp_path: Path, texts, kind: str, change: Change, says: str
) -> None:
    data = json.loads(texts[kind])
    change(data)
    (tmp_path / "run.json").write_text(json.dumps(data))
    with pytest.raises(FfnbenchError, match=says):
        read_report(tmp_path / "run.json")
