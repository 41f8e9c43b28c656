"""Bounds on machines that are not here, held against units and clocks, sums by hand,
and what a machine took.
"""

from __future__ import annotations

import csv
import json
from collections import defaultdict
from pathlib import Path

import pytest
from fake_machine import KnownProber
from paths import ROOT

from ffnbench.common.choices import Weights
from ffnbench.plan.metrics import LATENCY
from ffnbench.report.store import read_report

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
UNITS = {  # whitepapers: units x FLOPs of one a cycle x GHz
    "h100": ("bfloat16", 132 * 4096 * 1.83), "h100-pcie": ("bfloat16", 114 * 4096 * 1.62),
    "a100": ("bfloat16", 108 * 2048 * 1.41), "a100-40gb": ("tf32", 108 * 1024 * 1.41),
    "l40s": ("bfloat16", 142 * 1024 * 2.52), "l4": ("float32", 58 * 256 * 2.04),
    "rtx-4090": ("float16", 128 * 1024 * 2.52), "mi300x": ("float16", 304 * 2048 * 2.1),
    "mi250x": ("float16", 220 * 1024 * 1.7), "epyc-9654": ("float32", 96 * 2 * 8 * 2 * 3.7),
    "xeon-8480": ("float32", 56 * 2 * 16 * 2 * 3.8),
}  # fmt: skip
UNITS_OF_8_BITS = {
    "h100": 132 * 8192 * 1.83, "h100-pcie": 114 * 8192 * 1.62, "h200": 132 * 8192 * 1.83, "a100": 108 * 4096 * 1.41,
    "a100-40gb": 108 * 4096 * 1.41, "l40s": 142 * 2048 * 2.52, "l4": 58 * 2048 * 2.04, "rtx-4090": 128 * 2048 * 2.52,
    "mi300x": 304 * 4096 * 2.1, "mi250x": 220 * 1024 * 1.7, "epyc-9654": 96 * 128 * 3.7, "xeon-8480": 56 * 2048 * 3.8,
}  # fmt: skip
BUS = {  # bits of the bus x GT/s / 8
    "h100": 5120 * 5.23 / 8, "h200": 6144 * 6.25 / 8, "a100": 5120 * 3.186 / 8, "a100-40gb": 5120 * 2.43 / 8,
    "l40s": 384 * 18 / 8, "l4": 192 * 12.5 / 8, "rtx-4090": 384 * 21 / 8, "mi300x": 8192 * 5.2 / 8,
    "mi250x": 8192 * 3.2 / 8, "epyc-9654": 12 * 64 * 4.8 / 8, "xeon-8480": 8 * 64 * 4.8 / 8,
}  # fmt: skip
# the fastest single samples on the 2 CPUs of an AMD EPYC (Zen 4) in results/: products
# of float32 by oneDNN, and a sum that reads the L3. Of 8 bits the CPU does four times
# as many products a cycle (vpdpbusd beside vfmadd231ps, both of 512 bits).
HERE = "[here]\ntflops_float32 = 0.5204\ntflops_int8 = 2.0816\ngb_per_s = 214.8\n"


@pytest.fixture
def rows(on_fakes, tmp_path: Path):
    """The records of `cost`."""

    def found(line: str, prober: object = KnownProber) -> list[dict]:
        path = tmp_path / "cost.csv"
        code, _, err = on_fakes(f"cost {line} -o", path, prober=prober)
        assert code == 0, err
        return records(path.read_text())

    return found


def records(text: str) -> list[dict]:
    """The rows of a CSV; numbers as numbers, what is not known as None."""

    def value(cell: str) -> float | str | None:
        try:
            return float(cell)
        except ValueError:
            return cell or None

    table = csv.DictReader(text.splitlines())
    return [{key: value(cell) for key, cell in row.items()} for row in table]


@pytest.fixture
def machines(on_fakes) -> dict[str, dict]:
    """The records of `list hardware`, by name."""
    code, out, err = on_fakes("list hardware --json")
    assert code == 0, err
    return {row["name"]: row for row in json.loads(out)}


def test_published_figures_are_those_of_units_buses_and_their_clocks(machines) -> None:
    for name, (dtype, giga) in UNITS.items():
        assert float(machines[name][dtype]) == pytest.approx(giga / 1e3, rel=0.02), name
    for name, giga in UNITS_OF_8_BITS.items():
        eight_bits = {machines[name][path] for path in ("fp8", "int8")} - {"-"}
        assert eight_bits, name
        for tera in eight_bits:
            assert float(tera) == pytest.approx(giga / 1e3, rel=0.02), name
    for name, gb_per_s in BUS.items():
        found = float(machines[name]["GB/s"])
        assert found == pytest.approx(gb_per_s, rel=0.02), name


def test_every_machine_has_a_source_and_narrower_dtypes_are_no_slower(machines) -> None:
    for machine in machines.values():
        assert machine["address"].startswith("https://")
        assert {machine["source"], machine["clock"]}.isdisjoint({"-", ""})
        peaks = [
            machine[path] for path in ("float64", "float32", "tf32", "bfloat16", "int8")
        ]
        known = [float(peak) for peak in peaks if peak != "-"]
        assert known == sorted(known)


def test_bounds_are_those_found_by_hand(rows) -> None:
    """Llama 3 8B's FFN has 3 x 4,096 x 14,336 weights; an A100 reads 2,039 GB/s and
    adds 312 TFLOP/s.
    """
    weights = 3 * 4096 * 14336
    line = "preset --preset llama3-8b --dtype bf16 --hardware a100"
    one, many = rows(f"{line} --seq-len 1,4096")
    assert one["at_least_s"] == pytest.approx((2 * weights + 2 * 2 * 4096) / 2039e9)
    assert one["bound_by"] == "memory"
    assert many["at_least_s"] == pytest.approx(2 * weights * 4096 / 312e12)
    assert many["bound_by"] == "products"
    assert many["flops_per_byte"] == pytest.approx(
        2 * weights * 4096 / (2 * weights + 2 * 4096 * 4096 * 2)
    )
    (train,) = rows(f"{line} --seq-len 4096 --mode train")
    assert train["at_least_s"] == pytest.approx(3 * many["at_least_s"])


def test_a_backward_moves_gradients_as_well(rows, tmp_path: Path, monkeypatch) -> None:
    """relu's two matrices of 64 x 256 floats, 16 tokens of 64: the matrices once and,
    by a backward, their gradients; x and y; x, dy and dx; or all four. A frozen matrix
    has no gradient, and what is looked up is not read whole. A machine of one byte a
    second tells how many there are.
    """
    monkeypatch.chdir(tmp_path)
    Path("byte.toml").write_text("[byte]\ntflops_float32 = 1\ngb_per_s = 1e-9\n")
    weights, end = 2 * 64 * 256 * 4, 16 * 64 * 4
    line = "--d-model 64 --d-ff 256 --seq-len 16 --mode forward,backward,train --hardware byte.toml"
    found = {row["mode"]: round(row["at_least_s"]) for row in rows(f"relu {line}")}
    assert found == {
        "forward": weights + 2 * end,
        "backward": 2 * weights + 3 * end,
        "train": 2 * weights + 4 * end,
    }
    Path("mine.py").write_text(MINE)

    class Counting(KnownProber):
        def count(self, spec, workload):
            return pytest.importorskip("ffnbench.worker.probe_jobs").count(
                spec, workload
            )

    own = rows(f"mine.py:Frozen {line} --match none", Counting)
    found = {row["mode"]: round(row["at_least_s"]) for row in own}
    assert found["train"] == weights + weights // 2 + 4 * end
    assert found["forward"] == weights + 2 * end


@pytest.mark.parametrize("routing", ["uniform", "skewed"])
def test_of_experts_only_those_of_one_token_are_sure_to_be_read(
    rows, routing: str, tmp_path: Path, monkeypatch
) -> None:
    """All 16 tokens may choose the same 2 of 64 experts, and the router is read."""
    monkeypatch.chdir(tmp_path)
    Path("byte.toml").write_text("[byte]\ntflops_float32 = 1\ngb_per_s = 1e-9\n")
    (row,) = rows(
        f"swiglu@moe=64x2@routing={routing} --d-model 64 --d-ff 32 --match none --seq-len 16 --hardware byte.toml"
    )
    read = 4 * (2 * 3 * 64 * 32 + 64 * 64)
    assert round(row["at_least_s"]) == read + 2 * 16 * 64 * 4


SQUARE, BLOCKS = 2880 * 2880, 23 * 23  # 22.5 blocks of 128
BYTES = {
    "fp8": SQUARE + 4,
    "fp8-row": SQUARE + 2880 * 4,
    "fp8-block": SQUARE + BLOCKS * 4,
    "mxfp4": SQUARE * 4.25 / 8,
    "nvfp4": SQUARE * 4.5 / 8 + 4,
    "int4": SQUARE / 2 + 2 * 2880 * 90 * 2,
}


@pytest.mark.parametrize("weights", BYTES)
def test_bytes_of_formats_are_those_of_elements_and_scales(
    rows, weights: str, tmp_path: Path, monkeypatch
) -> None:
    """One of gpt-oss's experts, 13.22 MB in MXFP4 and 14.00 MB in NVFP4; and 8 of them,
    of which a call touches 8 (1 - (3/4)^2), and is sure to read 2.
    """
    monkeypatch.chdir(tmp_path)
    Path("byte.toml").write_text("[byte]\ntflops_bfloat16 = 1\ngb_per_s = 1e-9\n")
    line = f"--d-model 2880 --d-ff 2880 --dtype bf16 --weights {weights}"
    (dense,) = rows(f"swiglu {line}")
    assert dense["weight_bytes"] == 3 * BYTES[weights]
    if weights == "int4":
        return
    routed = "swiglu@moe=8x2 --match none --seq-len 2 --hardware byte.toml"
    (found,) = rows(f"{routed} {line}")
    router, ends = 8 * 2880 * 2, 2 * 2 * 2880 * 2
    assert found["weight_bytes"] == 24 * BYTES[weights] + router
    assert found["weight_bytes_touched"] == 10.5 * BYTES[weights] + router
    assert round(found["at_least_s"]) == 6 * BYTES[weights] + router + ends


def test_no_row_of_8_bits_was_faster_than_its_bound(
    rows, tmp_path: Path, monkeypatch
) -> None:
    """Every committed run with quantised weights, beside the rates of its machine."""
    monkeypatch.chdir(tmp_path)
    Path("here.toml").write_text(HERE)
    held = 0
    for path in sorted((ROOT / "results").rglob("*.json")):
        run = read_report(path)
        fastest: dict[str, float] = defaultdict(lambda: float("inf"))
        for sample in run.samples:
            if sample.metric == LATENCY:
                fastest[sample.case] = min(fastest[sample.case], sample.value)
        for case in run.plan.cases:
            work, ffn = case.workload, case.ffn
            if work.weights is Weights.NONE or case.label not in fastest:
                continue
            (row,) = rows(
                f"swiglu@backend={work.backend} --weights {work.weights} --d-model {ffn.d_model} --d-ff {ffn.d_ff}"
                f" --seq-len {work.seq_len} --hardware here.toml"
            )
            assert row["at_least_s"] < fastest[case.label], (path, case.label)
            held += 1
    assert held > 40
