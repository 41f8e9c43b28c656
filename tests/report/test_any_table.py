"""Tables of any rows at any width: no line is too long, and no number is cut."""

from __future__ import annotations

import re

from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from ffnbench.report.table import EXTRA, FIRST, Column, Table, default_text
from ffnbench.report.terminal import show

KEYS = ("first", "second", "third", "fourth", "fifth")
NUMBERS = st.integers(0, 10**12) | st.floats(1e-4, 1e9)


@st.composite
def frames(draw) -> Table:
    """Labels of any length, and up to five columns of numbers of any priority; groups
    and lines around them.
    """
    keys = KEYS[: draw(st.integers(1, 5))]
    columns = [
        Column(key=key, priority=draw(st.sampled_from((0, 1, 2, 3, EXTRA))))
        for key in keys
    ]
    rows = []
    for _ in range(draw(st.integers(1, 5))):
        row = {key: draw(NUMBERS | st.none()) for key in keys}
        rows.append({"label": draw(st.text("abc_@=", min_size=1, max_size=90)), **row})
    groups = draw(st.sampled_from(((), (2, 3))))
    sentence = draw(st.lists(st.text("abc", min_size=1, max_size=12), max_size=40))
    lines = [" ".join(sentence)]
    return Table(
        columns=(Column(key="label", left=True), *columns), rows=rows, groups=groups, header=lines, summary=lines
    )  # fmt: skip


@given(frames(), st.integers(40, 200), st.booleans())
@settings(max_examples=150)
def test_no_line_is_too_long_and_no_number_is_cut(
    frame: Table, width: int, verbose: bool
) -> None:
    console = Console(width=width, force_terminal=False, color_system=None)
    with console.capture() as captured:
        show(frame, console, verbose=verbose)
    text = captured.get()
    assert all(cell_len(line.rstrip()) <= width for line in text.splitlines())
    numbers = {
        default_text(row[key])
        for row in frame.rows
        for key in row
        if key != "label" and row[key] is not None
    }
    shown = set(re.findall(r"\d[\d,.]*", text))
    assert shown <= numbers
    if verbose:  # every column and every row
        assert shown == numbers
    else:  # a column is shown, or named below
        for column in frame.columns[1:]:
            assert (column.key in text) == (column.priority < EXTRA)
    for row in frame.rows:
        assert row["label"][:12] in text


def test_columns_that_tell_rows_apart_are_shown_where_they_do_not_fit() -> None:
    texts = {key: key[0] * 30 for key in ("first", "second", "third")}
    columns = [Column(key=key, priority=FIRST) for key in texts]
    table = Table(
        columns=(Column(key="label", left=True), *columns, Column(key="value")),
        rows=[{"label": "relu", **texts, "value": 7}],
    )
    console = Console(width=40, force_terminal=False, color_system=None)
    with console.capture() as captured:
        show(table, console, verbose=True)
    assert all(text in captured.get() for text in texts.values())
