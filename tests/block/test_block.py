"""`block`: the plan of variants in a stack of blocks, its figures, tables and files, on
workers from a script; and that the FFN's part is what a clock around each FFN says.
"""

from __future__ import annotations

import csv
import io
import json
import math
import random
from time import perf_counter

import pytest
import torch
from fake_machine import FakeLaunch, measure, planned, prepare
from shell import ffnbench
from torch import nn

from ffnbench.api import measuring
from ffnbench.app import commands
from ffnbench.app import main as cli
from ffnbench.block.picture import block_figure
from ffnbench.block.rows import block_rows
from ffnbench.common.errors import FfnbenchError
from ffnbench.ffn.stack_module import Block, Stack
from ffnbench.record.progress import Progress
from ffnbench.record.result import Verdict
from ffnbench.report.shown_report import ShownReport
from ffnbench.run.resources import memory_needed, too_large, with_fitting_layers
from ffnbench.run.world import World
from ffnbench.stats.interval import estimate_of_values
from ffnbench.worker.backends.building import build_case

GIB = 2**30
# microseconds of a block: without an FFN, and the FFNs
EMPTY, RELU, GELU = 400.0, 600.0, 900.0
LAYERS = 8


def seconds(label: str, worker: int, number: int) -> float:
    """In place gelu takes 1.5 times as long as relu, alone twice as long. Workers and
    rounds have speeds of their own, and each sample a little noise.
    """
    dice = random.Random(f"{worker}/{number}")
    speed = (1 + 0.1 * worker) * (1 + 0.2 * dice.random())
    noise = 1 + 0.004 * random.Random(f"{label}/{worker}/{number}").random()
    tokens = int(label.rpartition("@seq_len=")[2] if "seq_len" in label else 1)
    if label.startswith("(no FFN)"):
        us = LAYERS * EMPTY * tokens
    elif "alone" in label:
        us = {"relu": 300.0, "gelu": 600.0, "again": 300.0}[label.partition("@")[0]]
    else:
        ffn = {"relu": RELU, "gelu": GELU, "again": RELU}[label.partition("@")[0]]
        us = LAYERS * (EMPTY * tokens + ffn)
    return 1e-6 * us * speed * noise


def measured(**flags: object) -> ShownReport:
    flags = {"workers": 6, "rounds": 12, "d_model": 64, **flags}
    prepared = prepare(command=commands.block, **flags)
    return measure(prepared, launch=FakeLaunch(seconds))


def test_a_part_is_the_difference_of_two_stacks() -> None:
    report = measured(variants="relu,gelu,again=relu")
    relu, gelu, again = block_rows(report)
    for row, us in ((relu, RELU), (gelu, GELU), (again, RELU)):
        share = us / (us + EMPTY)
        assert row["ffn_share"] == pytest.approx(share, rel=0.01)
        assert row["ffn_share_low"] < share < row["ffn_share_high"]
        # what is shown agrees with itself, exactly
        assert row["ffn_s"] == pytest.approx(row["block_s"] * row["ffn_share"])
        assert row["ffn_ratio"] == pytest.approx(row["ffn_s"] / relu["ffn_s"])
        assert row["block_ratio"] == pytest.approx(row["block_s"] / relu["block_s"])
        assert row["ffn_low_s"] < row["ffn_s"] < row["ffn_high_s"]
    assert gelu["ffn_ratio_low"] < 1.5 < gelu["ffn_ratio_high"]
    # speeds of workers and rounds, which all cases share, are in no ratio
    assert gelu["ffn_ratio_high"] - gelu["ffn_ratio_low"] < 0.03
    assert gelu["alone_ratio"] == pytest.approx(2.0, rel=0.01)
    assert (gelu["alone_differs"], again["alone_differs"]) == (True, False)
    assert again["ffn_ratio_low"] < 1 < again["ffn_ratio_high"]
    assert "misleads: gelu has 1.5" in repr(report)


def test_intervals_of_parts_and_ratios_hold_as_often_as_they_say() -> None:
    """A machine whose samples scatter by 3 %, and whose workers by 1 %. The interval of
    a ratio is wider than that of a share, since all rows' hold together.
    """
    held = dict.fromkeys(("ffn_share", "ffn_ratio"), 0)
    runs = 60
    for run in range(runs):

        def scattered(label: str, worker: int, number: int, run: int = run) -> float:
            dice = random.Random(f"{run}/{label}/{worker}/{number}")
            shared = random.Random(f"{run}/{label}/{worker}")  # by a worker's layout
            steady = seconds(label, 0, 0) if "alone" in label else 1.0
            if "alone" not in label:
                ffn = {"(no FFN)": 0.0, "relu": RELU, "gelu": GELU}[label]
                steady = 1e-6 * LAYERS * (EMPTY + ffn)
            return steady * math.exp(dice.gauss(0, 0.03) + shared.gauss(0, 0.01))

        prepared = prepare(
            variants="relu,gelu",
            d_model=64,
            workers=6,
            rounds=6,
            command=commands.block,
        )
        report = measure(prepared, launch=FakeLaunch(scattered))
        gelu = block_rows(report)[1]
        truths = {"ffn_share": GELU / (GELU + EMPTY), "ffn_ratio": GELU / RELU}
        for key, truth in truths.items():
            held[key] += gelu[f"{key}_low"] <= truth <= gelu[f"{key}_high"]
    assert 0.88 * runs <= held["ffn_share"] < runs, held
    assert held["ffn_ratio"] >= 0.93 * runs, held


def test_the_groups_of_a_point_are_stacks_and_ffns_alone() -> None:
    report = measured(variants="relu,gelu", seq_len="1,2,4")
    plan = report.plan
    assert [case.row for case in plan.groups[1].cases] == [
        "relu", "gelu", "(no FFN)", "relu@place=alone", "gelu@place=alone",
    ]  # fmt: skip
    alone = report.comparison("gelu@place=alone@seq_len=2")
    assert alone.reference == "relu@place=alone@seq_len=2"
    assert report.comparison("gelu@seq_len=2").reference == "relu@seq_len=2"
    assert report.comparison("relu@place=alone@seq_len=1").verdict is Verdict.REFERENCE
    share, ratio = block_figure(report).axes
    assert [len(axes.containers) for axes in (share, ratio)] == [2, 2]


def test_a_crossing_is_one_of_stacks() -> None:
    """gelu becomes the faster one between 2 and 4 tokens, alone nowhere."""

    def crossing(label: str, worker: int, number: int) -> float:
        name, _, tokens = label.partition("@seq_len=")
        noise = 1 + 0.002 * random.Random(f"{label}/{worker}/{number}").random()
        faster = 1.2 - 0.1 * math.log2(int(tokens)) if name == "gelu" else 1.0
        return 0.01 * faster * noise * (0.4 if name == "(no FFN)" else 1.0)

    prepared = prepare(
        variants="relu,gelu", d_model=64, seq_len="1..32", workers=4, rounds=8,
        command=commands.block,
    )  # fmt: skip
    report = measure(prepared, launch=FakeLaunch(crossing))
    [place] = report.figures.crossings
    assert (place.variant, place.than, place.slower) == ("gelu", "relu", False)
    assert place.at.value == pytest.approx(4, rel=0.1)
    assert "gelu becomes faster than relu at seq_len" in repr(report)


def counted(name: str, **flags: object) -> list[dict]:
    report = prepare(preset=name, command=commands.block, **flags).cost_report()
    return block_rows(report)


def test_windows_are_counted_in_the_mean_of_all_layers() -> None:
    """Sums over the positions of 32,768 tokens; the models are Mistral 7B v0.1 and
    gpt-oss-120b.
    """
    [mistral] = counted("mistral-7b", seq_len="32768")
    sums = {w: sum(min(i + 1, w) for i in range(32768)) for w in (128, 4096, 32768)}

    def share(of_ffn: int, projections: int, per_pair: int, *windows: int) -> float:
        seen = sum(sums[window] for window in windows) / len(windows) / 32768
        return of_ffn / (of_ffn + projections + per_pair * seen)

    expected = share(6 * 4096 * 14336, 4 * 4096 * 5120, 4 * 32 * 128, 4096)
    assert mistral["ffn_share_flops"] == pytest.approx(expected)
    assert expected == pytest.approx(0.706, abs=5e-4)
    assert (mistral["kv_bytes"], mistral["layers"]) == (32 * 2**20, 32)
    [gpt] = counted("gpt-oss-120b", seq_len="32768")
    of_ffn = 2 * 4 * 3 * 2880**2 + 2 * 128 * 2880
    expected = share(of_ffn, 4 * 2880 * 4608, 4 * 64 * 64, 128, 32768)
    assert gpt["ffn_share_flops"] == pytest.approx(expected, rel=1e-6)
    assert expected == pytest.approx(0.515, abs=5e-4)
    assert gpt["kv_bytes"] == (2**27 + 2**19) // 2
    assert gpt["sees"] == "all in 18, the last 128 in 18"


def test_keys_and_values_are_those_of_all_sequences_of_a_batch() -> None:
    """Two of 64 floats a token: 16 tokens of each of 3 sequences."""
    asked = dict(variants="relu", d_model=64, seq_len="16", batch=3)
    [row] = block_rows(prepare(**asked, command=commands.block).cost_report())
    assert row["kv_bytes"] == 2 * 64 * 4 * 16 * 3


def test_other_attention_is_said_not_to_be_counted(capsys, tmp_path) -> None:
    said = "linear attention is not counted: 6 of its 8 layers have it"
    path = tmp_path / "config.json"
    path.write_text(json.dumps({
        "model_type": "qwen3_next", "num_hidden_layers": 8, "hidden_size": 256, "hidden_act": "silu",
        "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 64,
        "shared_expert_intermediate_size": 64,
    }))  # fmt: skip
    command = ["block", "--preset", str(path), "--cost-only"]
    with pytest.raises(FfnbenchError, match=said):
        cli.run_command_line(command)
    assert cli.run_command_line([*command, "--heads", "4"]) == 0
    assert said in " ".join(capsys.readouterr().out.split())


def test_memory_holds_fewer_layers_or_none(monkeypatch) -> None:
    """32 layers of Llama-3 8B have 26 GiB of float32 weights; what is said of fewer,
    before anything is measured.
    """

    def fitting(available: int, **asked: object) -> tuple[int | None, list[str]]:
        plan = planned(**asked, device="cpu", command=commands.block)
        plan, notes = with_fitting_layers(plan, available)
        assert not too_large(plan, {"cpu": available})
        assert memory_needed(plan.cases) <= available
        return plan.layers, notes

    asked = dict(seq_len="64", preset="llama3-8b")
    assert fitting(80 * GIB, **asked) == (32, [])
    layers, [note] = fitting(12 * GIB, **asked)
    assert 4 < layers < 16
    assert note.startswith(f"memory holds {layers} of 32 layers")
    monkeypatch.setattr(measuring, "usable_memory", lambda: 12 * GIB)
    told: list[str] = []
    progress = Progress(tell=told.append, tells=True)
    plan = planned(**asked, command=commands.block)
    measuring.tell_expense(plan, World(no_gpu=lambda: "none"), progress)
    assert told[0].startswith(f"{note}; stacks of {layers} blocks take ")
    assert fitting(12 * GIB, **asked, mode="train")[0] < layers
    with pytest.raises(FfnbenchError, match="one layer of these stacks needs"):
        fitting(GIB, **asked)


@pytest.mark.parametrize("mode", ["forward", "train"])
def test_the_memory_told_is_no_less_than_the_memory_used(mode: str) -> None:
    from ffnbench.worker import peak_memory
    from ffnbench.worker import subject as subjects

    plan = planned(
        variants="swiglu", d_model=128, kv_heads=1, seq_len="384", mode=mode,
        layers=3, device="cpu", threads=1, command=commands.block,
    )  # fmt: skip
    for case in plan.cases[:2]:
        module = build_case(case, 0)
        subject = subjects.subject_of(module, case.workload, 128, 0)
        subject.call()
        weights = sum(weight.nbytes for weight in module.parameters())
        inputs = 2 * 4 * 384 * 128
        used = weights + inputs + peak_memory.peak_bytes(subject)
        assert used <= memory_needed([case]) <= 4 * used


class Stamped(nn.Module):
    """Adds the seconds of an FFN to `seconds`."""

    def __init__(self, ffn: nn.Module) -> None:
        super().__init__()
        self.ffn, self.seconds = ffn, 0.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        start = perf_counter()
        y: torch.Tensor = self.ffn(x)
        self.seconds += perf_counter() - start
        return y


@pytest.mark.slow
@pytest.mark.parametrize("tokens", [1, 16, 64, 128])
@pytest.mark.parametrize("d_model", [256, 512, 768])
def test_a_difference_is_what_a_clock_around_each_ffn_says(
    d_model: int, tokens: int
) -> None:
    """A stack minus the one without FFNs; and of both with the same weights, by turns
    with these, the time inside the FFNs. Both have an interval over blocks of rounds.
    The difference also has what FFNs cost the rest of their blocks, whose data they
    evict: by clocks around the rest, mostly 2 to 5 % of the time inside (AMD EPYC).
    """
    asked = dict(variants="swiglu", d_model=d_model, seq_len=str(tokens), layers=4)
    plan = planned(**asked, device="cpu", command=commands.block)
    torch.set_num_threads(1)
    stacks = [build_case(case, 0).eval() for case in plan.cases[:2]]
    stamps = [[Stamped(block.ffn) for block in stack] for stack in stacks]
    for stack, stamped in zip(stacks[:2], stamps, strict=True):
        trunks = [block.trunk for block in stack]
        stacks.append(Stack(*map(Block, trunks, stamped)))
    x = torch.randn(1, tokens, d_model)
    differences, clocked = [], []
    dice = random.Random(0)
    with torch.inference_mode():
        for _ in range(16):
            total = [0.0] * 4
            for ffn in (*stamps[0], *stamps[1]):
                ffn.seconds = 0.0
            for _ in range(5):
                for number in dice.sample(range(4), 4):
                    start = perf_counter()
                    stacks[number](x)
                    total[number] += perf_counter() - start
            inside = [sum(ffn.seconds for ffn in stamped) for stamped in stamps]
            differences.append(total[0] - total[1])
            clocked.append(inside[0] - inside[1])
    here, there = (estimate_of_values(each[1:]) for each in (differences, clocked))
    assert there.low <= here.high, (here, there)
    assert 0.9 * here.low <= there.high, (here, there)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["forward", "train"])
def test_a_real_run_measures_checks_and_compares(mode: str) -> None:
    done = ffnbench(
        "block", "relu,swiglu", "--d-model", "32", "--heads", "4", "--kv-heads", "2", "--seq-len", "16",
        "--mode", mode, "--layers", "2", "--workers", "3", "--rounds", "2", "--threads", "1", "-q", "--format", "csv",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    for row in csv.DictReader(io.StringIO(done.stdout)):
        assert row["layers"] == "2"
        assert not row.get("failure")
        assert bool(row.get("saved_bytes")) == (mode == "train")
