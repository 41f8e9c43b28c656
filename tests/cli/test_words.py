"""Every sentence that ffnbench can print, held against a few rules; `python
tests/cli/test_words.py` lists them all.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "ffnbench"
LONGEST = 200
HOUSE = (
    "anew",
    "arms?",
    "footnotes?",
    "jury",
    "sightings?",
    "turns?",
    "weighs?",
)
QUOTED = re.compile(r"[<>\\\n^]|::|^[\W\d]*$")  # HTML, patterns, and the like


def sentences() -> Iterator[tuple[str, str]]:
    """Where each stands, and its words; what is filled in is a `{}`."""
    for file in sorted(PACKAGE.rglob("*.py")):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        silent = {
            node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)
        }  # docstrings
        silent |= {
            part
            for node in ast.walk(tree)
            if isinstance(node, ast.JoinedStr)
            for part in node.values
        }
        for node in ast.walk(tree):
            text = "" if node in silent else words_of(node)
            if len(re.findall(r"[A-Za-z']+(?= |$)", text)) >= 3 and not QUOTED.search(
                text
            ):
                yield f"{file.relative_to(PACKAGE)}:{node.lineno}", text


def words_of(node: ast.AST) -> str:
    """The text of a string; of an f-string, what stands around the values."""
    if isinstance(node, ast.JoinedStr):
        return "".join(
            str(part.value) if isinstance(part, ast.Constant) else "{}"
            for part in node.values
        )
    return (
        node.value
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        else ""
    )


FOUND = list(sentences())


@pytest.mark.parametrize(
    "wrong",
    [re.compile(r"\S  +\S"), re.compile(rf"\b({'|'.join(HOUSE)})\b"), re.compile(rf".{{{LONGEST},}}"),
     re.compile(r"\b(\w+) \1\b"), re.compile(r" [,.]( |$)")],
    ids=["spaces", "house words", "length", "a word twice", "punctuation"],
)  # fmt: skip
def test_no_sentence_breaks_a_rule(wrong: re.Pattern[str]) -> None:
    assert len(FOUND) > 500
    assert not [f"{where} {text}" for where, text in FOUND if wrong.search(text)]


def test_no_sentence_is_written_in_two_places() -> None:
    """One of more than six words has one home; two commands may have the same flag."""
    places: dict[str, list[str]] = {}
    for where, text in FOUND:
        if len(re.findall(r"[A-Za-z']{2,}", text)) > 6 and not where.startswith(
            "cli/options.py"
        ):
            places.setdefault(text, []).append(where)
    assert not {text: found for text, found in places.items() if len(found) > 1}


if __name__ == "__main__":
    print(*(f"{where:45}  {text}" for where, text in FOUND), sep="\n")


def test_what_is_not_decided_has_one_word() -> None:
    """In files it is `unclear` and UNCLEAR; nobody reads these, nor another word for
    it, on a screen or in a page.
    """
    other = re.compile(
        r"\bunclear\b|\bundecided\b|could not be decided|too noisy to tell",
        re.IGNORECASE,
    )
    assert not [
        f"{where} {text}"
        for where, text in FOUND
        if other.search(text) and "--on-unclear" not in text
    ]
    for page in (PACKAGE.parent / "README.md", *(PACKAGE.parent / "docs").glob("*.md")):
        text = re.sub(
            r"--on-unclear|`[^`]*`|\(UNCLEAR in files and Python\)|UNCLEAR in files",
            "",
            page.read_text(),
        )
        blocks = re.sub(r"^```py.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
        assert not re.search(r"\bunclear\b", blocks, re.IGNORECASE), page.name
