"""What a gate decides: every status, every exit code, and how often it is wrong on
simulated machines.
"""

from __future__ import annotations

import itertools
import math
import re
import xml.etree.ElementTree as xml
from pathlib import Path

import pytest
from fake_machine import FakeLaunch, KnownProber, prepare
from gate_world import edited, machine, measured, saved

from ffnbench.common.errors import FfnbenchError, Unsupported
from ffnbench.ffn.cost import Cost
from ffnbench.ffn.spec import ImportedSpec
from ffnbench.gate import checking
from ffnbench.gate.decision import (
    Checked,
    Finding,
    Policy,
    Status,
    exact_findings,
    exit_code,
    parse_tolerances,
    status_of,
)
from ffnbench.plan import Workload
from ffnbench.request import CheckRequest, CompareRequest
from ffnbench.run.world import World

ALL = ("relu", "gelu", "swiglu", "(control)")


@pytest.fixture
def baseline(tmp_path: Path) -> Path:
    return saved(tmp_path / "baseline.json")


@pytest.fixture
def call(on_fakes):
    """`ffnbench check`; gives exit code, stdout in one line, stderr."""

    def run(
        *arguments: object, launch: FakeLaunch | None = None
    ) -> tuple[int, str, str]:
        return on_fakes("check", *arguments, launch=launch or machine(seed=1))

    return run


@pytest.mark.parametrize(
    ("low", "high", "status"),
    [
        (0.90, 0.99, Status.IMPROVED), (0.99, 1.049, Status.OK), (1.001, 1.05, Status.OK), (0.5, 2.0, Status.UNCLEAR),
        (1.05, 1.07, Status.UNCLEAR), (1.051, 1.20, Status.REGRESSED),
    ],
)  # fmt: skip
def test_the_gate_is_decided_by_the_interval(
    low: float, high: float, status: Status
) -> None:
    assert status_of(low, high, 0.05) is status


@pytest.mark.parametrize(
    ("statuses", "unclear_fails", "code"),
    [
        ({Status.OK}, True, 0), ({Status.IMPROVED, Status.NEW}, True, 0), ({Status.REGRESSED}, False, 1),
        ({Status.REGRESSED, Status.MISSING, Status.UNCLEAR}, True, 1), ({Status.MISSING, Status.OK}, False, 3),
        ({Status.UNCLEAR}, False, 0), ({Status.UNCLEAR}, True, 4), ({Status.INCOMPARABLE}, False, 0),
        ({Status.INCOMPARABLE}, True, 4), (set(), True, 0),
    ],
)  # fmt: skip
def test_every_exit_code(statuses: set[Status], unclear_fails: bool, code: int) -> None:
    findings = tuple(
        Finding(case="a", metric="latency", status=status, tolerance=0.05)
        for status in statuses
    )
    run = measured()
    checked = Checked(findings=findings, before=run, now=run)
    assert exit_code(checked, unclear_fails=unclear_fails) == code


def test_tolerances() -> None:
    policy = Policy(
        tolerances=parse_tolerances(
            ["latency=3%", "mine.py:act:latency=8%", "params=1%"], ["mine.py:act"]
        )
    )
    assert policy.of("swiglu", "latency") == 0.03
    assert policy.of("mine.py:act", "latency") == 0.08
    assert (policy.of("swiglu", "params"), policy.of("swiglu", "peak_bytes")) == (
        0.01,
        0.0,
    )
    assert Policy().of("swiglu", "latency") == 0.05
    assert parse_tolerances(["0.5%", "params=0"], []) == (
        ("", "latency", 0.005),
        ("", "params", 0.0),
    )


def test_a_tolerance_of_one_row_counts_before_that_of_its_group() -> None:
    labels = [f"swiglu@seq_len={tokens}" for tokens in (1, 2)]
    for texts in (
        ("swiglu:latency=3%", f"{labels[0]}:latency=8%"),
        (f"{labels[0]}:latency=8%", "swiglu:latency=3%"),
    ):
        policy = Policy(tolerances=parse_tolerances(texts, labels))
        assert [policy.of(label, "latency") for label in labels] == [0.08, 0.03]


def test_less_for_less_work_is_no_gain() -> None:
    before, now = (
        prepare(
            CompareRequest(variants="relu", d_model=64, seq_len=tokens, device="cpu")
        ).cost_report()
        for tokens in (16, 8)
    )
    statuses = {
        found.metric: found.status for found in exact_findings(before, now, Policy())
    }
    assert (statuses["params"], statuses["peak_bytes"]) == (Status.OK, Status.REGRESSED)


@pytest.mark.parametrize("what", ["cpu", "cpu_capability", "gpu"])
def test_times_of_another_kind_of_machine_are_not_compared(
    call, baseline: Path, what: str
) -> None:
    code, out, _ = call(
        edited(baseline, lambda data: data["environment"].update({what: "other"}))
    )
    assert (code, "swiglu latency INCOMPARABLE" in out) == (0, True), out


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("latency", "cannot read the tolerance"),
        ("latncy=5%", "no metric is called 'latncy'"),
        ("swigul:latency=5%", "no case 'swigul'"),
        ("latency=much", "'much' is not a percentage"),
        ("latency=-5%", "must be above zero"),
        ("latency=0%", "must be above zero"),
        ("latency=8", "'8' could mean 8% or 800%"),
        ("latency=0.05", "'0.05' could mean 0.05% or 5%"),
        ("5", "'5' could mean 5% or 500%"),
        ("latency=nan", "must be above zero"),
        ("spec=5%", "no metric is called 'spec'"),
    ],
)
def test_tolerances_that_are_none(text: str, says: str) -> None:
    with pytest.raises(FfnbenchError, match=says):
        parse_tolerances([text], ["swiglu"])


# what a machine does with the cases, flags, the exit code, and what the table says
CHECKS = {
    "unchanged code": (
        {},
        "",
        0,
        [
            "swiglu latency OK",
            "exact rows are equal",
            "OK excludes slowdowns above 5.0%",
        ],
    ),
    "a slower row": (
        {"swiglu": 1.2},
        "",
        1,
        ["swiglu latency REGRESSED", " gelu latency OK"],
    ),
    "a faster row": ({"swiglu": 0.8}, "", 0, ["swiglu latency IMPROVED"]),
    "a slower machine": (dict.fromkeys(ALL, 3.0), "", 0, ["swiglu latency OK"]),
    "a slower reference": (
        {"relu": 1.3, "(control)": 1.3},
        "",
        0,
        ["every row improved: has relu, the reference, bec"],
    ),
    "a reference unlike itself": (
        {"swiglu": 1.2, "(control)": 1.2},
        "--budget 5",
        0,
        ["swiglu latency can't tell"],
    ),
}


@pytest.mark.parametrize(
    ("factors", "flags", "code", "says"), CHECKS.values(), ids=CHECKS
)
def test_what_a_check_says(
    call, baseline: Path, factors, flags: str, code: int, says: list[str]
) -> None:
    ended, out, err = call(
        *filter(None, (baseline, flags)), launch=machine(factors, seed=2)
    )
    assert ended == code, out + err
    assert [text for text in says if text not in out] == []


@pytest.mark.parametrize(("flag", "code"), [("pass", 0), ("fail", 4)])
def test_a_budget_that_is_over_before_a_round_can_not_tell(
    call, baseline: Path, clock: list, flag: str, code: int
) -> None:
    ticks = itertools.count(step=3.0)
    clock[0] = lambda: next(ticks)
    ended, out, err = call(baseline, f"--budget 5 --on-unclear {flag}")
    assert (ended, "swiglu latency can't tell" in out) == (code, True), out
    assert "error:" not in err


def test_a_check_that_is_interrupted_before_its_first_sample_names_one_process(
    call, baseline: Path
) -> None:
    """The line of progress and the table's speak of the same one."""
    code, out, err = call(baseline, launch=interrupted_at_once())
    assert code == 130
    assert set(re.findall(r"process (\d+)", out + err)) == {"1"}


def interrupted_at_once() -> FakeLaunch:
    def seconds(label: str, worker: int, number: int) -> float:
        raise KeyboardInterrupt

    return FakeLaunch(seconds)


def test_a_failed_case_never_passes(call, baseline: Path) -> None:
    launch = machine()
    launch.trouble = {("open", "swiglu"): "crash"}
    code, out, _ = call(baseline, launch=launch)
    assert (code, "swiglu latency MISSING" in out, "swiglu said no" in out) == (
        3,
        True,
        True,
    )


@pytest.mark.parametrize(
    ("damage", "error"),
    [
        (
            lambda text: "case,metric\n",
            "hint: only JSON is read: `ffnbench compare relu swiglu -o run.json`",
        ),
        (
            lambda text: text.replace('"interrupted": false', '"interrupted": true'),
            "is incomplete and can't be a baseline",
        ),
        (
            lambda text: text.replace('"device": "cpu"', '"device": "cuda"'),
            "was asked for, but torch",
        ),
    ],
)
def test_a_baseline_that_is_none(call, baseline: Path, damage, error: str) -> None:
    baseline.write_text(damage(baseline.read_text()))
    code, out, err = call(baseline, "-q")
    assert (code, out) == (2, "")
    assert error in err
    assert err.splitlines()[-1].startswith("hint: ")


def test_what_ci_reads(
    on_machine, in_process, baseline: Path, tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", "summary.md")
    on_machine(machine({"swiglu": 1.2}))
    files = "-o junit.xml -o report.md"
    code, out, _ = in_process(
        "check", baseline, "-q", "--format", "github", *files.split()
    )
    assert code == 1
    stop, end, line = [line for line in out.splitlines() if line.startswith("::")]
    assert stop.removeprefix("::stop-commands::") == end.strip(
        ":"
    )  # the table between is no command
    assert line.startswith(
        "::error title=ffnbench REGRESSED::swiglu latency: REGRESSED, +2"
    )
    assert "%25" in line
    assert "| swiglu | latency | REGRESSED |" in (tmp_path / "summary.md").read_text()
    suite = xml.parse(tmp_path / "junit.xml").getroot()
    failed = [case for case in suite if case.find("failure") is not None]
    assert [(case.get("classname"), case.get("name")) for case in failed] == [
        ("ffnbench.swiglu", "latency")
    ]
    skipped = [case for case in suite if case.find("skipped") is not None]
    assert (suite.get("failures"), suite.get("skipped")) == ("1", str(len(skipped)))


def test_a_latency_then_and_now_is_its_ratio(call, baseline: Path) -> None:
    """On a machine where gelu takes 20 times as long as relu, and then 24 times."""
    path = saved(baseline, measured(machine({"gelu": 20.0}, scatter=0.0001)))
    out = call(path, launch=machine({"gelu": 24.0}, scatter=0.0001))[1]
    [line] = re.findall(r"gelu latency REGRESSED (?:\S+ ){4}(\S+) (\S+) ", out)
    assert [float(text) for text in line] == pytest.approx([20, 24], rel=0.01)


def test_a_saved_check_is_shown_again(
    call, on_fakes, baseline: Path, tmp_path: Path
) -> None:
    """As it was shown, whatever it ended with; a damaged one is an error."""
    path = tmp_path / "check.json"
    code, out, _ = call(baseline, "-o", path, launch=machine({"swiglu": 1.2}))
    assert (code, "swiglu latency REGRESSED" in out) == (1, True)
    assert on_fakes("report", path) == (0, out, "")
    for damage in ({"findings": [{"case": "relu"}]}, {"now": 3}, {"against": 3}):
        edited(path, lambda data, damage=damage: data.update(damage))
        code, _, err = on_fakes("report", path)
        assert (code, err.count("\n")) == (2, 2)
        assert "check.json" in err


def test_what_was_measured_is_not_written_over_by_what_is_found(
    call, baseline: Path, tmp_path: Path
) -> None:
    """A saved run stays; the answer of an earlier check is replaced."""
    other = saved(tmp_path / "other.json")
    before = other.read_text()
    code, _, err = call(baseline, "-o", other)
    assert (code, other.read_text()) == (2, before)
    assert "other.json' holds what was measured" in err
    for _ in range(2):
        assert call(baseline, "-o", tmp_path / "check.json")[0] == 0


def test_update_needs_a_whole_and_quiet_measurement(call, baseline: Path) -> None:
    """A baseline of another machine, beside other work, or with a case that fails, is
    kept.
    """
    before, failing, noisy = baseline.read_text(), machine(), machine({"swiglu": 1.3})
    failing.trouble, noisy.waited = {("open", "swiglu"): "crash"}, 0.7
    for launch, lacking in ((failing, "swiglu"), (noisy, "gelu, relu, swiglu")):
        code, out, err = call(baseline, "--update --budget 10", launch=launch)
        assert (code, "REGRESSED" in out, baseline.read_text()) == (3, False, before)
        assert (
            f"the baseline was not updated: nothing was measured for {lacking}" in err
        )
    before = edited(
        baseline, lambda data: data["environment"].update(cpu="Other CPU")
    ).read_text()
    assert (call(baseline, "--update")[0], baseline.read_text()) == (3, before)


def test_a_baseline_of_few_processes_is_refused_with_the_command_that_makes_a_better_one(
    call, tmp_path: Path
) -> None:
    """Three may agree by chance, however narrow their interval."""
    path = saved(
        tmp_path / "b.json", measured(machine(scatter=0.0001), workers=3, rounds=3)
    )
    code, out, err = call(path)
    assert (code, out) == (2, "")
    assert err.startswith(
        f"error: {str(path)!r} has 3 undisturbed processes, and a baseline needs 5: its luck would stay in every check"
    )
    hint = err.partition("hint: measure it again: ffnbench compare ")[2]
    assert "--workers 10" in hint
    assert "--rounds" not in hint
    assert call(path, "--exact-only")[0] == 0
    assert call(saved(path, measured(workers=5, rounds=3)))[0] == 0


def test_a_saved_run_is_held_against_the_baseline(
    call, baseline: Path, tmp_path: Path
) -> None:
    """A case that has gone never passes, a new one is told."""
    run, launch = tmp_path / "run.json", machine()
    assert (
        call(
            baseline,
            saved(run, measured(machine({"swiglu": 1.2}, seed=3), precision=0.5)),
            launch=launch,
        )[0]
        == 1
    )
    assert launch.log == []
    assert call(baseline, saved(run))[0] == 0
    code, out, _ = call(baseline, saved(run, variants="relu,swiglu,silu"))
    assert (code, "gelu spec MISSING" in out, "silu spec NEW" in out) == (3, True, True)
    code, out, _ = call(baseline, saved(run, variants="relu,gelu,swiglu=swiglu@d_ff=8"))
    assert (code, "swiglu spec REGRESSED" in out) == (1, True)
    noisy = measured(machine({"swiglu": 1.05}, scatter=0.05), precision=10.0)
    out = call(baseline, saved(run, noisy))[1]
    assert re.search(r": (gelu, )?swiglu: the interval crosses the limit", out)
    assert "--budget" not in out


def test_a_saved_run_that_was_interrupted_could_not_finish(
    call, in_process, baseline: Path, tmp_path: Path
) -> None:
    """130 is an interruption of this very command; a regression counts all the same."""
    cut = lambda data: data.update(interrupted=True)  # noqa: E731
    unchanged, slower = (
        saved(tmp_path / "a.json"),
        saved(tmp_path / "b.json", measured(machine({"swiglu": 1.5}))),
    )
    assert call(baseline, edited(slower, cut))[0] == 1
    before = baseline.read_text()
    longer = measured(
        machine({"swiglu": 1.5}), workers=5, rounds=3, metrics="latency,memory"
    )
    update = call(baseline, edited(saved(tmp_path / "c.json", longer), cut), "--update")
    assert "the baseline was not updated: this run is incomplete" in update[2]
    assert baseline.read_text() == before
    code, out, err = call(baseline, edited(unchanged, cut))
    assert (code, f"error: {str(unchanged)!r} was interrupted" in err) == (3, True)
    assert err.splitlines()[-1].startswith(
        "hint: measure it again: ffnbench compare relu,gelu,swiglu --d"
    )
    edited(
        unchanged,
        lambda data: data.update(
            measured=[m for m in data["measured"] if m["case"] != "swiglu"]
        ),
    )
    assert "swiglu peak_bytes MISSING" in call(baseline, unchanged, "--exact-only")[1]
    edited(unchanged, lambda data: data.update(samples=[], measured=[], comparisons=[]))
    code, out, err = in_process("report", unchanged)
    assert (
        code,
        out,
        "hint: measure it again: ffnbench compare relu,gelu,swiglu --d" in err,
    ) == (
        3,
        "",
        True,
    )


class Uncountable(KnownProber):
    """What is counted ends its process."""

    def count(self, spec: ImportedSpec, workload: Workload) -> Cost:
        raise Unsupported(f"{spec.target}: SystemExit: 0")


def test_a_row_that_can_not_be_counted_does_not_end_a_check(
    on_fakes, tmp_path: Path, monkeypatch
) -> None:
    """It has no numbers then and now; one that had some is missing."""
    monkeypatch.chdir(tmp_path)
    check = "check b.json --exact-only --trust mypkg.mlp:SwiGLU"
    for prober, is_missing in ((Uncountable, False), (KnownProber, True)):
        assert on_fakes(
            "cost relu,mypkg.mlp:SwiGLU --d-model 64 -o b.json", prober=prober
        )[0] == (3 if prober is Uncountable else 0)
        code, out, _ = on_fakes(check, prober=Uncountable)
        assert (code, "SwiGLU params MISSING" in out) == (3, is_missing), out


def test_a_gate_neither_cries_wolf_nor_sleeps(call, baseline: Path) -> None:
    """Ten checks each of unchanged code and of +8 % at a tolerance of 2 %, with workers
    of 0.4 % scatter.
    """

    def codes(factor: float) -> list[int]:
        launches = [machine({"swiglu": factor}, 0.004, seed) for seed in range(10)]
        return [
            call(baseline, "--tolerance latency=2%", launch=launch)[0]
            for launch in launches
        ]

    assert codes(1.0) == [0] * 10
    assert sum(code == 1 for code in codes(1.08)) >= 9


def test_what_a_check_could_have_seen_is_said_in_the_terms_of_its_verdicts(
    call, baseline: Path
) -> None:
    """By hand: OK excludes a slowdown of the tolerance; of an undecided row, the limit
    times half the interval.
    """
    request = CheckRequest(
        baseline=str(baseline), current=str(baseline), tolerance=("swiglu:latency=8%",)
    )
    passed = checking.check(request, World())
    assert (passed.smallest, passed.excluded) == (None, 0.08)
    assert "OK excludes slowdowns above 5.0%" in call(baseline, baseline)[1]
    tolerance = ("latency=1%", "swiglu:latency=1.2%")
    checked = checking.check(
        CheckRequest(
            baseline=str(baseline), current=str(baseline), tolerance=tolerance
        ),
        World(),
    )
    assert checked.excluded is None
    known = {f.case: f.change for f in checked.findings if f.metric == "latency"}
    halves = {
        case: math.exp((math.log(change.high) - math.log(change.low)) / 2)
        for case, change in known.items()
    }
    assert checked.smallest == pytest.approx(
        max(1.01 * halves["gelu"], 1.012 * halves["swiglu"]) - 1, rel=1e-9
    )
