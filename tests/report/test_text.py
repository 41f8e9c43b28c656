"""Text from elsewhere is text: labels, paths and messages that a terminal, a
spreadsheet or a runner would obey.
"""

from __future__ import annotations

import csv
import io
import json
import re
import xml.etree.ElementTree as xml
from pathlib import Path

import pytest
from fake_machine import FakeLaunch, measure, prepare

from ffnbench.report.store import report_text
from ffnbench.report.table import Column, Table
from ffnbench.report.terminal import plain
from ffnbench.report.writers import html_fragment, latex, markdown

# every control there is, marks of direction, half a surrogate pair, and what markups
# read
CONTROLS = [chr(n) for n in (*range(0x20), *range(0x7F, 0xA0))] + list(
    "\u061c\u200e\u200f\u2028\u2029\u202e\u2066\u2069\ufeff\ufffe\uffff"
)
OBEYED = re.compile(
    "[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufeff]"
)
LABEL = "\x1b]0;owned\x07\x9b31m\n::error file=x::boo\r\u202e[/red]<script>`x`](http://evil)|$\\frac{1}{0}$"


def hostile(tmp_path: Path, label: str = LABEL) -> Path:
    """A saved run whose swiglu has a label as somebody else could have written it, as
    have its version and its machine.
    """
    request = dict(
        variants="relu,swiglu", d_model=64, threads=1, metrics="latency", precision=0.5
    )
    text = report_text(measure(prepare(**request), launch=FakeLaunch()))
    path = tmp_path / "evil.json"
    path.write_text(text.replace('"swiglu"', json.dumps(label)))
    data = json.loads(path.read_text())
    data["warnings"] = [{"label": "", "text": "a note \x1b[31m\n::warning::of theirs"}]
    data["version"] = data["created"] = label
    data["environment"] |= dict.fromkeys(("system", "python", "blas"), label)
    path.write_text(json.dumps(data))
    return path


@pytest.fixture
def call(on_machine, in_process):
    def run(*arguments: object) -> tuple[int, str, str]:
        on_machine(
            FakeLaunch(
                lambda label, worker, number: 0.01 * (1.5 if "owned" in label else 1.0)
            )
        )
        return in_process(*arguments)

    return run


@pytest.mark.parametrize("form", ["table", "csv", "json", "markdown"])
def test_a_hostile_label_is_shown_and_not_obeyed(
    tmp_path: Path, call, form: str
) -> None:
    code, out, err = call("report", hostile(tmp_path), "--format", form)
    assert code == 0, err
    assert not OBEYED.search(out + err)
    assert "owned" in out
    assert not [line for line in (out + err).splitlines() if line.startswith("::")]
    if form == "json":
        again = json.loads(out, parse_constant=lambda name: pytest.fail(name))
        assert LABEL in {
            case["name"] for case in again["plan"]["cases"]
        }  # data is what it was
    if form == "csv":
        rows = list(csv.DictReader(io.StringIO(out)))
        assert len(rows) == 2
        assert rows[1]["label"].startswith("\\x1b]0;owned\\x07\\x9b31m\\n::error")


def test_what_ci_reads_is_not_obeyed_either(
    tmp_path: Path, call, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, summary = hostile(tmp_path), tmp_path / "summary.md"
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    code, out, err = call(
        "check", path, "--format", "github", "-q", "-o", tmp_path / "junit.xml"
    )
    assert code == 1, err
    assert not OBEYED.search(out + err + summary.read_text())
    lines = out.splitlines()
    commands = [line for line in lines if line.startswith("::")]
    assert [line.split("::")[1].split(" ")[0] for line in commands[1:-1]] == [
        commands[0].rpartition("::")[2]
    ]
    assert commands[-1].startswith("::error title=ffnbench REGRESSED::\\x1b]0;owned")
    assert "<script>" not in summary.read_text()
    assert "](http" not in summary.read_text()
    suite = xml.parse(tmp_path / "junit.xml").getroot()
    assert "\\x1b" in next(
        case.get("classname") for case in suite if case.find("failure") is not None
    )


def test_no_control_gets_into_a_table() -> None:
    """A title, a cell, a header, a summary and details with every one of them."""
    text = "".join(f"a{sign}" for sign in CONTROLS)
    columns = Column(key="x", title=text), Column(key="n")
    table = Table(
        columns=columns, rows=[{"x": text, "n": 1}], header=(text,),
        details=(text,), summary=(text,),
    )  # fmt: skip
    for shown in (
        plain(table),
        markdown(table),
        html_fragment(table),
        latex(table),
    ):
        assert not set(CONTROLS) & set(shown.replace("\n", ""))
