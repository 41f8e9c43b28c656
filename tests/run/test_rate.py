"""`--metrics rate`: bare matrix products and a copy of its bytes beside each row."""

from __future__ import annotations

import csv
import io
import json
import math
from collections import defaultdict
from pathlib import Path

import pytest
import torch
from fake_machine import FakeLaunch, planned
from torch.utils._python_dispatch import TorchDispatchMode

from ffnbench.worker.rate import BareCalls

ARGUMENTS = "--d-model 64 --threads 1 --workers 5 --rounds 6 --match none --d-ff 128"
# the seconds of each row; of its bare products and of its copy, in each worker
SECONDS = {"relu": 0.020, "gelu": 0.010, "swiglu": 0.040}
BARE = {"relu": (0.010, 0.001), "gelu": (0.001, 0.008), "swiglu": (0.030, 0.030)}
DRIFT = (1.0, 1.1, 0.95, 1.05, 0.9)  # how much slower a worker is than the first


@pytest.fixture
def rows(on_fakes, tmp_path: Path):
    """The rows of a command by label, as its CSV has them."""

    def found(command: str, launch: FakeLaunch) -> dict[str, dict]:
        code, _, err = on_fakes(
            f"{command} {ARGUMENTS} -o", tmp_path / "run.csv", launch=launch
        )
        assert code == 0, err
        text = (tmp_path / "run.csv").read_text()
        return {row["label"]: row for row in csv.DictReader(io.StringIO(text))}

    return found


def scripted() -> FakeLaunch:
    """A machine whose workers differ in speed, for rows and bare calls alike."""
    launch = FakeLaunch(lambda label, worker, number: SECONDS[label] * DRIFT[worker])
    launch.rate = lambda label, worker: tuple(
        seconds * DRIFT[worker] for seconds in BARE[label]
    )
    return launch


def test_a_rate_is_the_longer_of_products_and_copy_over_the_time_of_its_row(
    rows,
) -> None:
    launch = scripted()
    found = rows("compare relu,gelu,swiglu --metrics latency,rate", launch)
    assert {label: float(row["rate"]) for label, row in found.items()} == pytest.approx(
        {"relu": 0.5, "gelu": 0.8, "swiglu": 0.75}
    )
    # what slows a worker slows both, so that the interval is that of their ratio
    for row in found.values():
        assert float(row["rate_high"]) / float(row["rate_low"]) < 1.001


def test_the_interval_is_over_processes(rows) -> None:
    """Student's interval over five processes whose log of the rate scatters."""
    logs = (-0.02, -0.01, 0.0, 0.01, 0.02)
    launch = FakeLaunch(lambda label, worker, number: 0.02)
    launch.rate = lambda label, worker: (0.01 * math.exp(logs[worker]), 1e-6)
    row = rows("compare relu --metrics latency,rate", launch)["relu"]
    assert float(row["rate"]) == pytest.approx(0.5, rel=0.005)
    width = math.log(float(row["rate_high"]) / float(row["rate_low"])) / 2
    # t(4) s / sqrt(5), or wider: starters have a component of their own
    assert 2.776 * 0.0158 / math.sqrt(5) <= width * 1.001 <= 0.05


def test_rows_and_bare_calls_take_turns_in_the_same_processes(rows) -> None:
    launch = scripted()
    rows("compare relu,gelu --metrics latency,rate", launch)
    asked: dict[int, list[str]] = defaultdict(list)
    for worker, job, _ in launch.log:
        if job in ("sample", "rate"):
            asked[worker].append(job)
    assert len(asked) == 5
    for names in asked.values():
        assert names.count("sample") == names.count("rate") == 2 * 7
        for start in range(0, len(names), 4):  # each round has one of each for each row
            assert names[start : start + 4].count("rate") == 2


def test_a_copy_moves_as_many_bytes_as_weights_input_and_output() -> None:
    """Read and written together: relu's two matrices of 64 x 128, 512 tokens of 64."""
    elements = []

    class Copies(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            if func is torch.ops.aten.copy_.default:
                elements.append(args[0].numel() + args[1].numel())
            return func(*args, **(kwargs or {}))

    (case,) = planned(
        variants="relu", d_model=64, d_ff=128, seq_len=512, device="cpu"
    ).shown
    calls = BareCalls(min_sample_s=1e-9)
    calls.times(case)  # fills the buffer
    elements.clear()
    with Copies():
        calls.times(case)
    assert {*elements} == {2 * 64 * 128 + 2 * 512 * 64}


def test_real_products_and_copies_grow_with_the_width_of_their_row(
    in_process, tmp_path: Path
) -> None:
    """32 times as wide: 32 times the products and nearly as many bytes. The limits are
    wide, since other work may slow any call down a few times.
    """
    path = tmp_path / "run.json"
    code, _, err = in_process(
        *[
            "compare",
            "relu@d_ff=64,wide=relu@d_ff=2048",
            "--d-model",
            "256",
            "--seq-len",
            "64",
            "--mode",
            "train",
        ],
        *f"--threads 1 --metrics latency,rate --workers 3 --rounds 2 -o {path}".split(),
    )
    assert code == 0, err
    samples = defaultdict(list)
    for sample in json.loads(path.read_text())["samples"]:
        samples[sample["case"], sample["metric"]].append(sample["value"])
    fastest = {key: min(values) for key, values in samples.items()}
    narrow = next(label for label, _ in fastest if label != "wide")
    for metric in ("products_s", "copy_s"):
        assert 4 < fastest["wide", metric] / fastest[narrow, metric] < 256
    assert 0.1 < fastest["wide", "products_s"] / fastest["wide", "latency"] < 10
