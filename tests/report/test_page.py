"""The page of an answer, without a browser: what stands in the file, and what can't
break it.
"""

from __future__ import annotations

import json
from base64 import b64decode
from html.parser import HTMLParser
from pathlib import Path

from paths import ROOT

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


def test_a_page_loads_nothing_and_has_its_picture(in_process, tmp_path: Path) -> None:
    file = tmp_path / "run.html"
    assert in_process("report", COMPARED, "-o", file)[0] == 0
    page = file.read_text(encoding="utf-8")
    assert len(page.encode()) < MOST
    read = Read(page)
    assert [one for one in read.loads if not one.startswith("data:")] == []
    assert "script" not in {tag for tag, *_ in read.tags}
    assert len(read.pictures()) == 1


def test_no_text_of_a_file_can_break_a_page(in_process, tmp_path: Path) -> None:
    """Of its machine, its command, its notes and its rows."""
    pages = {}
    for text in (EVIL, "plain"):
        saved = COMPARED.read_text(encoding="utf-8")
        data = json.loads(saved.replace('"swiglu"', json.dumps(text)))
        data["environment"]["cpu"] = data["plan"]["command"] = text
        data["warnings"] = [{"label": "", "text": text}]
        (tmp_path / "run.json").write_text(json.dumps(data))
        asked = ("report", tmp_path / "run.json", "-v", "-o", tmp_path / "run.html")
        assert in_process(*asked)[0] == 0
        pages[text] = Read((tmp_path / "run.html").read_text(encoding="utf-8"))
    evil, plain = pages[EVIL], pages["plain"]
    assert evil.tags == plain.tags
    shown = EVIL.replace("\u2028", r"\u2028")
    assert shown in evil.of("td")
    assert shown in evil.of("code")[0]
    assert sum(shown in text for _, text in evil.texts) >= 5
    assert "script" not in evil.pictures()[0].replace("&lt;script", "").replace(
        "&lt;/script", ""
    )
