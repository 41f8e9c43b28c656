"""`block`: the plan of an FFN beside attention, its tables and files, on workers from a
script.
"""

from __future__ import annotations

import csv
import io
import json

import numpy as np
import pytest
from fake_machine import FakeLaunch, measure, planned, prepare
from shell import ffnbench

from ffnbench.app import commands
from ffnbench.app import main as cli
from ffnbench.block.picture import block_figure
from ffnbench.block.rows import block_records
from ffnbench.common.errors import FfnbenchError
from ffnbench.ffn.attention_module import build_attention
from ffnbench.ffn.spec import AttentionSpec
from ffnbench.record.result import Verdict
from ffnbench.report.shown_report import ShownReport
from ffnbench.run.resources import memory_needed, too_large

GIB = 2**30


def seconds(label: str, worker: int, number: int) -> float:
    """The FFN costs a millisecond a token, attention half of it at first and twice as
    much at 1024; a little noise.
    """
    name, _, tokens = label.partition("@seq_len=")
    share = {"ffn": 1.0, "attention": int(tokens) / 512, "textbook": int(tokens) / 256}[
        name.partition("-")[0]
    ]
    return (
        1e-3
        * int(tokens)
        * share
        * (1 + 0.002 * (len(label) * (worker + 1) * (worker + number + 3) % 11))
    )


def measured(**flags: object) -> ShownReport:
    prepared = prepare(quick=True, command=commands.block, **flags)
    return measure(prepared, launch=FakeLaunch(seconds))


def run(capsys, *arguments: str) -> str:
    assert cli.run_command_line(["block", *arguments]) == 0
    return capsys.readouterr().out


def test_the_picture_crosses_where_attention_overtakes(capsys, tmp_path) -> None:
    """Curves are the closed forms of `--seq-len`, dots the measured shares, and every
    format is written.
    """
    report = measured(seq_len="128,1024", preset="bert-base")
    counts, shares = block_figure(report).axes
    lines = {line.get_label(): line for line in counts.lines}
    x, attention = lines["attention"].get_data()
    ffn = lines["FFN"].get_ydata()[0]
    assert np.interp(ffn, attention, x) == pytest.approx(1536, rel=0.01)
    assert "attention overtakes at 1,537" in counts.get_title(loc="left")
    for row in block_records(report):
        assert np.interp(row["seq_len"], x, attention) == pytest.approx(
            row["flops_attention"], rel=0.001
        )
    dots = [float(bar.lines[0].get_ydata()[0]) for bar in shares.containers]
    found = [row["ffn_share_latency"] for row in block_records(report)]
    assert dots == pytest.approx(found)
    run(
        capsys,
        "--preset",
        "bert-base",
        "--cost-only",
        *(f"-o{tmp_path}/b{s}" for s in (".png", ".svg", ".pdf")),
    )
    starts = [
        (tmp_path / f"b{suffix}").read_bytes()[:4]
        for suffix in (".png", ".svg", ".pdf")
    ]
    assert starts == [b"\x89PNG", b"<?xm", b"%PDF"]


def mean_of(
    sums: list[tuple[int, int]], ffn: int, projections: int, per_pair: int
) -> float:
    """The FFN's share where so many layers see so many pairs of a sequence of
    32,768.
    """
    layers = sum(n for n, _ in sums)
    return ffn / (
        ffn
        + projections
        + per_pair * sum(n * seen for n, seen in sums) / layers / 32768
    )


def test_windows_are_counted_by_kind_of_layer_and_in_the_mean() -> None:
    """Sums over the positions of 32,768 tokens; the models are Mistral 7B v0.1 and
    gpt-oss-120b.
    """
    (mistral,) = counted("mistral-7b")
    windowed = {w: sum(min(i + 1, w) for i in range(32768)) for w in (128, 4096, 32768)}
    share = mean_of(
        [(32, windowed[4096])], 6 * 4096 * 14336, 4 * 4096 * 5120, 4 * 32 * 128
    )
    assert (
        mistral["ffn_share_flops"]
        == pytest.approx(share)
        == pytest.approx(0.706, abs=5e-4)
    )
    assert mistral["kv_bytes"] == 32 * 2**20
    full, sliding, mean = counted("gpt-oss-120b")
    assert [row["layers"] for row in (full, sliding, mean)] == [18, 18, 36]
    assert [row["kv_bytes"] for row in (full, sliding)] == [2**27, 2**19]
    of_ffn = 2 * 4 * 3 * 2880**2 + 2 * 128 * 2880
    share = mean_of(
        [(18, windowed[128]), (18, windowed[32768])],
        of_ffn,
        4 * 2880 * 4608,
        4 * 64 * 64,
    )
    assert (
        mean["ffn_share_flops"]
        == pytest.approx(share, rel=1e-6)
        == pytest.approx(0.515, abs=5e-4)
    )
    assert (mean["sees"], mean["kv_bytes"], mean["attention_ratio"]) == (
        "mean",
        (2**27 + 2**19) // 2,
        None,
    )


def counted(name: str) -> list[dict]:
    return block_records(
        prepare(seq_len="32768", preset=name, command=commands.block).cost_report()
    )


def test_keys_and_values_are_those_of_all_sequences_of_a_batch() -> None:
    """Two of 64 floats a token: 16 tokens of each of 3 sequences."""
    [row] = block_records(
        prepare(d_model=64, seq_len="16", batch=3, command=commands.block).cost_report()
    )
    assert (row["kv_bytes_per_token"], row["kv_bytes"]) == (
        2 * 64 * 4,
        2 * 64 * 4 * 16 * 3,
    )


def test_other_attention_is_said_not_to_be_counted(capsys, tmp_path) -> None:
    said = "linear attention is not counted: 6 of its 8 layers have it"
    path = tmp_path / "config.json"
    path.write_text(json.dumps({
        "model_type": "qwen3_next", "num_hidden_layers": 8, "hidden_size": 256, "hidden_act": "silu",
        "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 64,
        "shared_expert_intermediate_size": 64,
    }))  # fmt: skip
    with pytest.raises(FfnbenchError, match=said):
        cli.run_command_line(["block", "--preset", str(path), "--cost-only"])
    heads = ("--heads", "4")
    assert said in " ".join(
        run(capsys, "--preset", str(path), "--cost-only", *heads).split()
    )


def test_measured_shares_follow_from_the_ratio() -> None:
    report = measured(variant="swiglu", d_model=64, seq_len="256,1024")
    short, long = block_records(report)
    assert short["attention_ratio"] == pytest.approx(0.5, rel=0.01)
    assert short["ffn_share_latency"] == pytest.approx(
        1 / (1 + short["attention_ratio"])
    )
    assert (
        short["ffn_share_latency_low"]
        < short["ffn_share_latency"]
        < short["ffn_share_latency_high"]
    )
    assert long["ffn_share_latency"] == pytest.approx(1 / 3, rel=0.01)
    assert report.comparison("attention@seq_len=256").verdict is Verdict.FASTER
    assert report.comparison("textbook@seq_len=1024").reference == "ffn@seq_len=1024"
    assert report.comparison("ffn@seq_len=1024").verdict is Verdict.REFERENCE
    assert "attention overtakes the FFN between 256 and 1,024 tokens" in repr(report)


def test_memory_is_known_before_the_start() -> None:
    def failed(available: int | None, **asked: object) -> list[str]:
        plan = planned(**asked, device="cpu", command=commands.block)
        return [f.case for f in too_large(plan, {"cpu": available})]

    long = dict(seq_len="2048,8192", preset="llama3-8b")
    assert failed(20 * GIB, seq_len="2048", preset="llama3-8b") == []
    assert failed(20 * GIB, **long) == ["textbook@seq_len=8192"]
    assert failed(20 * GIB, preset="deepseek-v3")[0] == "ffn"
    assert failed(None, **long) == []


@pytest.mark.parametrize("mode", ["forward", "train"])
def test_the_memory_told_is_no_less_than_the_memory_used(mode: str) -> None:
    from ffnbench.worker import peak_memory
    from ffnbench.worker import subject as subjects

    plan = planned(
        d_model=128,
        kv_heads=1,
        seq_len="384",
        mode=mode,
        device="cpu",
        threads=1,
        command=commands.block,
    )
    for case in plan.cases[1:]:
        assert isinstance(case.ffn, AttentionSpec)
        subject = subjects.subject_of(build_attention(case.ffn), case.workload, 128, 0)
        subject.call()
        weights = 4 * case.ffn.params
        inputs = 2 * 4 * 384 * 128
        used = weights + inputs + peak_memory.peak_bytes(subject)
        assert used <= memory_needed([case]) <= 4 * used


@pytest.mark.slow
def test_a_real_run_measures_checks_and_compares() -> None:
    done = ffnbench(
        "block", "--d-model", "32", "--heads", "4", "--kv-heads", "2", "--seq-len", "16", "--mode", "train",
        "--workers", "3", "--rounds", "2", "--threads", "1", "-q", "--format", "csv",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    for row in csv.DictReader(io.StringIO(done.stdout)):
        share = row.get("ffn_share_latency")  # none on a busy machine
        assert not share or 0 < float(share) < 1
        assert int(row["textbook_peak_bytes"]) > 0
