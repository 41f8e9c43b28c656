"""How answers read: golden tables at three widths, markdown, CSV and JSON contracts,
files.
"""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
from fake_machine import FakeLaunch, lost, measure, prepare
from made_up_runs import with_control

from ffnbench import cost
from ffnbench.compare.table import compare_frame
from ffnbench.messages import Open, TakeSample
from ffnbench.plan import Note, NoteKind
from ffnbench.report.columns import case_records
from ffnbench.report.sentences import verdict_lines
from ffnbench.report.terminal import plain
from ffnbench.report.writers import csv_text
from ffnbench.request import CompareRequest
from ffnbench.result import Comparison, Estimate, Report, Verdict
from ffnbench.stats.figures import figures_of, with_figures

GOLDEN = Path(__file__).parents[1] / "golden"
TIMES = {"relu": 0.025, "gelu": 0.0251, "swiglu": 0.028, "glu": 0.0245}


def seconds(label: str, worker: int, number: int) -> float:
    """Known times: each worker has its own speed, and glu is all over the place."""
    wobble = (
        0.08 * math.sin(7 * worker)
        if label == "glu"
        else 0.002 * math.sin(3 * worker + len(label))
    )
    return TIMES.get(label, 0.03) * (1 + wobble) * (1 + 0.05 * worker)


def report_of(**options: object) -> Report:
    return with_figures(
        replace(
            measure(prepare(asked(**options)), launch=FakeLaunch(seconds)), wall_s=20.0
        )
    )


def hash_of(label: str, worker: int) -> int:
    """0 to 100, another one for each row and process."""
    return sum(map(ord, label)) * (7919 * worker + 1) % 101


def asked(**options: object) -> CompareRequest:
    return CompareRequest(
        **{
            "variants": "relu,gelu,swiglu,glu",
            "d_model": 768,
            "threads": 2,
            "workers": 5,
            "rounds": 30,
            **options,
        }
    )


def test_the_columns_do_not_depend_on_what_was_measured() -> None:
    """The same question on a quiet and on a noisy machine, fast and slow: the same
    columns at every width.
    """

    def noisy(label: str, worker: int, number: int) -> float:
        return 40 * seconds(label, worker, number) * (1 + hash_of(label, worker) / 60)

    reports = [report_of(), measure(prepare(asked()), launch=FakeLaunch(noisy))]
    assert (
        reports[0].comparison("swiglu").verdict
        is not reports[1].comparison("swiglu").verdict
    )
    for width in (60, 80, 100, 120, 160, 200):
        tables = [plain(compare_frame(report), width) for report in reports]
        rules = [
            next(i for i, line in enumerate(text.splitlines()) if "─" in line)
            for text in tables
        ]
        titles = [
            text.splitlines()[rule - 2].split()
            for text, rule in zip(tables, rules, strict=True)
        ]
        assert titles[0] == titles[1]


@pytest.mark.parametrize(("d_model", "d_ff"), [(768, "3,072"), (4096, "16,384")])
def test_80_columns_have_what_is_asked_first(d_model: int, d_ff: str) -> None:
    """Parameters and FLOPs by hand: 2 * d_model * d_ff, and twice that."""
    params = 2 * d_model * 4 * d_model / 1e6
    table = plain(compare_frame(report_of(variants="relu,swiglu", d_model=d_model)), 80)
    lines = table.splitlines()
    titles = lines[2].split()
    assert titles[:4] == ["variant", "d_ff", "M", "M/tok"]
    assert titles[5:] == ["ms", "[95%]", "verdict"]
    row = next(line for line in lines if line.startswith("relu"))
    assert row.split()[1:4] == [d_ff, f"{params:.3g}", f"{2 * params:.3g}"]
    narrow = plain(
        compare_frame(report_of(variants="relu,swiglu", d_model=d_model)), 60
    )
    assert "left out: d_ff, FLOPs, peak, total" in narrow


def test_the_flops_shown_are_those_of_the_half_that_is_timed() -> None:
    """9.44 MFLOPs a token forward, by hand 4 * 768 * 3072; backward twice that; a
    training step three times.
    """
    for mode, flops in (("forward", "9.44"), ("backward", "18.9"), ("train", "28.3")):
        table = compare_frame(report_of(variants="relu,swiglu", mode=mode))
        shown = [
            column for column in table.shown(every=False) if column.title == "FLOPs"
        ]
        assert [column.texts[0] for column in shown] == [flops]
    both = compare_frame(report_of(variants="relu,b=relu@mode=backward"))
    assert [row["flops_timed"] for row in both.rows] == [4 * 768 * 3072, 8 * 768 * 3072]


S, F, E, U, B = (
    Verdict.SLOWER,
    Verdict.FASTER,
    Verdict.SAME,
    Verdict.UNCLEAR,
    Verdict.BUSY,
)


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ({"gelu": (E, 0.99, 1.01)}, "as fast as relu (within 2%): gelu"),
        ({"gelu": (E, 0.99, 1.01), "glu": (E, 1, 1.01)}, "as fast as relu (within 2%): gelu and glu"),
        ({"gelu": (S, 1.012, 1.051)}, "slower than relu: gelu +3.1% [+1.2%, +5.1%]"),
        ({"gelu": (F, 0.80, 0.85)}, "faster than relu: gelu -18% [-20%, -15%]"),
        ({"gelu": (S, 2.11, 2.32)}, "slower than relu: gelu +121% [+111%, +132%]"),
        ({"gelu": (S, 33.0, 35.0)}, "slower than relu: gelu x 34.0 [33.0, 35.0]"),
        (
            {"gelu": (S, 1.03, 1.05), "glu": (S, 1.1, 1.2)},
            "slower than relu: gelu +4.0% [+3.0%, +5.0%] and glu +15% [+10%, +20%]",
        ),
        (
            {"gelu": (E, 0.99, 1.01), "glu": (S, 1.1, 1.2), "swiglu": (U, 0.9, 1.1)},
            "as fast as relu (within 2%): gelu; slower than relu: glu +15% [+10%, +20%]; "
            "can't tell: swiglu -0.5% [-10%, +10%]",
        ),
        (
            {"gelu": (S, 2.2, 2.3), "silu": (S, 4.0, 4.1), "glu": (S, 3.0, 3.1), "geglu": (S, 2.5, 2.6)},
            "slower than relu: 4 rows, from gelu +125% [+120%, +130%] to silu +305% [+300%, +310%]",
        ),
        ({"gelu": (B, 0.9, 1.1)}, "too disturbed to compare: gelu"),
    ],
)  # fmt: skip
def test_what_the_table_says_in_words(rows, said: str) -> None:
    """Each sentence by hand."""
    report = report_of(variants=",".join(("relu", *rows)))
    comparisons = [
        Comparison(case=label, reference="relu", metric="latency", verdict=verdict,
                   ratio=Estimate(value=(low * high) ** 0.5, low=low, high=high))
        for label, (verdict, low, high) in rows.items()
    ]  # fmt: skip
    assert verdict_lines(replace(report, comparisons=tuple(comparisons))) == [said]


def test_the_total_is_weights_and_what_a_call_holds_with_the_gradients_counted_once() -> (
    None
):
    """By hand, classic relu of d 512, h 2048, 512 tokens, float32: forward holds h and
    relu(h); a training step holds at its peak the gradients of both matrices, which are
    in the peak, so they are not added again.
    """
    weights, hidden, model = 4 * 2 * 512 * 2048, 4 * 512 * 2048, 4 * 512 * 512
    [forward] = case_records(cost("relu", d_model=512))
    assert forward["total_bytes"] == weights + 2 * hidden
    [train] = case_records(cost("relu", d_model=512, mode="train"))
    # relu's output is saved and read by the second product; then y, dh, dx and both dW
    # come to be
    assert train["total_bytes"] == weights + train["peak_bytes"]
    assert weights < train["peak_bytes"] < weights + 3 * hidden + 2 * model


def test_at_most_four_lines_stand_below_however_much_there_is_to_say() -> None:
    trouble = {
        (Open, "gelu"): "oom",
        (TakeSample, "swiglu"): lost("timeout", "no answer within 300 s"),
    }
    prepared = prepare(asked(variants="relu,gelu,swiglu,glu"))
    prepared = replace(prepared, plan=with_control(prepared.plan))
    report = measure(prepared, launch=FakeLaunch(seconds, trouble))
    notes = tuple(
        Note(text=text, kind=kind)
        for text, kind in (
            ("moves", NoteKind.MOVES),
            ("busy: x", NoteKind.BUSY),
            ("all", NoteKind.GENERAL),
        )
    )
    late = replace(
        report, wall_s=20.0, interrupted=True, warnings=(*report.warnings, *notes)
    )
    full = compare_frame(replace(late, figures=figures_of(late)))
    assert len(full.summary) == 4  # of five: what the control says is left out
    assert any("no answer within 300 s" in line for line in full.summary)
    assert any(line.startswith("interrupted in process") for line in full.summary)


def test_a_csv_has_the_columns_that_some_row_fills() -> None:
    text = csv_text(
        [
            {"a": 1, "b": None, "c": False, "d": None},
            {"a": None, "b": None, "c": None, "d": ""},
        ]
    )
    assert text == "a,c,d\n1,false,\n,,\n"
