"""`plot-activations` and `activations`: pictures, tables, timing, and every mistake."""

from __future__ import annotations

import csv
import json
import math
import struct
from pathlib import Path

import pytest
from conftest import FakeLaunch, ffnbench
from rich.cells import cell_len

from ffnbench import gallery
from ffnbench.bench.prober import Prober
from ffnbench.errors import FfnbenchError
from ffnbench.plan import NoProbe
from ffnbench.report.text import plain
from ffnbench.selection import TimingRequest, parse_range, select, timing_plan

OWN = """
import torch
from ffnbench import activation

@activation(formula="x tanh(exp(x))", flops=3, flops_backward=9)
def telu(x):
    return x * x.exp().tanh()

def bare(x): return x.sin()
def shape(x): return x.sum(-1)
def dtype(x): return x.float()
def module(d_model, d_ff): return torch.nn.Identity()
def hot(x): return x.exp().exp().exp()
def cusp(x): return x.abs().sqrt()
def step(x): return x.sign()
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "mine.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def png_size(path: Path) -> tuple[int, int]:
    head = path.read_bytes()[:24]
    assert head[:8] == b"\x89PNG\r\n\x1a\n"
    return struct.unpack(">II", head[16:24])


def test_the_default_writes_one_picture_and_says_where(folder: Path) -> None:
    done = ffnbench("plot-activations", cwd=folder, env={"DISPLAY": ""})
    assert done.returncode == 0, done.stderr
    assert done.stdout == "5 activations with derivatives on [-4, 4] -> activations.png\n"
    assert png_size(folder / "activations.png")[0] > 1400
    assert sorted(p.name for p in folder.iterdir() if p.is_file()) == ["activations.png", "mine.py"]


def draw(*, activations: str | None = None, range_: str = "-4:4", derivative: bool = True, gated: bool = False,
         size: str | None = None, dpi: int = 50, style: str = "default", out: list[str]) -> list[str]:  # fmt: skip
    return gallery.draw(activations, range_, derivative, gated, size, dpi, style, out)


def test_every_format_size_and_style(folder: Path) -> None:
    draw(activations="relu,swish@beta=0.5,mine.py:telu", size="4x3", style="grayscale",
         out=["a.png", "a.svg", "a.pdf", "a.csv"])  # fmt: skip
    assert png_size(folder / "a.png") == (200, 150)
    assert (folder / "a.svg").read_text().lstrip().startswith("<?xml")
    assert (folder / "a.pdf").read_bytes().startswith(b"%PDF")
    rows = list(csv.DictReader((folder / "a.csv").read_text().splitlines()))
    assert {row["activation"] for row in rows} == {"relu", "swish@beta=0.5", "telu"}
    at_two = next(r for r in rows if r["activation"] == "swish@beta=0.5" and float(r["x"]) == 2.0)
    assert float(at_two["value"]) == pytest.approx(2 * 0.7310585786300049, rel=1e-15)
    assert float(at_two["derivative"]) == pytest.approx(0.7310585786300049 + 0.19661193324148185, rel=1e-14)


def test_ten_curves_without_derivative_and_one_alone(folder: Path) -> None:
    ten = "relu,leaky_relu,relu2,gelu,silu,swish@beta=0.5,mish,hardswish,elu,tanh"
    assert draw(activations=ten, derivative=False, out=["ten.png"]) == ["10 activations on [-4, 4] -> ten.png"]
    draw(activations="identity", range_="0:1", out=["one.png"])
    assert (folder / "ten.png").stat().st_size > 5000


def test_gated_surfaces(folder: Path) -> None:
    said = draw(gated=True, activations="swiglu,mine.py:telu,relu", out=["g.png", "g.csv"])
    assert said[0] == "3 gated surfaces on [-4, 4] -> g.png"
    rows = list(csv.DictReader((folder / "g.csv").read_text().splitlines()))
    row = next(r for r in rows if (r["activation"], float(r["gate"]), float(r["up"])) == ("relu", 3.0, -2.0))
    assert float(row["value"]) == -6.0


MISTAKES = [
    (["--activations", "gleu"], "unknown activation 'gleu'", "did you mean"),
    (["--activations", ","], "no activation given", "relu"),
    (["--activations", "relu,relu"], "stands twice", "other="),
    (["--activations", "swiglu"], "is a gated form", "--gated"),
    (["--activations", "relu@d_ff=8"], "has no 'd_ff'", "beta"),
    (["--activations", "relu@beta=2"], "relu has no beta", "swish"),
    (["--range", "1:1"], "is empty", "--range"),
    (["--range=4:-4"], "is reversed", "--range=-4:5"),
    (["--range=-inf:4"], "not finite", "--range=-4:4"),
    (["--range=nan:4"], "not finite", "--range=-4:4"),
    (["--range", "a:b"], "cannot read the range", "LO:HI"),
    (["--range", "3"], "cannot read the range '3'", "LO:HI"),
    (["--size", "big"], "cannot read the size", "10x4.5"),
    (["--size", "0x3"], "cannot read the size", "between 1 and 60"),
    (["--dpi", "0"], "dpi must be a positive integer", "--dpi"),
    (["--style", "ggplto"], "unknown style 'ggplto'", "did you mean 'ggplot'"),
    (["-o", "x.jpg"], "unknown suffix '.jpg'", ".png"),
    (["-o", "nowhere/x.png"], "no folder 'nowhere'", "mkdir"),
    (["--activations", "mine.py:shape"], "changes the shape (9,) to ()", "element by element"),
    (["--activations", "mine.py:dtype"], "changes the dtype torch.float64 to torch.float32", "keep the dtype"),
    (["--activations", "mine.py:module"], "not a function of one tensor", "def act(x)"),
    (["--activations", "mine.py:hot"], "is not finite on [-4, 4]", "--range"),
    (["--activations", "mine.py:nope"], "has no 'nope'", "mine.py"),
    (["--activations", "gone.py:f"], "there is no file 'gone.py'", "current folder"),
]


@pytest.mark.parametrize(("arguments", "error", "hint"), MISTAKES, ids=[" ".join(m[0]) for m in MISTAKES])
def test_a_mistake_is_exit_2_and_leaves_no_file(folder: Path, arguments, error, hint) -> None:
    done = ffnbench("plot-activations", *arguments, cwd=folder)
    lines = done.stderr.splitlines()
    assert done.returncode == 2
    assert [line.partition(":")[0] for line in lines] == ["error", "hint"]
    assert error in lines[0]
    assert hint in lines[1]
    assert [p.name for p in folder.iterdir() if p.is_file()] == ["mine.py"]


def test_a_file_that_stood_there_survives_a_mistake(folder: Path) -> None:
    (folder / "activations.png").write_text("precious")
    with pytest.raises(FfnbenchError):
        draw(activations="mine.py:shape", out=["activations.png"])
    assert (folder / "activations.png").read_text() == "precious"


def test_ranges() -> None:
    assert parse_range("-4:4") == (-4, 4)
    assert parse_range("1e-3:2.5") == (0.001, 2.5)


def test_facts_of_all_activations_fit_and_say_what_they_are() -> None:
    records, (table,), _ = gallery.tell_facts(None, 60)
    assert len(records) == 16
    silu = next(record for record in records if record["activation"] == "silu")
    assert f"{silu['minimum']:.10f} {silu['minimum_at']:.10f}" == "-0.2784645428 -1.2784645428"
    assert (silu["hf"], silu["te"], silu["flops"]) == ("silu, swish", "silu", 5)
    for width in (60, 80, 120):
        text = plain(table, width)
        assert all(cell_len(line.rstrip()) <= width for line in text.splitlines())
        assert "-0.2784645428" in text
        assert "-1.2784645428" in text
    assert "kink at -3, 3" in plain(table, 200)


@pytest.mark.parametrize("format_", ["table", "markdown", "csv", "json"])
def test_facts_in_every_format(folder: Path, format_: str) -> None:
    done = ffnbench("activations", "--activations", "gelu,mine.py:telu", "--format", format_, cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "-0.16997120" in done.stdout
    assert "x tanh(exp(x))" in done.stdout
    if format_ == "markdown":
        header = next(line for line in done.stdout.splitlines() if line.startswith("| activation"))
        assert all(name in header for name in ("range of f'", "mean", "2nd moment", "FLOPs", "HF", "source"))
    if format_ == "json":
        telu = json.loads(done.stdout)[1]
        assert (telu["flops"], telu["flops_backward"], telu["high"]) == (3, 9, None)
    if format_ == "csv":
        assert [row["activation"] for row in csv.DictReader(done.stdout.splitlines())] == ["gelu", "telu"]


def test_records_hold_values_and_not_words(folder: Path) -> None:
    asked = ["activations", "--activations", "gelu,hardswish,mine.py:step", "--format"]
    gelu, hardswish, step = json.loads(ffnbench(*asked, "json", cwd=folder).stdout)
    assert (gelu["smooth"], gelu["low_reached"], gelu["high_reached"], gelu["monotonic"]) == (True, True, False, "no")
    assert (hardswish["smooth"], hardswish["kinks"], hardswish["jumps"]) == (False, [-3, 3], [])
    assert (step["jumps"], step["monotonic"], step["minimum_flat"], step["minimum_until"]) == (
        [0],
        "increasing",
        True,
        0,
    )
    rows = list(csv.DictReader(ffnbench(*asked, "csv", cwd=folder).stdout.splitlines()))
    assert [(row["smooth"], row["kinks"], row["jumps"]) for row in rows] == [
        ("true", "", ""), ("false", "-3.0 3.0", ""), ("false", "", "0.0"),
    ]  # fmt: skip
    told = ffnbench("activations", "--activations", "mine.py:step,swish@beta=1e5", "--wide", cwd=folder).stdout
    assert "-2.784645428e-06  -1.278464543e-05" in told
    assert "f jumps at 0" in told
    assert "[-1, 1]" in told


def test_a_point_without_a_derivative_is_a_gap(folder: Path) -> None:
    with Prober(60) as prober:
        chosen = select("mine.py:cusp", prober)
        curve = prober.curve(chosen["cusp"], -1, 1, 5)
    assert curve.y == pytest.approx((1, math.sqrt(0.5), 0, math.sqrt(0.5), 1))
    assert [math.isnan(slope) for slope in curve.slope] == [False, False, True, False, False]
    assert draw(activations="mine.py:cusp", out=["cusp.png"]) == ["1 activation with derivative on [-4, 4] -> cusp.png"]


def seconds(label: str, worker: int, number: int) -> float:
    name, _, elements, mode = label.split()
    base = {"relu": 1.0, "gelu": 3.0, "silu": 1.0}[name] * (2 if mode == "backward" else 1) * int(elements)
    return 1e-9 * base * (1 + 0.1 * worker) * (1 + 0.001 * (len(label) % 7) * (worker - 1))


def test_timing_compares_within_size_dtype_and_direction() -> None:
    request = TimingRequest(elements="1000,5000", dtypes="float32,bf16", quick=True)
    records, tables, code = gallery.tell_times("gelu,silu", request, launch=FakeLaunch(seconds))
    assert code == 0
    assert len(records) == 2 * 2 * 2 * 3  # dtypes, sizes, directions; relu is added
    assert len(tables) == 4
    for record in records:
        expected = {"relu": 1.0, "gelu": 3.0, "silu": 1.0}[record["activation"]]
        assert record["ratio"] == pytest.approx(expected, rel=0.01)
        assert record["verdict"] == {"relu": "reference", "gelu": "slower", "silu": "same"}[record["activation"]]
    text = plain(tables[1], 80)
    assert "5,000 elements, float32" in text
    assert "slower than relu: gelu" in text
    assert all(cell_len(line.rstrip()) <= 60 for line in plain(tables[0], 60).splitlines())


def test_an_operation_that_fails_says_why_and_the_others_go_on() -> None:
    request = TimingRequest(elements="1000", quick=True)
    trouble = {("sample", "gelu float32 1000 backward"): "crash"}
    records, (table,), code = gallery.tell_times("gelu,silu", request, launch=FakeLaunch(seconds, trouble))
    assert code == 0
    failed = [record for record in records if record["failure"]]
    assert [(r["activation"], r["mode"], r["latency_s"]) for r in failed] == [("gelu", "backward", None)]
    assert "gelu float32 1000 backward said no" in plain(table, 80)


def test_timing_for_real_is_one_run_of_operations(folder: Path) -> None:
    done = ffnbench(
        "activations", "--time", "--quick", "--rounds", "2", "--activations", "gelu,mine.py:telu,identity",
        "--elements", "4096", "--format", "csv", cwd=folder,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    rows = list(csv.DictReader(done.stdout.splitlines()))
    assert [(r["activation"], r["mode"]) for r in rows] == [
        (name, mode) for mode in ("forward", "backward") for name in ("relu", "gelu", "telu", "identity")
    ]
    assert all(float(r["latency_s"]) > 0 and r["failure"] == "" for r in rows)


@pytest.mark.parametrize(
    ("request_", "says"),
    [
        (TimingRequest(elements="0"), "elements must be a positive integer"),
        (TimingRequest(elements="many"), "elements must be a positive integer"),
        (TimingRequest(elements=","), "no elements given"),
        (TimingRequest(dtypes="float23"), "unknown dtype"),
        (TimingRequest(workers=2), "too few"),
        (TimingRequest(rounds=0), "rounds must be"),
    ],
)
def test_timing_mistakes(request_: TimingRequest, says: str) -> None:
    with pytest.raises(FfnbenchError, match=says):
        timing_plan(select("gelu", NoProbe()), request_)


def test_flags_of_timing_need_time() -> None:
    done = ffnbench("activations", "--elements", "5")
    assert done.returncode == 2
    assert "--elements needs --time" in done.stderr


def test_an_own_activation_works_in_compare_and_gated(folder: Path) -> None:
    done = ffnbench(
        "compare", "--quick", "--rounds", "2", "--d-model", "32", "--seq-len", "16", "--metrics",
        "latency,memory,sparsity", "--variants", "relu,mine.py:telu,g=mine.py:telu@gate=inner,b=mine.py:bare",
        "--format", "csv", cwd=folder,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    rows = {row["label"]: row for row in csv.DictReader(done.stdout.splitlines())}
    assert all(row["failure"] == "" for row in rows.values())
    assert (rows["g"]["gate"], rows["g"]["d_ff"], rows["g"]["activation"]) == ("inner", "88", "mine.py:telu")
    assert rows["telu"]["flops_elementwise"] == str(3 * 128)
    assert rows["b"]["flops_elementwise"] == ""
    assert int(rows["telu"]["peak_bytes"]) > 0  # measured, where nothing can be predicted
    assert 0.4 < float(rows["relu"]["zero_share"]) < 0.6
    assert float(rows["telu"]["zero_share"]) == 0
    assert float(rows["relu"]["dead_share"]) < 0.2


def test_an_undecorated_function_says_that_its_cost_is_unknown(folder: Path) -> None:
    with Prober(60) as prober:
        assert prober.describe("mine.py:bare").flops is None
        assert prober.describe("mine.py:telu").flops == 3
        assert prober.describe("mine.py:module") is None
        assert prober.describe("torch.nn.functional:silu") is not None
