"""The roofline: what is drawn is what the numbers say, its names lie apart, and it is drawn where it can be."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import FakeLaunch, measure, prepare
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from ffnbench.common.errors import FfnbenchError
from ffnbench.messages import TakeSample
from ffnbench.metrics import LATENCY, ROOF
from ffnbench.report.pictures.roofline import roofline, roofline_figure
from ffnbench.request import CompareRequest
from ffnbench.result import Bound, Estimate, Report, Roof, Sample, Share
from ffnbench.stats.figures import figures_of

D, H = 768, 2048
WEIGHTS = 3 * D * H


def products(rate: float, *, dtype: str = "float32", threads: int = 2, path: str = "oneDNN") -> tuple[Roof, float]:
    """A roof, and its FLOPs per second."""
    name = f"(product {path} {dtype} {threads})"
    return Roof(name=name, bound=Bound.PRODUCTS, path=path, amount=2 * 512 * D * H, device="cpu", dtype=dtype,
                threads=threads, shape=(512, H, D)), rate  # fmt: skip


def reading(
    rate: float, level: str = "memory", *, amount: int = 1 << 23, path: str = "torch.sum"
) -> tuple[Roof, float]:
    """A roof, and its bytes per second."""
    return Roof(name=f"(bytes {level} {path})", bound=Bound.BYTES, path=path, amount=amount, device="cpu",
                dtype="float32", threads=2, level=level), rate  # fmt: skip


MEMORY, L3 = reading(38e9), reading(90e9, "L3", amount=2 * WEIGHTS)
FAST, SLOW, HALF = products(420e9), products(215e9, path="OpenBLAS"), products(850e9, dtype="bfloat16")
ROOFS = (MEMORY, FAST, SLOW)
Seconds = Callable[[str, int], float]  # (label, worker) -> seconds


def report_of(
    variants: str,
    seconds: Seconds,
    *,
    roofs: Iterable[tuple[Roof, float]] = ROOFS,
    met: Iterable[tuple[str, Roof]] = (),
    failing: str = "",
    **flags: object,
) -> Report:
    """A run of fake workers with roofs of known rates; `met`: which bytes hold which case back."""
    asked = {"d_model": D, "d_ff": H, "match": "none", "metrics": "latency", "workers": 4, "rounds": 2} | flags
    launch = FakeLaunch(lambda label, worker, _: seconds(label, worker), trouble={(TakeSample, failing): "crash"})
    found = measure(prepare(CompareRequest(variants=variants, **asked)), launch=launch)
    calls = tuple(
        Sample(case=roof.name, metric=ROOF, worker=worker, round=0, order=0, value=roof.amount / rate, calls=1)
        for roof, rate in roofs for worker in range(4)
    )  # fmt: skip
    shares = tuple(
        Share(case=label, bound=Bound.BYTES, roof=roof.name, share=Estimate(value=0.5)) for label, roof in met
    )
    found = replace(found, roofs=tuple(roof for roof, _ in roofs), samples=found.samples + calls, shares=shares)
    return replace(found, figures=figures_of(found))


def drawn(figure: Figure) -> dict[str, Line2D]:
    """The dots and lines by the label or the roof that they are of."""
    return {line.get_gid(): line for line in figure.axes[0].lines if line.get_gid()}


def at(line: Line2D) -> tuple[float, float]:
    (x,), (y,) = line.get_data()
    return float(x), float(y)


def test_a_dot_stands_where_the_numbers_say_with_its_interval() -> None:
    report = report_of("swiglu", lambda _, worker: 0.02 * (1 + 0.1 * worker))
    figure = roofline_figure(report)
    flops, moved = 2 * 512 * WEIGHTS, 4 * (WEIGHTS + 2 * 512 * D)
    latency = report.estimate("swiglu", LATENCY)
    assert latency.low < 0.02 * 1.1 < latency.high
    assert at(drawn(figure)["swiglu"]) == pytest.approx((flops / moved, flops / latency.value / 1e9))
    (bar,) = [line for line in figure.axes[0].lines if list(line.get_xdata()) == [flops / moved] * 2]
    assert sorted(bar.get_ydata()) == pytest.approx([flops / latency.high / 1e9, flops / latency.low / 1e9])


def test_lines_are_the_best_roofs_and_meet_at_the_ridge() -> None:
    """Bytes rise in proportion, the best products are level from the ridge on; OpenBLAS's are not drawn."""
    figure = roofline_figure(report_of("swiglu", lambda *_: 0.02))
    lines = drawn(figure)
    assert lines.keys() == {"swiglu", MEMORY[0].name, FAST[0].name}
    (x0, y0), (x1, y1) = lines[MEMORY[0].name].get_xydata()
    assert y0 / x0 == pytest.approx(38)
    assert (x1, y1) == pytest.approx((420 / 38, 420))
    (x0, y0), (x1, y1) = lines[FAST[0].name].get_xydata()
    assert (x0, y0, y1) == pytest.approx((420 / 38, 420, 420))
    assert x1 == figure.axes[0].get_xlim()[1]
    said = [text.get_text() for text in figure.axes[0].texts]
    assert said == ["420 GFLOP/s: float32, oneDNN", "38.0 GB/s: memory\ntorch.sum"]


def test_each_dtype_has_its_products_and_each_level_that_was_met_its_bytes() -> None:
    report = report_of(
        "full=swiglu@seq_len=1,half=swiglu@seq_len=1@dtype=bf16",
        lambda *_: 1e-3,
        roofs=(*ROOFS, HALF, L3, reading(300e9, "L2", amount=1 << 20)),
        met=(("full", MEMORY[0]), ("half", L3[0])),
    )
    lines = drawn(roofline_figure(report))
    assert lines.keys() == {"full", "half", MEMORY[0].name, L3[0].name, FAST[0].name, HALF[0].name}
    assert lines[MEMORY[0].name].get_ydata()[1] == pytest.approx(850)
    assert lines[FAST[0].name].get_xdata()[0] == pytest.approx(420 / 90)
    half = 2 * WEIGHTS / (2 * (WEIGHTS + 2 * D))
    assert at(lines["half"])[0] == pytest.approx(half)
    assert at(lines["full"])[0] == pytest.approx(half / 2)


def test_what_failed_is_left_out_and_without_any_case_it_is_said() -> None:
    report = report_of("relu,swiglu", lambda *_: 0.02, failing="swiglu")
    assert drawn(roofline_figure(report)).keys() == {"relu", MEMORY[0].name, FAST[0].name}
    with pytest.raises(FfnbenchError, match="no case of this run has a latency"):
        roofline_figure(report_of("swiglu", lambda *_: 0.02, failing="swiglu"))


def test_a_level_that_was_met_at_several_sizes_has_a_line_for_each_that_differs() -> None:
    """Lines less than a tenth apart are one: the faster of them."""
    sizes = {"one": 1, "two": 2, "three": 3}  # times d_ff
    rates = {"one": 95e9, "two": 90e9, "three": 60e9}
    roofs = {name: reading(rates[name], "L3", amount=4 * (WEIGHTS * n + 2 * D), path=name) for name, n in sizes.items()}
    report = report_of(
        ",".join(f"{name}=swiglu@d_ff={n * H}" for name, n in sizes.items()), lambda *_: 1e-2, seq_len=1, d_ff=None,
        roofs=[*ROOFS[1:], *roofs.values()], met=[(name, roof) for name, (roof, _) in roofs.items()],
    )  # fmt: skip
    assert [line.roof.path for line in roofline(report).bytes_] == ["one", "three"]


# Which file holds it


@pytest.fixture
def call(on_machine, in_process):
    """A command in this process, on workers that are not real; gives exit code, stdout, stderr."""
    on_machine(FakeLaunch())
    return in_process


@pytest.mark.parametrize("command", ["compare", "cost", "report"])
def test_without_ceilings_it_is_one_error_and_nothing_is_measured(command: str, call, tmp_path: Path) -> None:
    if command == "report":
        call("compare", "--quick", "--metrics", "latency", "-q", "-o", tmp_path / "run.json")
    given = {"report": [tmp_path / "run.json"], "compare": ["--metrics", "latency"], "cost": []}[command]
    code, out, err = call(command, *given, "-o", tmp_path / "roofline.png")
    assert (code, out) == (2, "")
    assert err == "error: this run has no ceilings\nhint: measure with --metrics latency,ceilings\n"
    assert not (tmp_path / "roofline.png").exists()
