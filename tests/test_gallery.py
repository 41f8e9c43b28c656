"""`plot-activations` and `activations`: pictures, facts, and every mistake."""

from __future__ import annotations

import csv
import json
import math
import os
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import ROOT, ffnbench
from rich.cells import cell_len

from ffnbench import api, cli
from ffnbench.activations.table import ACTIVATIONS
from ffnbench.errors import FfnbenchError
from ffnbench.plan import NoProbe
from ffnbench.planning.activations import every_activation, parse_range, select
from ffnbench.report.formats import PICTURE_SUFFIXES
from ffnbench.report.output import OutputSink, Written
from ffnbench.report.pictures.activations import points, titles
from ffnbench.report.tables.activations import facts_records, facts_table
from ffnbench.report.tables.text import plain
from ffnbench.request import PictureRequest
from ffnbench.result import Curve
from ffnbench.run.prober import Prober

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
    assert done.stdout == "5 activations on [-4, 4] -> activations.png\n"
    assert png_size(folder / "activations.png")[0] > 1400
    assert sorted(p.name for p in folder.iterdir() if p.is_file()) == ["activations.png", "mine.py"]


def draw(*, out: list[str], **flags) -> list[str]:
    with OutputSink(Written(out=tuple(out)), "activations", suffixes=PICTURE_SUFFIXES) as sink:
        return api.plot_activations(PictureRequest(**({"dpi": 50, "timeout": 60.0} | flags)), sink)


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
    (["--activations", "swiglu"], "is a gated form", "`ffnbench plot-activations --gated`"),
    (["--activations", "relu@d_ff=8"], "has no 'd_ff'", "beta"),
    (["--activations", "relu@beta=2"], "relu has no beta", "swish"),
    (["--range", "1:1"], "is empty", "--range"),
    (["--range=4:-4"], "is reversed", "--range=-4:4"),
    (["--range=-inf:4"], "not finite", "--range=-4:4"),
    (["--range=nan:4"], "not finite", "--range=-4:4"),
    (["--range", "a:b"], "cannot read the range", "LO:HI"),
    (["--range", "3"], "cannot read the range '3'", "LO:HI"),
    (["--size", "big"], "cannot read the size 'big'", "10x4.5"),
    (["--size", "0x3"], "cannot read the size '0x3'", "between 3x2 and 60x60"),
    (["--size", "1x1"], "cannot read the size '1x1'", "between 3x2 and 60x60"),
    (["--size", "nanx3"], "cannot read the size 'nanx3'", "between 3x2 and 60x60"),
    (["--size", "3x2"], "too small for all that the picture holds", "leave --size out"),
    (["--dpi", "100000"], "more than 100 megapixels", "at most --dpi 1139"),
    (["--size", "60x60", "--dpi", "167"], "more than 100 megapixels", "at most --dpi 166"),
    (["--range=1e-320:2e-320"], "beyond what a picture can show", "--range=-4:4"),
    (["--range=0:1e300"], "beyond what a picture can show", "--range=-4:4"),
    (["--range=1e9:1000000000.5"], "its points would coincide in float64", "at 1e+09, at least 1 wide"),
    (["--activations", ","], "no activation given", "relu"),
    (["--timeout", "0"], "--timeout must be positive seconds", "300"),
    (["--gated", "--activations", "relu@gate=output"], "'relu@gate=output' is no surface", "@gate=inner"),
    (["--gated", "--activations", "swiglu@gate=none"], "'swiglu@gate=none' is no surface", "@gate=inner"),
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
def test_a_mistake_is_exit_2_and_leaves_no_file(folder: Path, arguments, error, hint, monkeypatch, capsys) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "argv", ["ffnbench", "plot-activations", *arguments])
    with pytest.raises(SystemExit) as caught:
        cli.main()
    lines = capsys.readouterr().err.splitlines()
    assert caught.value.code == 2
    assert [line.partition(":")[0] for line in lines] == ["error", "hint"]
    assert error in lines[0]
    assert hint in lines[1]
    assert [p.name for p in folder.iterdir() if p.is_file()] == ["mine.py"]


def test_a_file_that_stood_there_survives_a_mistake(folder: Path) -> None:
    (folder / "activations.png").write_text("precious")
    with pytest.raises(FfnbenchError):
        draw(activations="mine.py:shape", out=["activations.png"])
    assert (folder / "activations.png").read_text() == "precious"


def test_a_kill_leaves_no_file_and_no_worker(folder: Path) -> None:
    (folder / "slow.py").write_text(
        "import os, pathlib, time\npathlib.Path('pid').write_text(str(os.getpid()))\ntime.sleep(60)\n"
    )
    command = [sys.executable, "-m", "ffnbench", "plot-activations", "--activations", "slow.py:f", "-o", "a.png"]
    started = subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, cwd=folder, env={**os.environ, "PYTHONPATH": str(ROOT)}
    )
    deadline = time.monotonic() + 60
    while not ((folder / "pid").exists() and (folder / "pid").read_text()) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert (folder / "pid").exists()
    started.send_signal(signal.SIGTERM)
    _, err = started.communicate(timeout=30)
    assert (started.returncode, err) == (130, "error: interrupted before the answer was complete\n")
    assert sorted(path.name for path in folder.glob("*.png")) == []
    assert not Path(f"/proc/{(folder / 'pid').read_text()}").exists()


def test_a_function_that_hangs_is_given_up(folder: Path) -> None:
    (folder / "slow.py").write_text("import time\ntime.sleep(60)\n")
    done = ffnbench("plot-activations", "--activations", "slow.py:f", "--timeout", "1", cwd=folder)
    assert done.returncode == 2
    assert "no answer within 1 s" in done.stderr
    assert not (folder / "activations.png").exists()


def test_titles_name_the_form_its_activation_and_its_beta() -> None:
    chosen = select("swiglu,mish_glu,mish,relu,s=swish@beta=2,swish@beta=0.5", NoProbe(), gated=True)
    assert list(titles(chosen).values()) == [
        "swiglu: silu(g) · u", "mish_glu: mish(g) · u", "mish_glu: mish(g) · u", "reglu: relu(g) · u",
        "s: swish(g, β = 2) · u", "swish@beta=0.5: swish(g, β = 0.5) · u",
    ]  # fmt: skip


def test_where_there_is_no_slope_the_csv_is_empty() -> None:
    curve = Curve(x=(-1.0, 0.0, 1.0), y=(0.0, 0.0, 1.0), slope=(0.0, float("nan"), 1.0), flat=())
    assert points({"f": curve}, gated=False).splitlines()[1:] == [
        "-1.0,f,0.0,0.0",
        "0.0,f,0.0,",
        "1.0,f,1.0,1.0",
    ]


def test_ranges() -> None:
    assert parse_range("-4:4") == (-4, 4)
    assert parse_range("1e-3:2.5") == (0.001, 2.5)


def test_facts_of_all_activations_fit_and_say_what_they_are() -> None:
    with Prober(60) as prober:
        chosen = select(every_activation(), prober)
        facts = {label: prober.facts(spec) for label, spec in chosen.items()}
    records, table = facts_records(chosen, facts), facts_table(chosen, facts)
    assert len(records) == len(ACTIVATIONS.names())
    silu = next(record for record in records if record["activation"] == "silu")
    assert f"{silu['minimum']:.10f} {silu['minimum_at']:.10f}" == "-0.2784645428 -1.2784645428"
    assert (silu["hf"], silu["te"], silu["flops"]) == ("silu, swish", "silu", 5)
    assert [each["activation"] for each in records if each["torch_differs"]] == ["softplus", "sqrtsoftplus"]
    for width in (60, 80, 120):
        text = plain(table, width)
        assert all(cell_len(line.rstrip()) <= width for line in text.splitlines())
        assert "-0.2784645428" in text
        assert "-1.2784645428" in text
    assert "kink at -3, 3" in plain(table, 200)
    assert "softplus: torch's softplus is x itself above 20, where it jumps by 2.1e-9" in plain(table, 200)


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
    assert draw(activations="mine.py:cusp", out=["cusp.png"]) == ["1 activation on [-4, 4] -> cusp.png"]


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
