"""How answers read: golden tables at three widths, markdown, CSV and JSON contracts, files."""

from __future__ import annotations

import csv
import io
import json
import math
from pathlib import Path

import pytest
from conftest import FakeLaunch, csv_of, lost
from rich.cells import cell_len

from ffnbench import cost
from ffnbench.api import measure, prepare
from ffnbench.errors import FfnbenchError
from ffnbench.report.columns import case_records
from ffnbench.report.files.outputs import Outputs
from ffnbench.report.files.store import load, report_text
from ffnbench.report.formats import SUFFIXES
from ffnbench.report.tables import listing
from ffnbench.report.tables.compare import compare_table
from ffnbench.report.tables.table import EXTRA, Column, TextTable, ratio_cell
from ffnbench.report.tables.text import markdown, plain
from ffnbench.report.views import report_view
from ffnbench.request import CompareRequest
from ffnbench.result import Comparison, Estimate, Report, Verdict

GOLDEN = Path(__file__).parent / "golden"
TIMES = {"relu": 0.025, "gelu": 0.0251, "swiglu": 0.028, "glu": 0.0245}


def seconds(label: str, worker: int, number: int) -> float:
    """Known times: each worker has its own speed, and glu is all over the place."""
    wobble = 0.08 * math.sin(7 * worker) if label == "glu" else 0.002 * math.sin(3 * worker + len(label))
    return TIMES.get(label, 0.03) * (1 + wobble) * (1 + 0.05 * worker)


def report_of(**options: object) -> Report:
    request = CompareRequest(
        **{"variants": "relu,gelu,swiglu,glu", "d_model": 768, "threads": 2, "workers": 5, "rounds": 30, **options}
    )
    report = measure(prepare(request), launch=FakeLaunch(seconds))
    from dataclasses import replace

    return replace(report, wall_s=20.0)


@pytest.mark.parametrize("width", [60, 80, 120])
@pytest.mark.parametrize("name", ["compare", "train", "backward", "cost", "experts", "failures"])
def test_golden_tables(name: str, width: int, request: pytest.FixtureRequest) -> None:
    """Delete a golden file and run the tests to write it anew, then read it."""
    if name == "failures":
        from dataclasses import replace

        trouble = {("open", "gelu"): "oom", ("sample", "swiglu"): lost("timeout", "no answer within 300 s")}
        asked = CompareRequest(variants="relu,gelu,swiglu,glu@dtype=bf16", d_model=768, threads=2, workers=5)
        report = replace(measure(prepare(asked), launch=FakeLaunch(seconds, trouble)), wall_s=20.0)
        table = compare_table(report)
    elif name == "cost":
        table = compare_table(cost("relu,gelu,swiglu,silu@gate=output", d_model=512, mode="train"))
    elif name == "experts":
        moe = "swiglu@moe=8x2"
        table = compare_table(report_of(variants=f"swiglu,{moe},grouped={moe}@experts=grouped", routing="skewed"))
    else:
        table = compare_table(report_of(mode="forward" if name == "compare" else name))
    text = plain(table, width)
    lines = [line.rstrip() for line in text.splitlines()]
    assert max(cell_len(line) for line in lines) <= width
    golden = GOLDEN / f"{name}-{width}.txt"
    if not golden.exists():
        golden.write_text("\n".join(lines) + "\n", encoding="utf-8")
        pytest.fail(f"{golden.name} was missing and is written anew: read it, then run again")
    assert lines == golden.read_text(encoding="utf-8").splitlines()


def test_all_but_tokens_is_in_the_80_columns_of_the_main_job() -> None:
    text = plain(compare_table(report_of(variants="relu,gelu,swiglu")), 80)
    for heading in ("d_ff", "params", "FLOPs", "latency", "vs relu", "peak"):
        assert heading in text
    assert "hidden at 80 columns: GFLOP/s, GB/s, tokens (k/s), total (MiB), closed form" in text


def test_wide_shows_every_column_in_blocks_that_fit() -> None:
    from rich.console import Console

    from ffnbench.report.tables.text import show

    table = compare_table(report_of())
    console = Console(width=80, file=io.StringIO(), force_terminal=False)
    show(table, console, wide=True)
    text = console.file.getvalue()
    assert all(word in text for column in table.columns for word in column.lines)
    assert all(cell_len(line.rstrip()) <= 80 for line in text.splitlines())


def test_the_flops_shown_are_those_of_the_half_that_is_timed() -> None:
    """9.44 MFLOPs a token forward, by hand 4 * 768 * 3072; backward twice that; a training step three times."""
    for mode, title, flops in (
        ("forward", "FLOPs", "9.44"),
        ("backward", "FLOPs bwd", "18.9"),
        ("train", "FLOPs fwd+bwd", "28.3"),
    ):
        table = compare_table(report_of(variants="relu,swiglu", mode=mode))
        shown = [
            i for i, column in enumerate(table.columns) if column.title.startswith("FLOPs") and column.priority < EXTRA
        ]
        assert [(table.columns[i].title, table.rows[0][i].text) for i in shown] == [(title, flops)]
    text = plain(compare_table(report_of(variants="relu,swiglu", mode="backward")), 100)
    assert "the peak is that of forward and backward together" in text
    assert "peak is that" not in plain(compare_table(report_of(mode="backward", metrics="latency")), 80)
    both = compare_table(report_of(variants="relu,b=relu@mode=backward"))
    at = [column.title for column in both.columns].index("FLOPs timed")
    assert [row[at].value for row in both.rows] == [4 * 768 * 3072, 8 * 768 * 3072]


def test_a_long_label_is_folded_and_the_numbers_stay() -> None:
    label = "a_very_long_label_that_somebody_chose_for_good_reasons"
    text = plain(compare_table(report_of(variants=f"relu,{label}=gelu")), 60)
    assert "reference" in text
    assert "27 ±9.4%" in text
    assert all(cell_len(line.rstrip()) <= 60 for line in text.splitlines())


@pytest.mark.parametrize(
    ("verdict", "ratio", "text"),
    [
        ("same", (0.9991, 0.9862, 1.0124), "0.999 [0.986, 1.012] same"),
        ("unclear", (1.0102, 1.0001, 1.0203), "1.010 [1.0001, 1.020] ~"),  # rounding must not hide that 1 is left out
        ("unclear", (0.943, 0.89, 0.9996), "0.94 [0.89, 0.9996] ~"),
        ("same", (0.999, 0.9801, 1.00001), "0.999 [0.980, 1.000] same"),
        ("unclear", (4.6, 0.0076, 2608.0), "4.6 [<0.5, >46] ~"),
        ("unclear", (1.2, 0.5, 2.9), "1.2 [0.50, 2.9] ~"),
        ("slower", (1.271, 1.241, 1.302), "1.27 [1.24, 1.30]"),
        ("faster", (0.5, 0.48, 0.52), "0.50 [0.48, 0.52]"),
        ("unclear", (1.2712, None, None), "1.27 ~"),
        ("busy", (1.2712, None, None), "1.27 busy"),
        ("unclear", None, "~"),
        ("reference", None, "reference"),
        ("reference", (1.0, 1.0, 1.0), "reference"),
    ],
)
def test_a_ratio_reads_as_number_interval_and_verdict(verdict: str, ratio, text: str) -> None:
    estimate = ratio and Estimate(value=ratio[0], low=ratio[1], high=ratio[2])
    found = Comparison(case="a", reference="b", metric="latency", ratio=estimate, verdict=Verdict(verdict))
    cell = ratio_cell(found)
    assert (cell.text, cell.value) == (text, ratio and ratio[0])
    assert cell.text.replace("<", "&lt;") in markdown(TextTable(columns=(Column(title="x"),), rows=((cell,),)))


def test_the_total_is_weights_and_what_a_call_holds_with_the_gradients_counted_once() -> None:
    """By hand, classic relu of d 512, h 2048, 512 tokens, float32: forward holds h and relu(h); a training step holds
    at its peak the gradients of both matrices, which are in the peak, so they are not added again.
    """
    weights, hidden, model = 4 * 2 * 512 * 2048, 4 * 512 * 2048, 4 * 512 * 512
    [forward] = case_records(cost("relu", d_model=512))
    assert forward["total_bytes"] == weights + 2 * hidden
    [train] = case_records(cost("relu", d_model=512, mode="train"))
    # relu's output is saved and read by the second product; then y, dh, dx and both dW come to be
    assert train["total_bytes"] == weights + train["peak_bytes"]
    assert weights < train["peak_bytes"] < weights + 3 * hidden + 2 * model


def test_what_gelu_means_is_said_beside_another_gelu_or_a_model_alone() -> None:
    said = "gelu is the exact erf form"
    for variants, told in (("relu,gelu", False), ("gelu,gelu_tanh", True), ("gpt2,gelu", True), ("geglu,gelu", False)):
        assert (said in plain(compare_table(cost(variants)), 120)) is told, variants


def test_noise_is_one_line_that_blames_nobody_by_guess() -> None:
    report = report_of()
    from dataclasses import replace

    from ffnbench.plan import Note, NoteKind

    seen = ("24 of 80 samples are left out (the threads waited for a CPU in them), 16 of 40 rounds are clean",
            "within a worker everything gets 8.7% faster")  # fmt: skip
    notes = (Note(text=seen[0], kind=NoteKind.NOISE), Note(text=seen[1], kind=NoteKind.MOVES))
    noisy = replace(report, warnings=(*report.warnings, *notes))
    lines = [line for line in compare_table(noisy).summary if "noise" in line]
    assert lines == [f"noise: {seen[0]}; {seen[1]}; trust ratios, not seconds"]
    busy = Note(text="busy: other processes used 1.7 CPUs; wait", kind=NoteKind.BUSY)
    summary = compare_table(replace(noisy, warnings=(*noisy.warnings, busy))).summary
    assert [line for line in summary if "busy" in line or "within a worker" in line] == [f"{busy.text}; {seen[0]}"]


def test_a_run_that_is_too_noisy_says_what_it_can_tell() -> None:
    from dataclasses import replace

    report = report_of()
    wide = tuple(replace(c, resolution=1.9 if c.resolution else None) for c in report.comparisons)
    assert (
        "too noisy for less than 2.9x the time, measured in 20 s; see `ffnbench env`"
        in compare_table(replace(report, comparisons=wide)).summary
    )


CONTRACT = (
    "label,variant,d_model,d_ff,activation,gated,gate,bias,dtype,device,mode,backend,batch,seq_len,threads,params,"
    "params_active,flops_forward,flops_backward,flops_elementwise,latency_s,latency_low_s,latency_high_s,ratio,"
    "ratio_low,ratio_high,verdict,tokens_per_s,peak_bytes,saved_bytes,weight_bytes,workers,rounds,failure"
)


def test_the_csv_contract() -> None:
    text = csv_of(report_of())
    assert text.splitlines()[0].startswith(CONTRACT + ",")
    rows = list(csv.DictReader(io.StringIO(text)))
    swiglu = next(row for row in rows if row["label"] == "swiglu")
    assert (swiglu["d_ff"], swiglu["params"], swiglu["gated"], swiglu["gate"]) == ("2048", "4718592", "true", "inner")
    assert (swiglu["flops_forward"], swiglu["flops_backward"]) == ("9437184", "18874368")
    assert (swiglu["saved_bytes"], swiglu["failure"], swiglu["workers"], swiglu["rounds"]) == ("", "", "5", "30")
    assert (swiglu["verdict"], rows[0]["verdict"], rows[0]["ratio"]) == ("slower", "reference", "1.0")
    latency, low, high = (float(swiglu[key]) for key in ("latency_s", "latency_low_s", "latency_high_s"))
    assert low < latency < high
    assert float(swiglu["tokens_per_s"]) == pytest.approx(512 / latency, rel=1e-15)


def test_csv_reads_back_in_pandas() -> None:
    import pandas as pd

    report = report_of()
    frame = pd.read_csv(io.StringIO(csv_of(report)))
    assert frame["gated"].tolist() == [False, False, True, True]
    assert frame["latency_s"].tolist() == report.frame()["latency_s"].tolist()  # full precision


def test_json_holds_everything_and_reads_back(tmp_path: Path) -> None:
    report = report_of()
    path = tmp_path / "run.json"
    path.write_text(report_text(report), encoding="utf-8")
    data = json.loads(path.read_text())
    assert data["schema"] == 2
    assert len([s for s in data["samples"] if s["metric"] == "latency"]) == 4 * 5 * 30
    assert {"case", "metric", "worker", "starter", "round", "order", "value", "calls"} == set(data["samples"][0])
    loaded = load(path)
    assert case_records(loaded) == case_records(report)
    assert loaded.plan == report.plan


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "not a whole ffnbench report"),
        ("[]", "has schema None"),
        ('{"schema": 99}', "has schema 99"),
        ('{"schema": 1}', "has schema 1, this ffnbench reads schema 2"),
        ('{"schema": 2, "plam": 3}', "not a whole ffnbench report"),
    ],
)
def test_a_file_that_is_no_report_is_refused(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "run.json"
    path.write_text(text)
    with pytest.raises(FfnbenchError, match=says):
        load(path)


def test_markdown_has_every_ordinary_column_and_the_footnotes() -> None:
    lines = markdown(compare_table(report_of())).splitlines()
    header = next(line for line in lines if line.startswith("| variant"))
    assert "latency (ms)" in header
    assert "tokens (k/s)" in header
    assert len({line.count("|") for line in lines if line.startswith("|")}) == 1
    assert any(line.startswith("¹ ") for line in lines)
    assert r"2\*d\*4d" in "".join(lines)  # else `d` would be in italics and the stars gone


def test_a_folder_gets_every_format(tmp_path: Path) -> None:
    report = report_of()
    with Outputs([f"{tmp_path}/results/mine/"], "compare", SUFFIXES) as outputs:
        paths = outputs.write(lambda path: report_view(report).files[path.suffix]().encode())
    assert sorted(path.name for path in paths) == ["compare.csv", "compare.json", "compare.md"]
    assert sorted(p.name for p in (tmp_path / "results" / "mine").iterdir()) == [p.name for p in sorted(paths)]
    assert all(path.stat().st_size > 100 for path in paths)


@pytest.mark.parametrize(
    ("out", "says"),
    [
        ("nowhere/run.csv", "no folder 'nowhere'"),
        ("run.xlsx", "unknown suffix '.xlsx'"),
        ("run.jsn", "unknown suffix '.jsn'"),
        ("run", "no suffix"),
        ("/proc/nothing/", "cannot write"),
        ("/proc/run.csv", "cannot write"),
    ],
)
def test_a_file_that_cannot_be_written_is_found_before_measuring(out: str, says: str) -> None:
    with pytest.raises(FfnbenchError, match=says) as caught:
        Outputs([out], "compare", SUFFIXES)
    assert caught.value.hint


@pytest.mark.parametrize("what", list(listing.LISTINGS))
def test_lists_fit_and_are_complete(what: str) -> None:
    names = [next(iter(record.values())) for record in listing.LISTINGS[what]()]
    for width in (60, 80, 120):
        text = plain(listing.listing_view(what).table, width)
        assert all(cell_len(line.rstrip()) <= width for line in text.splitlines())
        assert all(name in text for name in names)
    for format_ in ("json", "csv", "markdown"):
        written = listing.listing_view(what).stdout[format_]()
        assert all(name in written for name in names)
