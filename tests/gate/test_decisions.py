"""What a check decides: a table of saved runs that differ from their baseline in one
thing, and properties of the decision.

`pytest tests/gate --regenerate` writes tests/golden/decisions.txt anew.
"""

from __future__ import annotations

import csv
import io
import math
import random
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from gate_world import edited, machine, measured, saved
from hypothesis import given, settings
from hypothesis import strategies as st
from made_up_runs import plan_of, run_of, with_control
from paths import ROOT

import ffnbench
from ffnbench.gate.decision import Evidence, Policy, Status, decide, latency_findings
from ffnbench.gate.interim import latency_report
from ffnbench.plan.plan import CONTROL

GOLDEN = ROOT / "tests" / "golden" / "decisions.txt"
Edit = Callable[[dict[str, Any]], object]


def without_samples(case: str) -> Edit:
    def edit(run: dict[str, Any]) -> None:
        run["samples"] = [s for s in run["samples"] if s["case"] != case]

    return edit


def of_workers(count: int, *cases: str) -> Edit:
    """So many processes of these cases, and all of the others."""

    def edit(run: dict[str, Any]) -> None:
        run["samples"] = [
            s for s in run["samples"] if s["worker"] < count or s["case"] not in cases
        ]

    return edit


def waiting(share: float) -> Edit:
    """This share of the samples waited for a CPU."""
    dice = random.Random(3)

    def edit(run: dict[str, Any]) -> None:
        for sample in run["samples"]:
            sample["waited"] = 0.6 if dice.random() < share else 0.01

    return edit


def fed(case: str, **workload: object) -> Edit:
    """The workload of a case, "" for all."""

    def edit(run: dict[str, Any]) -> None:
        for each in run["plan"]["cases"]:
            if case in ("", each["name"]):
                each["workload"].update(workload)

    return edit


def on(**environment: str) -> Edit:
    return lambda run: run["environment"].update(environment)


def failed(case: str, kind: str) -> Edit:
    def edit(run: dict[str, Any]) -> None:
        without_samples(case)(run)
        failure = {"case": case, "kind": kind, "message": f"{case} said no"}
        run["failures"] = [failure]

    return edit


def wrong(case: str) -> Edit:
    failure = {"case": case, "kind": "mismatch", "message": f"{case} is wrong"}
    return lambda run: run.update(failures=[failure])


def counted(case: str, metric: str, factor: float) -> Edit:
    def edit(run: dict[str, Any]) -> None:
        [cost] = [each["cost"] for each in run["costs"] if each["case"] == case]
        cost[metric] = int(factor * cost[metric])

    return edit


def bytes_of(case: str, factor: float) -> Edit:
    def edit(run: dict[str, Any]) -> None:
        for sample in run["samples"]:
            if (sample["case"], sample["metric"]) == (case, "peak_bytes"):
                sample["value"] *= factor

    return edit


def as_counted(run: dict[str, Any]) -> None:
    """Each measured peak is that of the closed form, as on real machines."""
    peaks = {each["case"]: each["cost"]["peak_bytes"] for each in run["costs"]}
    for sample in run["samples"]:
        if sample["metric"] == "peak_bytes":
            sample["value"] = peaks[sample["case"]]


def both(first: Edit, second: Edit) -> Edit:
    return lambda run: (first(run), second(run))


def wider(run: dict[str, Any]) -> None:
    [case] = [each for each in run["plan"]["cases"] if each["name"] == "gelu"]
    case["ffn"]["d_ff"] += 8


def renamed(run: dict[str, Any]) -> None:
    for entry in (*run["samples"], *run["costs"], *run["measured"]):
        entry["case"] = {"gelu": "mish"}.get(entry["case"], entry["case"])
    for case in run["plan"]["cases"]:
        case["name"] = {"gelu": "mish"}.get(case["name"], case["name"])


def other_reference(run: dict[str, Any]) -> None:
    cases = run["plan"]["cases"]
    cases[:2] = reversed(cases[:2])


def before_its_bytes(run: dict[str, Any]) -> None:
    times = [sample for sample in run["samples"] if sample["metric"] == "latency"]
    run.update(interrupted=True, measured=[], samples=times)


EDITS: dict[str, Edit] = {
    "nothing differs": lambda run: None,
    "no samples of a row": without_samples("gelu"),
    "no samples of the reference": without_samples("relu"),
    "one process": of_workers(1, "relu", "gelu", "swiglu"),
    "four processes of a row": of_workers(4, "gelu"),
    "a third waited": waiting(0.3),
    "everything waited": waiting(1.0),
    "a row is fed otherwise": fed("gelu", seq_len=7),
    "the reference is fed otherwise": fed("relu", cache="cold"),
    "all rows are fed otherwise": fed("", mode="train"),
    "times are the device's": fed("", time="device"),
    "products at another precision": fed("", matmul_precision="medium"),
    "frozen weights": fed("gelu", backend="compile", freeze=True),
    "a row on another backend": fed("gelu", backend="compile"),
    "other threads": fed("", threads=3),
    "another CPU": on(cpu="other"),
    "other instructions": on(cpu_capability="other"),
    "another GPU": on(gpu="other"),
    "a row crashed": failed("gelu", "crash"),
    "the reference crashed": failed("relu", "crash"),
    "a row is not supported": failed("gelu", "unsupported"),
    "a row is wrong": wrong("gelu"),
    "the reference is wrong": wrong("relu"),
    "more parameters": counted("gelu", "params", 1.5),
    "fewer parameters": counted("gelu", "params", 0.5),
    "FLOPs within 1 %": counted("gelu", "flops_forward", 0.991),
    "more bytes": bytes_of("gelu", 2.0),
    "fewer bytes": bytes_of("gelu", 0.5),
    "fewer bytes for less work": both(bytes_of("gelu", 0.5), fed("gelu", seq_len=7)),
    "another network": wider,
    "another row": renamed,
    "another reference": other_reference,
    "interrupted": lambda run: run.update(interrupted=True),
    "interrupted before its bytes": before_its_bytes,
    "stopped": lambda run: run.update(stopped="the machine went away"),
}


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """base.json, and in run.json the same where swiglu takes a fifth longer."""
    monkeypatch.chdir(tmp_path)
    effort = {"metrics": "latency,memory", "workers": 8, "rounds": 5}
    slower = machine({"swiglu": 1.2}, seed=5)
    for name, launch in (("base.json", None), ("run.json", slower)):
        edited(saved(Path(name), measured(launch, **effort)), as_counted)


def decided(on_fakes, *words: str) -> list[str]:
    """The exit code, the error, and every row that is not OK."""
    code, _, err = on_fakes("check", *words, "-q -o found.csv")
    lines = [f"  exit {code}"]
    lines += [f"  {line}" for line in err.splitlines() if line.startswith("error")]
    if code != 2:
        text = Path("found.csv").read_text()
        for row in csv.DictReader(io.StringIO(text)):
            if row["status"] != "OK":
                parts = (row["case"], row["metric"], row["status"], row["reason"])
                lines.append("  " + " ".join(filter(None, parts)))
    return lines


def test_what_follows_from_each_difference(
    runs, on_fakes, request: pytest.FixtureRequest
) -> None:
    """The run differs from its baseline, and then the baseline does."""
    lines = []
    whole = {name: Path(name).read_text() for name in ("base.json", "run.json")}
    for name, edit in EDITS.items():
        for path, words in (
            ("run.json", "--tolerance flops_forward=1%"),
            ("run.json", "--exact-only"),
            ("base.json", "--on-unclear fail"),
        ):
            edited(Path(path), edit)
            lines.append(f"{name}, of {path}: {words}")
            lines += decided(on_fakes, "base.json", "run.json", words)
            Path(path).write_text(whole[path])
    text = "\n".join(lines) + "\n"
    if request.config.getoption("--regenerate"):
        GOLDEN.write_text(text)
    assert text == GOLDEN.read_text()


TOLERANCES = ("0.5%", "2%", "8%", "19%", "25%", "100%")


@settings(max_examples=25)
@given(
    factor=st.sampled_from((0.8, 0.99, 1.0, 1.03, 1.2)),
    scatter=st.sampled_from((0.0005, 0.005, 0.05)),
    seed=st.integers(0, 9),
)
def test_a_larger_tolerance_never_decides_more_strictly(
    tmp_path_factory: pytest.TempPathFactory, factor: float, scatter: float, seed: int
) -> None:
    """From regressed by can't tell to passed; what passed is a gain or is none,
    whatever the tolerance is.
    """
    folder = tmp_path_factory.mktemp("check")
    effort = {"variants": "relu,swiglu", "workers": 5, "rounds": 3}
    base = saved(folder / "base.json", measured(**effort))
    slower = machine({"swiglu": factor}, scatter, seed)
    run = saved(folder / "run.json", measured(slower, **effort))
    ranks = []
    for tolerance in TOLERANCES:
        found = ffnbench.check(base, run, tolerance=tolerance)
        [row] = [row for row in found.findings if row.metric == "latency"]
        assert row.change.low <= row.change.value <= row.change.high
        ranks.append(["REGRESSED", "UNCLEAR", "OK", "IMPROVED"].index(row.status))
    assert all(before <= after for before, after in pairwise(ranks))
    assert (max(ranks) == 3) == (row.change.high < 1)


@given(
    low=st.floats(-0.5, 2.0),
    width=st.floats(0.0, 1.0),
    tolerance=st.floats(0.0, 1.0),
    gains=st.booleans(),
)
def test_a_decision_by_hand(
    low: float, width: float, tolerance: float, gains: bool
) -> None:
    """What docs/ci.md says, in other words: all of the interval is beyond the limit, a
    part of it, or nothing.
    """
    high = low + width
    row = Evidence(low=low, high=high, tolerance=tolerance, gains=gains)
    status, _ = decide(row)
    is_beyond = [end > tolerance for end in (low, high)]
    if any(is_beyond):
        assert status is (Status.REGRESSED if all(is_beyond) else Status.UNCLEAR)
    elif gains:
        assert status is (Status.IMPROVED if high < 0 else Status.OK)
    else:
        assert status is (Status.REGRESSED if high < -tolerance else Status.OK)


@given(
    seed=st.integers(0, 99),
    times=st.floats(0.8, 1.3),
    control=st.sampled_from((1.0, 1.01, 1.04)),
    scatter=st.sampled_from((0.0005, 0.01)),
)
def test_the_status_is_what_the_interval_that_is_shown_says(
    seed: int, times: float, control: float, scatter: float
) -> None:
    """Also where the reference differs from itself: both ends have moved out by what it
    may.
    """
    dice = random.Random(seed)
    truth = {"a": 1.0, "b": times, CONTROL: control}
    values = {
        name: [[seconds * math.exp(dice.gauss(0, scatter))] * 3 for _ in range(8)]
        for name, seconds in truth.items()
    }
    plan = with_control(plan_of("a=relu,b=relu", workers=8, rounds=3))
    run = latency_report(run_of(plan, values))
    [row] = latency_findings(run, Policy())
    low, high = row.change.low - 1, row.change.high - 1
    if row.status is Status.REGRESSED:
        assert low > row.tolerance
    elif row.status is Status.UNCLEAR:
        assert low <= row.tolerance < high
    else:
        assert high <= row.tolerance
        assert (row.status is Status.IMPROVED) == (high < 0)
    if control == 1.04 and scatter == 0.0005:
        assert row.change.high / row.change.value > 1.04
