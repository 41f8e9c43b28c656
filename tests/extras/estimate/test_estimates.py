"""Bounds on machines that are not here, held against units and clocks, sums by hand,
and numpy.
"""

from __future__ import annotations

import csv
import json
from pathlib import Path
from statistics import median

import numpy as np
import pytest
from estimates import FEWEST, figures_of, spread_of
from fake_machine import KnownProber
from paths import ROOT

from ffnbench.cli.commands import FILES, options_of
from ffnbench.extras.estimate.bounds import HOW_NEAR_FILE, published
from ffnbench.ffn.spec import DTYPES
from ffnbench.report.files.store import read_report

MINE = """
import torch
class Frozen(torch.nn.Module):
    def __init__(self, d_model, d_ff):
        super().__init__()
        self.up = torch.nn.Linear(d_model, d_ff, bias=False).requires_grad_(False)
        self.down = torch.nn.Linear(d_ff, d_model, bias=False)
        self.looked_up = torch.nn.Parameter(torch.zeros(10**6, d_model))
    def forward(self, x):
        return self.down(torch.relu(self.up(x))) + self.looked_up[7]
"""
ENDS = ("low", "median", "high")
RUNS = ROOT / "results" / "amd-epyc-2cpu"
UNITS = {  # whitepapers: units x FLOPs of one a cycle x GHz
    "h100": ("bfloat16", 132 * 4096 * 1.83), "h100-pcie": ("bfloat16", 114 * 4096 * 1.62),
    "a100": ("bfloat16", 108 * 2048 * 1.41), "a100-40gb": ("tf32", 108 * 1024 * 1.41),
    "l40s": ("bfloat16", 142 * 1024 * 2.52), "l4": ("float32", 58 * 256 * 2.04),
    "rtx-4090": ("float16", 128 * 1024 * 2.52), "mi300x": ("float16", 304 * 2048 * 2.1),
    "mi250x": ("float16", 220 * 1024 * 1.7), "epyc-9654": ("float32", 96 * 2 * 8 * 2 * 3.7),
    "xeon-8480": ("float32", 56 * 2 * 16 * 2 * 3.8),
}  # fmt: skip
BUS = {  # bits of the bus x GT/s / 8
    "h100": 5120 * 5.23 / 8, "h200": 6144 * 6.25 / 8, "a100": 5120 * 3.186 / 8, "a100-40gb": 5120 * 2.43 / 8,
    "l40s": 384 * 18 / 8, "l4": 192 * 12.5 / 8, "rtx-4090": 384 * 21 / 8, "mi300x": 8192 * 5.2 / 8,
    "mi250x": 8192 * 3.2 / 8, "epyc-9654": 12 * 64 * 4.8 / 8, "xeon-8480": 8 * 64 * 4.8 / 8,
}  # fmt: skip


@pytest.fixture
def rows(on_fakes):
    """The records of an estimate."""

    def found(line: str) -> list[dict]:
        code, out, err = on_fakes(f"estimate {line} -f json")
        assert code == 0, err
        return json.loads(out)

    return found


def peak(name: str, dtype: str) -> float | None:
    tera = getattr(published().get(name), f"tflops_{dtype}")
    return tera and tera * 1e12


def test_published_figures_are_those_of_units_buses_and_their_clocks() -> None:
    for name, (dtype, giga) in UNITS.items():
        assert peak(name, dtype) == pytest.approx(giga * 1e9, rel=0.02), name
    for name, gb_per_s in BUS.items():
        assert published().get(name).gb_per_s == pytest.approx(gb_per_s, rel=0.02), name


def test_every_machine_has_a_source_and_narrower_dtypes_are_no_slower() -> None:
    for machine in published():
        assert machine.source
        assert machine.address.startswith("https://")
        assert machine.clock
        peaks = [
            peak(machine.name, path)
            for path in ("float64", "float32", "tf32", "bfloat16")
        ]
        known = [peak for peak in peaks if peak]
        assert known == sorted(known)
        assert all(hasattr(machine, f"tflops_{dtype.name}") for dtype in DTYPES)


def test_bounds_are_those_found_by_hand(rows) -> None:
    """Llama 3 8B's FFN has 3 x 4,096 x 14,336 weights; an A100 reads 2,039 GB/s and
    adds 312 TFLOP/s.
    """
    weights = 3 * 4096 * 14336
    one, many = rows(
        "preset --preset llama3-8b --hardware a100 --dtype bf16 --seq-len 1,4096"
    )
    assert one["at_least_s"] == pytest.approx((2 * weights + 2 * 2 * 4096) / 2039e9)
    assert (one["bound_by"], one["all_reduce_at_least_s"]) == ("memory", 0)
    assert many["at_least_s"] == pytest.approx(2 * weights * 4096 / 312e12)
    assert many["bound_by"] == "products"
    assert many["ridge_flops_per_byte"] == pytest.approx(312e12 / 2039e9)
    assert many["flops_per_byte"] == pytest.approx(
        2 * weights * 4096 / (2 * weights + 2 * 4096 * 4096 * 2)
    )
    (train,) = rows(
        "preset --preset llama3-8b --hardware a100 --dtype bf16 --seq-len 4096 --mode train"
    )
    assert train["at_least_s"] == pytest.approx(3 * many["at_least_s"])


def test_a_backward_moves_gradients_as_well(
    rows, on_fakes, tmp_path: Path, monkeypatch
) -> None:
    """relu's two matrices of 64 x 256 floats, 16 tokens of 64: the matrices once and,
    by a backward, their gradients; x and y; x, dy and dx; or all four. A frozen matrix
    has no gradient, and what is looked up is not read whole.
    """
    weights, end = 2 * 64 * 256 * 4, 16 * 64 * 4
    line = "--d-model 64 --d-ff 256 --seq-len 16 --mode forward,backward,train"
    found = {row["mode"]: row["device_bytes"] for row in rows(f"relu {line}")}
    assert found == {
        "forward": weights + 2 * end,
        "backward": 2 * weights + 3 * end,
        "train": 2 * weights + 4 * end,
    }
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(MINE)

    class Counting(KnownProber):
        def count(self, spec, workload):
            return pytest.importorskip("ffnbench.worker.probe_jobs").count(
                spec, workload
            )

    code, out, err = on_fakes(
        f"estimate mine.py:Frozen {line} --match none -f json", prober=Counting
    )
    assert code == 0, err
    found = {row["mode"]: row["device_bytes"] for row in json.loads(out)}
    assert found["train"] == weights + weights // 2 + 4 * end
    assert found["forward"] == weights + 2 * end


def test_tf32_is_for_float32_that_may_be_less_exact(rows) -> None:
    exact, tf32 = rows(
        "relu,fast=relu@matmul_precision=high --hardware h100 --d-model 4096 --seq-len 4096"
    )
    assert exact["products_at_least_s"] / tf32["products_at_least_s"] == pytest.approx(
        494.7 / 67
    )
    assert tf32["ratio_of_bounds"] == pytest.approx(
        tf32["at_least_s"] / exact["at_least_s"]
    )


def test_devices_share_weights_and_flops_and_a_ring_adds_their_outputs(rows) -> None:
    """All of a ring send 2 (N - 1) / N of 1,024 tokens x 4,096 x 2 bytes, in each
    direction of the call once.
    """
    line = (
        "swiglu --d-model 4096 --d-ff 14336 --hardware h100 --dtype bf16 --seq-len 1024"
    )
    (one,), (eight,) = rows(line), rows(f"{line} --tensor-parallel 8")
    (train,) = rows(f"{line} --tp 8 --mode train")
    assert (
        8 * eight["device_weight_bytes"]
        == one["device_weight_bytes"]
        == 3 * 4096 * 14336 * 2
    )
    assert 8 * eight["device_flops"] == one["device_flops"]
    ring = 2 * 7 / 8 * 1024 * 4096 * 2 / 450e9
    assert eight["all_reduce_at_least_s"] == pytest.approx(ring)
    assert train["all_reduce_at_least_s"] == pytest.approx(2 * ring)
    assert eight["at_least_s"] == pytest.approx(
        one["device_at_least_s"] / 8 + ring, rel=0.01
    )
    (experts,) = rows(
        "swiglu@moe=8x2 --d-model 512 --d-ff 1024 --match none --tp 4 --hardware h100"
    )
    assert experts["device_weight_bytes"] == 4 * (
        8 * 3 * 512 * 256 + 8 * 512
    )  # each has the router
    (shared,) = rows(
        "swiglu@moe=8x2@shared=512 --d-model 512 --d-ff 1024 --match none --tp 4 --hardware h100"
    )
    assert (
        shared["device_weight_bytes"] - experts["device_weight_bytes"]
        == 4 * 3 * 512 * 128
    )


def test_what_is_not_known_is_told_in_its_row(rows, on_fakes) -> None:
    (row,) = rows("relu --hardware epyc-9654 --dtype float16")
    assert (row["bound_by"], row["unknown"], row["products_at_least_s"]) == (
        None,
        "peak of float16",
        None,
    )
    assert row["at_least_s"] is row["device_at_least_s"] is None
    assert row["memory_at_least_s"] > 0
    (row,) = rows("relu --hardware epyc-9654 --tp 2")
    assert (row["at_least_s"], row["unknown"]) == (None, "link bandwidth")
    assert (
        "no link bandwidth" in on_fakes("estimate relu --hardware epyc-9654 --tp 2")[1]
    )
    (largest,) = rows("relu --d-model 64 --d-ff 100 --hardware h100 --tp 8")
    assert largest["device_weight_bytes"] == 2 * 64 * 13 * 4
    out = on_fakes("estimate relu --d-model 64 --d-ff 100 --hardware h100 --tp 8")[1]
    assert "8 devices do not divide the d_ff of relu 100" in " ".join(out.split())


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("--hardware bad.toml", "unknown field 'tflops'"),
        ("--hardware zero.toml", "at least"),
        ("--hardware text.toml", "cannot read 'text.toml'"),
        ("--hardware half.toml", "'gb_per_s' is missing"),
    ],
)
def test_a_mistake_is_one_line_and_a_hint(
    line: str, told: str, on_fakes, tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)
    files = {
        "bad": "[a]\ntflops = 3",
        "zero": "[a]\ngb_per_s = 0",
        "text": "{",
        "half": "[a]\ntflops_float32 = 3",
    }
    for name, text in files.items():
        Path(f"{name}.toml").write_text(text)
    code, out, err = on_fakes(f"estimate {line}")
    assert (code, out) == (2, "")
    assert told in err
    assert err.count("error:") == err.count("hint:") == 1


def test_rows_of_your_own_are_machines_and_stand_before_published_ones(
    rows, tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)
    row = "tflops_float32 = 2\ngb_per_s = 100\n"
    Path("mine.toml").write_text(f"[mine]\n{row}[h100]\n{row}")
    found = rows("relu --d-model 2048 --seq-len 2048 --hardware h100,mine.toml")
    assert [row["hardware"] for row in found] == ["h100", "mine"]
    for row in found:
        assert row["products_at_least_s"] == pytest.approx(
            2 * 8 * 2048**2 * 2048 / 2e12
        )


def test_a_run_tells_the_ceilings_of_its_machine() -> None:
    run = json.loads((RUNS / "swiglu-4096-0001.json").read_text())
    samples: dict[str, list[float]] = {}
    for one in run["samples"]:
        samples.setdefault(one["case"], []).append(one["value"])
    rates = {
        roof["name"]: roof["amount"] / median(samples[roof["name"]])
        for roof in run["roofs"]
    }
    found = figures_of(read_report(RUNS / "swiglu-4096-0001.json"))
    assert found["tflops_float32"] == pytest.approx(
        max(rates.values()) / 1e12, rel=0.05
    )
    assert found["gb_per_s"] == pytest.approx(
        max(rates[name] for name in rates if "sum" in name) / 1e9, rel=0.05
    )


def test_what_the_package_says_of_bounds_is_what_was_measured() -> None:
    values = list(np.random.default_rng(0).lognormal(size=50))
    spread = spread_of(values)
    assert [spread[key] for key in ENDS] == pytest.approx(
        list(np.percentile(values, [5, 50, 95]))
    )
    measured = RUNS / "estimates.csv"
    assert measured.is_file() == HOW_NEAR_FILE.is_file()
    if HOW_NEAR_FILE.is_file():
        told, found = (
            json.loads(HOW_NEAR_FILE.read_text()),
            list(csv.DictReader(measured.read_text().splitlines())),
        )
        for name in ("all", "products", "memory"):
            of = [
                float(s["measured_s"]) / float(s["at_least_s"])
                for s in found
                if name in ("all", s["bound_by"])
            ]
            assert (name in told) == (len(of) >= FEWEST)
            if name in told:
                assert [told[name][key] for key in ENDS] == pytest.approx(
                    list(np.percentile(of, [5, 50, 95]))
                )
                assert told[name]["shapes"] == len(of)
        assert (told["machine"], told["measured"]) == (
            found[0]["machine"],
            found[0]["measured"],
        )


def test_how_near_such_bounds_have_been_stands_with_every_estimate(
    on_fakes, monkeypatch
) -> None:
    memory, every = (
        {"shapes": n, "median": n / 10, "low": 1.0, "high": 5.0} for n in (20, 50)
    )
    near = {"machine": "2 CPUs", "measured": "2026-01-02", "mode": "forward", "dtypes": ["float32"], "all": every,
            "memory": memory}  # fmt: skip
    monkeypatch.setattr("ffnbench.extras.estimate.estimating.how_near", lambda: near)
    out = " ".join(on_fakes("estimate relu --d-model 4096 --seq-len 1,4096")[1].split())
    assert (
        "50 forward shapes in float32 took 5.0x [1.0, 5.0] their bound (memory 2.0x [1.0, 5.0])"
        in out
    )
    assert "not held" not in out
    for others, named in (
        ("--mode train", "float32 train"),
        ("--dtype float16", "float16 forward"),
    ):
        out = " ".join(on_fakes(f"estimate relu {others}")[1].split())
        assert f"{named}: not held against measured times" in out
        assert "2 CPUs" not in out


def test_a_file_may_set_its_flags() -> None:
    """None of them runs, writes or trusts anything that a command line did not name."""
    of_core = {name for one in FILES for name in options_of(one)}
    assert options_of("estimate").keys() - of_core == {"hardware", "tensor_parallel"}
