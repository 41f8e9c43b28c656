"""The roofline: what is drawn is what the numbers say, its names lie apart, and it is
drawn where it can be.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import pytest
from fake_machine import FakeLaunch, measure, prepare
from made_up_runs import with_busy
from matplotlib.figure import Figure

from ffnbench.common.errors import FfnbenchError
from ffnbench.messages import TakeSample
from ffnbench.metrics import LATENCY, ROOF
from ffnbench.report.pictures.roofline import roofline_figure
from ffnbench.request import CompareRequest
from ffnbench.result import Bound, Estimate, Report, Roof, Sample, Share
from ffnbench.stats.figures import figures_of

D, H = 768, 2048
WEIGHTS = 3 * D * H


def products(
    rate: float, *, dtype: str = "float32", threads: int = 2, path: str = "oneDNN"
) -> tuple[Roof, float]:
    """A roof, and its FLOPs per second."""
    name = f"(product {path} {dtype} {threads})"
    return Roof(name=name, bound=Bound.PRODUCTS, path=path, amount=2 * 512 * D * H, device="cpu", dtype=dtype,
                threads=threads, shape=(512, H, D)), rate  # fmt: skip


def reading(
    rate: float,
    level: str = "memory",
    *,
    amount: int = 1 << 23,
    path: str = "torch.sum",
) -> tuple[Roof, float]:
    """A roof, and its bytes per second."""
    return Roof(name=f"(bytes {level} {path})", bound=Bound.BYTES, path=path, amount=amount, device="cpu",
                dtype="float32", threads=2, level=level), rate  # fmt: skip


MEMORY, L3 = reading(38e9), reading(90e9, "L3", amount=2 * WEIGHTS)
FAST, SLOW, HALF = (
    products(420e9),
    products(215e9, path="OpenBLAS"),
    products(850e9, dtype="bfloat16"),
)
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
    """A run of fake workers with roofs of known rates; `met`: which bytes hold which
    case back.
    """
    asked = {
        "d_model": D,
        "d_ff": H,
        "match": "none",
        "metrics": "latency",
        "workers": 4,
        "rounds": 2,
    } | flags
    launch = FakeLaunch(
        lambda label, worker, _: seconds(label, worker),
        trouble={(TakeSample, failing): "crash"},
    )
    found = measure(prepare(CompareRequest(variants=variants, **asked)), launch=launch)
    calls = tuple(
        Sample(case=roof.name, metric=ROOF, worker=worker, round=0, order=0, value=roof.amount / rate, calls=1)
        for roof, rate in roofs for worker in range(4)
    )  # fmt: skip
    shares = tuple(
        Share(case=label, bound=Bound.BYTES, roof=roof.name, share=Estimate(value=0.5))
        for label, roof in met
    )
    found = replace(
        found,
        roofs=tuple(roof for roof, _ in roofs),
        samples=found.samples + calls,
        shares=shares,
    )
    return replace(found, figures=figures_of(found))


def dots(figure: Figure) -> list[tuple[float, float]]:
    """Where the cases stand, in their order."""
    return [
        (line.get_xdata()[0], line.get_ydata()[0])
        for line in figure.axes[0].lines
        if len(line.get_xdata()) == 1
    ]


def lines(figure: Figure) -> list[tuple[tuple[float, float], tuple[float, float]]]:
    """The ends of the ceilings, in their order."""
    drawn = [
        line.get_xydata() for line in figure.axes[0].lines if len(line.get_xdata()) > 1
    ]
    return [(tuple(points[0]), tuple(points[-1])) for points in drawn]


def named(figure: Figure) -> list[str]:
    """The names in the legend, without shares."""
    return [
        re.sub(r" \d+%$", "", text.get_text()) for text in figure.legends[0].get_texts()
    ]


def test_a_dot_stands_where_the_numbers_say_with_its_interval() -> None:
    report = report_of("swiglu", lambda _, worker: 0.02 * (1 + 0.1 * worker))
    figure = roofline_figure(report)
    flops, moved = 2 * 512 * WEIGHTS, 4 * (WEIGHTS + 2 * 512 * D)
    latency = report.estimate("swiglu", LATENCY)
    assert latency.low < 0.02 * 1.1 < latency.high
    assert dots(figure) == [pytest.approx((flops / moved, flops / latency.value / 1e9))]
    ((bar,),) = (bars.get_segments() for bars in figure.axes[0].collections)
    assert sorted(bar[:, 1]) == pytest.approx(
        [flops / latency.high / 1e9, flops / latency.low / 1e9]
    )


def test_cases_of_one_intensity_stand_side_by_side() -> None:
    figure = roofline_figure(report_of("relu,gelu,swiglu@d_ff=64", lambda *_: 0.02))
    (first, _), (second, _), (third, _) = dots(figure)
    intensity = 2 * 512 * 2 * D * H / (4 * (2 * D * H + 2 * 512 * D))
    assert first < intensity < second < 1.1 * first
    assert third == pytest.approx(
        2 * 512 * 3 * D * 64 / (4 * (3 * D * 64 + 2 * 512 * D))
    )
    assert "side by side" in figure.get_suptitle()


def test_lines_are_the_best_roofs_and_meet_at_the_ridge() -> None:
    """Bytes rise in proportion, the best products are level from the ridge on;
    OpenBLAS's are not drawn.
    """
    figure = roofline_figure(report_of("swiglu", lambda *_: 0.02))
    [level, rising] = lines(figure)
    assert level == (
        pytest.approx((420 / 38, 420)),
        pytest.approx((figure.axes[0].get_xlim()[1], 420)),
    )
    (x, y), ridge = rising
    assert y / x == pytest.approx(38)
    assert ridge == pytest.approx((420 / 38, 420))
    said = [text.get_text() for text in figure.axes[0].texts]
    assert said == [
        "420 GFLOP/s: float32, oneDNN",
        "38.0 GB/s: memory, 8.00 MiB\ntorch.sum",
    ]


def test_each_dtype_has_its_products_and_each_level_that_was_met_its_bytes() -> None:
    report = report_of(
        "full=swiglu@seq_len=1,half=swiglu@seq_len=1@dtype=bf16",
        lambda *_: 1e-3,
        roofs=(*ROOFS, HALF, L3, reading(300e9, "L2", amount=1 << 20)),
        met=(("full", MEMORY[0]), ("half", L3[0])),
    )
    assert [ceiling.roof for ceiling in report.figures.roofline] == [
        HALF[0],
        FAST[0],
        L3[0],
        MEMORY[0],
    ]
    figure = roofline_figure(report)
    _, fast, _, memory = lines(figure)
    assert memory[1][1] == pytest.approx(850)
    assert fast[0][0] == pytest.approx(420 / 90)
    half = 2 * WEIGHTS / (2 * (WEIGHTS + 2 * D))
    assert [x for x, _ in dots(figure)] == pytest.approx([half / 2, half])


def test_what_failed_is_left_out_and_without_any_case_it_is_said() -> None:
    report = report_of("relu,swiglu", lambda *_: 0.02, failing="swiglu")
    assert named(roofline_figure(report)) == ["relu"]
    with pytest.raises(FfnbenchError, match="no case of this run has a latency"):
        roofline_figure(report_of("swiglu", lambda *_: 0.02, failing="swiglu"))


def test_a_level_that_was_met_at_several_sizes_has_a_line_for_each_that_differs() -> (
    None
):
    """Lines less than a tenth apart are one: the faster of them."""
    sizes = {"one": 1, "two": 2, "three": 3}  # times d_ff
    rates = {"one": 95e9, "two": 90e9, "three": 60e9}
    roofs = {
        name: reading(rates[name], "L3", amount=4 * (WEIGHTS * n + 2 * D), path=name)
        for name, n in sizes.items()
    }
    report = report_of(
        ",".join(f"{name}=swiglu@d_ff={n * H}" for name, n in sizes.items()), lambda *_: 1e-2, seq_len=1, d_ff=None,
        roofs=[*ROOFS[1:], *roofs.values()], met=[(name, roof) for name, (roof, _) in roofs.items()],
    )  # fmt: skip
    reads = [
        one.roof.path
        for one in report.figures.roofline
        if one.roof.bound is Bound.BYTES
    ]
    assert reads == ["one", "three"]


# Which file holds it


@pytest.fixture
def call(on_machine, in_process):
    """A command in this process, on workers that are not real; gives exit code, stdout,
    stderr.
    """
    on_machine(FakeLaunch())
    return in_process


@pytest.mark.parametrize("command", ["compare", "cost", "report"])
def test_without_ceilings_it_is_one_error_and_nothing_is_measured(
    command: str, call, tmp_path: Path
) -> None:
    if command == "report":
        call(
            "compare",
            "--quick",
            "--metrics",
            "latency",
            "-q",
            "-o",
            tmp_path / "run.json",
        )
    given = {
        "report": [tmp_path / "run.json"],
        "compare": ["--metrics", "latency"],
        "cost": [],
    }[command]
    code, out, err = call(command, *given, "-o", tmp_path / "roofline.png")
    assert (code, out) == (2, "")
    assert (
        err
        == "error: this run has no ceilings\nhint: measure with --metrics latency,ceilings\n"
    )
    assert not (tmp_path / "roofline.png").exists()


def test_under_ceilings_a_disturbed_row_has_neither_dot_nor_share_and_the_word() -> (
    None
):
    report = with_busy(report_of("relu,gelu,swiglu", lambda *_: 0.02), "swiglu")
    assert [share.case for share in report.shares] == ["relu", "gelu"]
    figure = roofline_figure(report)
    assert len(dots(figure)) == 2
    assert named(figure) == ["relu", "gelu", "swiglu (busy)"]
