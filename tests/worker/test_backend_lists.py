"""Backends as they are asked for: keys, lists, what can't be, and how rows of several
read.
"""

from __future__ import annotations

import csv
import io
import math
import random
from dataclasses import replace

import pytest
from fake_machine import FakeLaunch, FakeWorker, KnownProber, measure, prepare
from frames import csv_of
from made_up_runs import run_of

from ffnbench.block.plan import plan_block
from ffnbench.choices import Backend
from ffnbench.compare.table import compare_frame
from ffnbench.ffn.spec import ActivationSpec, AttentionSpec, FFNSpec, Gate, ImportedSpec
from ffnbench.gate.decision import Policy, Status, exact_findings
from ffnbench.gate.interim import latency_report
from ffnbench.messages import (
    Check,
    Open,
    Values,
    WorkerRequest,
)
from ffnbench.metrics import COMPILE, ERROR, HELD, PACK
from ffnbench.plan import Plan, Workload
from ffnbench.planning.compare import plan_compare
from ffnbench.planning.workload import lack_in_one_line
from ffnbench.report.terminal import plain
from ffnbench.request import BlockRequest, CompareRequest
from ffnbench.result import Report, Verdict
from ffnbench.stats.fastest import Fastest, fastest
from ffnbench.stats.figures import with_figures

SWIGLU = FFNSpec(d_model=8, d_ff=16, activation="silu", gate=Gate.INNER)


def plan_of(variants: str = "relu,swiglu", **flags: object) -> Plan:
    return plan_compare(
        CompareRequest(variants=variants, **{"device": "cpu", "threads": 1} | flags),
        KnownProber(1.0),
    )


# What a backend lacks


def work(**changes: object) -> Workload:
    found = Workload(
        batch=1, seq_len=4, dtype="float32", device="cpu", mode="forward", threads=1
    )
    return replace(found, **changes)


def test_what_a_backend_lacks_is_known_without_a_machine() -> None:
    relu = FFNSpec(d_model=8, d_ff=16, activation="relu")
    grouped = plan_of("swiglu@moe=4x2@experts=grouped").cases[0].ffn
    attention = AttentionSpec(d_model=8, heads=2, kv_heads=2, head_dim=4)
    theirs = {"target": "a:B", "d_model": 8, "d_ff": 16}
    specs = {
        "swiglu": SWIGLU, "relu": relu, "output": replace(SWIGLU, gate=Gate.OUTPUT), "grouped": grouped,
        "attention": attention, "activation": ActivationSpec(activation="relu"),
        "own": ImportedSpec(**theirs), "own swiglu": ImportedSpec(**theirs, like=SWIGLU),
        "own relu": ImportedSpec(**theirs, like=relu),
    }  # fmt: skip

    def able(backend: str, **changes: object) -> set[str]:
        return {
            name
            for name, ffn in specs.items()
            if not lack_in_one_line(ffn, work(backend=Backend(backend), **changes))
        }

    everything = set(specs)
    assert able("eager", mode="train", dtype="float64", device="cuda") == everything
    assert able("compile", mode="train", dtype="float64", device="cuda") == everything
    assert able("compile", freeze=True) == everything
    assert able("compile", freeze=True, mode="backward") == set()
    assert (
        able("onednn")
        == able("onednn", device="auto")
        == everything - {"grouped", "activation"}
    )
    assert able("onednn", dtype="bfloat16") == everything - {"grouped", "activation"}
    for changes in (
        {"dtype": "float64"},
        {"dtype": "float16"},
        {"mode": "train"},
        {"device": "cuda:1"},
    ):
        assert able("onednn", **changes) == set()
    for backend in ("packed", "packed-up-gate"):
        assert able(backend, mode="train", device="cuda") == {
            "swiglu",
            "grouped",
            "own swiglu",
        }
    assert (
        lack_in_one_line(SWIGLU, work(backend=Backend.ONEDNN, device="cuda"))
        == "oneDNN runs on the CPU; use --device cpu"
    )


# Lists


@pytest.mark.parametrize(
    ("variants", "flags"), [("relu,swiglu", {}), ("swiglu,mypkg.mlp:Own", {"match": "flops"})]
)  # fmt: skip
def test_every_row_of_a_variant_is_as_wide_as_without_the_list(
    variants: str, flags: dict
) -> None:
    """Also the reference's twin: to be matched to itself would round what the reference
    is given.
    """
    alone = {case.label: case for case in plan_of(variants, **flags).cases}
    several = plan_of(variants, backend="eager,onednn,compile", **flags)
    assert len(several.cases) == 3 * len(alone)
    for case in several.cases:
        one = alone[case.label.partition("@backend=")[0]]
        assert (case.ffn, case.sizing, case.variant) == (
            one.ffn,
            one.sizing,
            one.variant,
        )
        twin = (
            one.label == several.reference != case.label
            and flags.get("match") != "none"
        )
        assert case.residual == (0.0 if twin else one.residual)


def test_what_can_not_be_is_a_row_of_a_list_with_its_reason() -> None:
    plan = plan_of("relu,swiglu", backend="packed,eager,onednn", mode="train")
    told = {note.label: note.text for note in plan.notes}
    assert told.keys() == {
        "relu@backend=packed",
        "relu@backend=onednn",
        "swiglu@backend=onednn",
    }
    assert "only an inner gate" in told["relu@backend=packed"]
    assert "no gradient" in told["swiglu@backend=onednn"]
    assert plan.reference == "relu"  # the first that can be run
    assert (
        plan.protocol.budget_s == plan_of("relu,swiglu,gelu").protocol.budget_s
    )  # of three rows, not of six
    counted = prepare(
        CompareRequest(variants="relu", backend="eager,packed", threads=1), counts=True
    ).cost_report()
    text = plain(compare_frame(counted))
    assert "only an inner gate" in " ".join(text.split())


def test_attention_is_measured_with_a_backend_that_can_run_it() -> None:
    request = BlockRequest(preset="llama3-8b", backend=Backend.ONEDNN, threads=1)
    backends = {case.workload.backend for case in plan_block(request).cases}
    assert backends == {"onednn"}


# Measured rows


class Packing(FakeWorker):
    """A worker whose backends take time once, and tell their error and their bytes."""

    def answer(self, request: WorkerRequest) -> object:
        if isinstance(request, Check):
            return Values(values={ERROR: 8.3e-7})
        answer = super().answer(request)
        if isinstance(request, Open):
            values = {HELD: 18_874_368}
            if "onednn" in request.label:
                values = {PACK: 0.03 + 0.001 * self.index, HELD: 2 * 18_874_368}
            if "compile" in request.label:
                values[COMPILE] = 2.0 + 0.1 * self.index
            answer = replace(answer, values=values)
        return answer


class Launch(FakeLaunch):
    def __call__(self, arm: object = None) -> FakeWorker:
        self.workers.append(Packing(self, len(self.workers)))
        return self.workers[-1]


def seconds(label: str, worker: int, number: int) -> float:
    named = next((b for b in ("onednn", "compile", "packed") if b in label), "eager")
    times = {"onednn": 4.2, "compile": 8.0, "packed": 9.0, "eager": 10.0}[named]
    return times * 1e-3 * (1 + 0.002 * math.sin(7 * worker + 3 * number + len(label)))


def measured(
    variants: str = "swiglu", launch: FakeLaunch | None = None, **flags: object
) -> Report:
    asked = CompareRequest(
        variants=variants,
        **{"workers": 5, "rounds": 6, "device": "cpu", "threads": 1} | flags,
    )
    return measure(prepare(asked), launch=launch or Launch(seconds))


def words_of(report: Report, width: int = 80) -> str:
    return " ".join(plain(compare_frame(report), width).split())


def test_each_row_tells_its_error_its_one_off_cost_and_its_bytes() -> None:
    report = measured(backend="eager,onednn,compile")
    rows = list(csv.DictReader(io.StringIO(csv_of(report))))
    eager, onednn, compiled = rows
    assert (
        eager["compile_mode"],
        eager["freeze"],
        eager["pack_s"],
        eager["held_bytes"],
    ) == ("", "", "", "18874368")
    assert (compiled["compile_mode"], compiled["freeze"], compiled["pack_s"]) == (
        "default",
        "false",
        "",
    )
    assert float(onednn["pack_s"]) == pytest.approx(0.032, rel=1e-3)
    assert (onednn["held_bytes"], onednn["error"], onednn["compile_s"]) == (
        "37748736",
        "8.3e-07",
        "",
    )
    packing = report.estimate("swiglu@backend=onednn", PACK)
    assert (packing.workers, packing.samples) == (5, 5)
    assert packing.low < packing.value < packing.high  # sampled in every worker
    assert [s.metric for s in report.samples].count(HELD) == 3  # once
    assert (
        float(compiled["compile_low_s"])
        < float(compiled["compile_s"])
        < float(compiled["compile_high_s"])
    )
    total = int(onednn["total_bytes"]) - int(eager["total_bytes"])
    assert total == 18_874_368  # of the weights that oneDNN has packed beside its own
    columns = [column.name for column in compare_frame(report).headings()]
    assert {"compile (s)", "pack (s)", "error", "weights (MiB)"} <= set(columns)
    assert [
        text for text in (" 8e-7 ", " 36.0 ") if text not in words_of(report, 200)
    ] == []


def test_a_check_tells_another_way_of_compiling_from_the_same() -> None:
    before = measured("a=swiglu@compile=default")
    for key in ("compile=max-autotune", "freeze=true@backend=compile"):
        now = measured(f"a=swiglu@{key}")
        spec = next(
            f for f in exact_findings(before, now, Policy()) if f.metric == "spec"
        )
        assert spec.status is Status.REGRESSED
        assert key.partition("=")[0] in spec.reason


# The fastest


def found_by(report: Report) -> Fastest:
    (one,) = fastest(report)
    return one


def test_rows_within_two_percent_are_the_same_and_others_can_not_be_told() -> None:
    def near(gap: float, noise: float) -> Launch:
        def at(label: str, worker: int, number: int) -> float:
            drawn = random.Random(f"{label} {worker}").gauss(0, noise)
            return (
                (10.0 if label == "swiglu" else 4.0 * (1 + gap * ("compile" in label)))
                * 1e-3
                * math.exp(drawn)
            )

        return Launch(at)

    same = measured(launch=near(0.005, 0.001), backend="eager,onednn,compile")
    assert found_by(same).verdict is Verdict.SAME
    assert "fastest of swiglu: onednn and compile (the same), 0.3998 [" in words_of(
        same, 200
    )
    unclear = measured(launch=near(0.0, 0.05), backend="eager,onednn,compile")
    assert found_by(unclear).verdict is Verdict.UNCLEAR
    assert "can't tell which is fastest of swiglu: " in words_of(unclear)
    busy = near(0.5, 0.001)
    busy.waited = 0.5
    assert (
        fastest(measured(launch=busy, backend="eager,onednn,compile")) == []
    )  # busy rows have no figure


def simulated(
    true: dict[str, float], seed: int, plan: Plan, scatter: float = 0.01
) -> Report:
    """Workers that each have their own luck with a case, rounds that have theirs."""
    dice, protocol = random.Random(seed), plan.protocol

    def rounds(log: float) -> list[float]:
        here = log + dice.gauss(0, scatter)
        return [
            1e-3 * math.exp(here + dice.gauss(0, 2 * scatter))
            for _ in range(protocol.rounds)
        ]

    values = {
        label: [rounds(log) for _ in range(protocol.workers)]
        for label, log in true.items()
    }
    return with_figures(latency_report(run_of(plan, values)))


def test_the_wrong_one_is_called_the_fastest_in_a_twentieth_at_worst() -> None:
    """Where the best are equal every claim is false. Worst are two of them far ahead:
    nothing else has to be beaten.
    """
    plan = plan_of("swiglu", backend="eager,packed,onednn", workers=4, rounds=20)
    true, runs = (
        dict(zip([case.label for case in plan.cases], (0.0, 0.0, 0.5), strict=True)),
        250,
    )
    claims = [found_by(simulated(true, seed, plan)) for seed in range(runs)]
    wrong = sum(claim.verdict is Verdict.FASTER for claim in claims)
    assert wrong <= 0.05 * runs + 2 * math.sqrt(0.05 * 0.95 * runs)


@pytest.mark.parametrize(
    ("backends", "verdict"),
    [("eager,onednn", Verdict.FASTER), ("all", Verdict.UNCLEAR)],
)
def test_chance_is_corrected_for_the_number_of_rows(
    backends: str, verdict: Verdict
) -> None:
    """Student's t of 3.9 with 3 degrees of freedom, p = 0.03: enough for one row, and
    not where four are as near.
    """
    plan = plan_of("swiglu", backend=backends, workers=4, rounds=6)
    ahead = [-0.05 + 0.03 * by for by in (1, -1, 0.3, -0.3)]
    rounds = {
        True: [[1e-3 * math.exp(log)] * 6 for log in ahead],
        False: [[1e-3] * 6] * 4,
    }
    values = {
        case.label: rounds[case.workload.backend == "onednn"] for case in plan.cases
    }
    report = with_figures(latency_report(run_of(plan, values)))
    assert found_by(report).verdict is verdict
