"""The page of an answer, without a browser: what stands in the file, and what can't
break it.
"""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

from frames import below
from paths import ROOT

from ffnbench.report.page import page_of
from ffnbench.report.pictures.canvas import render
from ffnbench.report.table import EXTRA, Column, Table
from ffnbench.report.writers import html_fragment

COMPARED = ROOT / "results" / "amd-epyc-2cpu" / "compare.json"
EVIL = "</script><script>ran()</script></svg><img src=x onerror=ran()>&lt;'\"` \u2028 --> ]]>"
MOST = 150_000  # bytes
VOID = {"meta", "link", "img"}
IMAGE = "data:image/svg+xml;base64,"


class Read(HTMLParser):
    """The tags of a page with the names of their attributes, its texts by the tag
    around them, what it would load.
    """

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, ...]] = []
        self.texts: list[tuple[str, str]] = []
        self.loads: list[str] = []
        self._open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, *(name for name, _ in attrs)))
        self.loads += [
            value or "" for name, value in attrs if name in ("src", "href", "srcset")
        ]
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append((self._open[-1] if self._open else "", data))

    def of(self, *tags: str) -> list[str]:
        return [text for tag, text in self.texts if tag in tags]

    def pictures(self) -> list[str]:
        return [
            b64decode(one.removeprefix(IMAGE)).decode()
            for one in self.loads
            if one.startswith(IMAGE)
        ]


def texts_of(picture: str) -> list[str]:
    """The texts of a picture; of the same figure drawn twice other things have other
    names.
    """
    return [
        part.text or ""
        for part in ElementTree.fromstring(picture).iter(
            "{http://www.w3.org/2000/svg}text"
        )
    ]


def test_a_page_loads_nothing_and_has_the_picture_of_the_svg(
    in_process, tmp_path: Path
) -> None:
    files = [tmp_path / name for name in ("run.html", "run.svg")]
    assert in_process("report", COMPARED, *(f"-o{file}" for file in files))[0] == 0
    page = files[0].read_text(encoding="utf-8")
    assert len(page.encode()) < MOST
    read = Read(page)
    assert [one for one in read.loads if not one.startswith("data:")] == []
    assert "script" not in {tag for tag, *_ in read.tags}
    (picture,) = read.pictures()
    assert texts_of(picture) == texts_of(files[1].read_text())


def tables_of(text: str) -> list[Table]:
    """Tables with this text wherever one can stand."""
    columns = (
        Column(key="a", title=text, left=True), Column(key="ratio", unit=text, style=lambda row: "red"),
        Column(key="b", title=text, priority=EXTRA),
    )  # fmt: skip
    row = dict.fromkeys(("a", "ratio", "b"), text)
    lines = {"header": (text,), "summary": (text,), "details": (text,)}
    groups = ((text, 1), (text, 1))
    return [
        Table(columns=columns, rows=(row,), **lines),
        Table(columns=columns, rows=(row, row), groups=groups, **lines),
    ]


def picture_of(text: str) -> Callable[[], bytes]:
    from matplotlib.figure import Figure

    figure = Figure()
    figure.text(0, 0, text)
    return lambda: render(figure, ".svg")


def test_no_text_can_break_a_page() -> None:
    evil, plain = (
        Read(page_of(tables_of(text), picture_of(text), title=text))
        for text in (EVIL, "plain")
    )
    assert evil.tags == plain.tags
    shown = below("ratio", tables_of(EVIL)[0])[0]
    assert shown == EVIL.replace("\u2028", r"\u2028")
    expected = [text.replace("plain", shown) for _, text in plain.texts]
    assert [text.replace("\u2028", r"\u2028") for _, text in evil.texts] == expected
    assert sum(text.count("plain") for _, text in plain.texts) > 20
    assert "script" not in evil.pictures()[0].replace("&lt;script", "").replace(
        "&lt;/script", ""
    )
    assert (
        Read(html_fragment(tables_of(EVIL))).tags
        == Read(html_fragment(tables_of("plain"))).tags
    )


def test_no_fact_or_command_of_a_file_can_break_a_page(
    in_process, tmp_path: Path
) -> None:
    pages = {}
    for text in (EVIL, "plain"):
        saved = json.loads(COMPARED.read_text(encoding="utf-8"))
        saved["environment"]["cpu"] = saved["plan"]["command"] = text
        (tmp_path / "run.json").write_text(json.dumps(saved))
        assert (
            in_process("report", tmp_path / "run.json", "-o", tmp_path / "run.html")[0]
            == 0
        )
        pages[text] = Read((tmp_path / "run.html").read_text(encoding="utf-8"))
    assert pages[EVIL].tags == pages["plain"].tags
    shown = EVIL.replace("\u2028", r"\u2028")
    assert shown in pages[EVIL].of("dd")
    assert shown in pages[EVIL].of("code")[0]
