"""The page of a report, without a browser: what stands in the file, what can't break it, what is refused."""

from __future__ import annotations

import json
import math
import shlex
from html.parser import HTMLParser
from pathlib import Path

import pytest
import torch
from conftest import ROOT, FakeLaunch

from ffnbench.activations.table import ACTIVATIONS
from ffnbench.ffn.spec import ActivationSpec
from ffnbench.report.page import library
from ffnbench.report.page.page import page_of
from ffnbench.report.page.pictures import inline, traced
from ffnbench.report.tables.table import Cell, Column, TextTable

COMPARED = ROOT / "results" / "amd-epyc-2cpu" / "compare.json"
EVIL = "</script><img src=x onerror=alert(1)>&lt;'\""
MOST = 2_000_000  # bytes


class Read(HTMLParser):
    """The tags of a page, the texts outside scripts and styles, the addresses that it would load."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.texts: list[str] = []
        self.loads: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.loads += [value or "" for key, value in attrs if key in ("src", "href", "xlink:href", "srcset")]

    def handle_data(self, data: str) -> None:
        if self.tags and self.tags[-1] not in ("script", "style"):
            self.texts.append(data)


def test_the_page_of_a_run_has_all_of_it_and_loads_nothing(in_process, tmp_path: Path) -> None:
    code, out, _ = in_process("report", COMPARED, "-o", tmp_path / "run.html")
    page = (tmp_path / "run.html").read_text(encoding="utf-8")
    assert code == 0
    assert len(page.encode()) < MOST
    read = Read(page)
    assert [one for one in read.loads if not one.startswith(("#", "data:,"))] == []
    told = " ".join("".join(read.texts).split())
    saved = json.loads(COMPARED.read_text(encoding="utf-8"))
    headings = ("Answer", "Table", "Ratios", "Roofline", "Activations", "Warnings and notes", "Method", "Environment")
    assert [one for one in headings if one not in read.texts] == []
    for line in out.split("\n\n")[-1].splitlines():  # the lines below the table of the terminal
        assert line.strip() in told
    for fact in (saved["environment"]["cpu"], saved["environment"]["torch"], saved["created"].replace("T", " ")):
        assert fact in told
    assert "ffnbench compare --variants relu,gelu,swiglu" in told


def test_the_command_of_a_page_asks_the_same_again(in_process, on_machine, tmp_path: Path) -> None:
    on_machine(FakeLaunch())
    typed = ["compare", "--variants", "relu,swiglu@d_ff=128", "--d-model", "64", "--workers", "3", "--rounds", "6"]
    assert in_process(*typed, "-o", tmp_path / "run.html")[0] == 0
    (line,) = [one for one in Read((tmp_path / "run.html").read_text()).texts if one.startswith("ffnbench compare --")]
    assert set(typed) <= {word for part in shlex.split(line) for word in (part, part.removesuffix("s"))}


def test_points_of_a_sweep_are_columns(in_process, tmp_path: Path) -> None:
    asked = ["cost", "--variants", "relu,gelu", "--d-model", "64,128", "--seq-len", "8,1024"]
    assert in_process(*asked, "-o", tmp_path / "run.html")[0] == 0
    (table,) = data_of((tmp_path / "run.html").read_text(encoding="utf-8"))
    expected = [["relu", "64", "8"], ["gelu", "64", "8"], ["relu", "64", "1,024"], ["gelu", "64", "1,024"]]
    assert [row[:3] for row in table["rows"][:4]] == expected


def data_of(page: str) -> list[dict]:
    return json.loads(page.split('id="data">')[1].split("</script>")[0])


def test_no_text_can_break_a_page() -> None:
    table = TextTable(
        columns=(Column(title=EVIL, left=True), Column(title="ratio", key="ratio")),
        rows=((Cell(text=EVIL, value=EVIL), Cell(text=EVIL, value=1.0, style="red")),),
        header=(EVIL,), summary=(EVIL,), details=(EVIL,),
    )  # fmt: skip
    plain = table.rows[0][0].text
    bare = Read(page_of("compare", TextTable(columns=(Column(title="a"),), rows=((Cell(text="b"),),))))
    read = Read(page_of(EVIL, table))
    assert "img" not in read.tags
    assert read.tags.count("script") == bare.tags.count("script")
    assert sum(plain in text for text in read.texts) >= 5  # title, heading, header, summary, details
    assert data_of(page_of("x", table))[0]["rows"] == [[plain, [plain, 1.0, "red"]]]


def test_without_the_extra_a_page_is_refused_before_anything_is_measured(
    on_fakes, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(library, "find_spec", lambda name: None)
    launch = FakeLaunch()
    asked = "compare relu,gelu --d-model 64 --quick -o"
    code, _, err = on_fakes(asked, tmp_path / "run.html", launch=launch)
    assert (code, launch.workers) == (2, [])
    assert "hint: pip install 'ffnbench[page]'" in err
    assert list(tmp_path.iterdir()) == []
    assert on_fakes(asked, f"{tmp_path}/all/", launch=launch)[0] == 0
    assert {one.suffix for one in (tmp_path / "all").iterdir()} == {".csv", ".json", ".md", ".png", ".svg", ".pdf"}


@pytest.mark.parametrize("interrupted", [True, False])
def test_a_page_of_a_run_without_samples_is_refused(in_process, tmp_path: Path, interrupted: bool) -> None:
    data = json.loads(COMPARED.read_text(encoding="utf-8"))
    data |= {"samples": [], "interrupted": interrupted}
    (tmp_path / "empty.json").write_text(json.dumps(data))
    code, _, err = in_process("report", tmp_path / "empty.json", "-o", tmp_path / "run.html")
    assert code == 2
    assert "hint: measure it again: ffnbench compare --variants relu,gelu,swiglu" in err
    assert not (tmp_path / "run.html").exists()


def test_curves_are_those_of_torch() -> None:
    for row in ACTIVATIONS:
        curve = traced(ActivationSpec(activation=row.name, beta=row.beta))
        assert curve is not None, row.name
        x = torch.tensor(curve.x, dtype=torch.float64)
        expected = row.apply(torch.nn.functional, x, row.beta)
        assert math.isclose(float((expected - torch.tensor(curve.y)).abs().max()), 0, abs_tol=1e-6), row.name


def test_each_marker_of_a_line_tells_its_own_row() -> None:
    from matplotlib.figure import Figure

    figure = Figure()
    figure.subplots().plot([1, 2, 3], [1, 2, 1], marker="o", gid=json.dumps(["a", "b", "unknown"]))
    picture = inline(figure, "Curves", {"a": "a\nratio: 1", "b": f"b {EVIL}"})
    assert picture.count('class="mark"') == 2
    assert 'aria-label="a, ratio: 1"' in picture
    assert "img" not in Read(picture).tags
