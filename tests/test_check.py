"""What a gate decides: every status, every exit code, and how often it is wrong on simulated machines."""

from __future__ import annotations

import json
import math
import random
import re
import sys
import xml.etree.ElementTree as xml
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import FakeLaunch

from ffnbench import api, cli
from ffnbench.errors import FfnbenchError
from ffnbench.gate.regression import (
    Finding,
    Policy,
    Status,
    exit_code,
    parse_tolerances,
    status_of,
)
from ffnbench.planning.compare import plan_compare
from ffnbench.report.files.exports import EXPORTS
from ffnbench.report.files.store import report_text
from ffnbench.request import CompareRequest

VARIANTS = "relu,gelu,swiglu"


def machine(factors: dict[str, float] | None = None, scatter: float = 0.002, seed: int = 0) -> FakeLaunch:
    """Workers whose cases take known multiples of 10 ms, with a little of everything."""
    dice = random.Random(seed)
    slow: dict[tuple[str, int], float] = {}

    def seconds(label: str, worker: int, number: int) -> float:
        layout = slow.setdefault((label, worker), dice.gauss(0, scatter))
        return 0.01 * (factors or {}).get(label, 1.0) * math.exp(layout + dice.gauss(0, scatter))

    return FakeLaunch(seconds)


def baseline_in(folder: Path, launch: FakeLaunch | None = None, **options: object) -> Path:
    request = CompareRequest(
        **{"variants": VARIANTS, "d_model": 64, "threads": 1, "precision": 0.5, "metrics": "latency", **options}
    )
    path = folder / "baseline.json"
    path.write_text(report_text(api.measure(api.prepare(request), launch=launch or machine())))
    return path


@pytest.fixture
def baseline(tmp_path: Path) -> Path:
    return baseline_in(tmp_path)


@pytest.fixture
def call(on_machine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """`ffnbench check` in this process, workers faked; gives exit code, stdout, stderr."""

    def run(*arguments: str, launch: FakeLaunch | None = None) -> tuple[int, str, str]:
        on_machine(launch or machine(seed=1))
        measured = len(arguments) < 2 or arguments[1].startswith("-")  # a saved run has no progress to be quiet about
        monkeypatch.setattr(sys, "argv", ["ffnbench", "check", *arguments, *["-q"] * measured])
        with pytest.raises(SystemExit) as caught:
            cli.main()
        out, err = capsys.readouterr()
        return caught.value.code or 0, out, err

    return run


@pytest.mark.parametrize(
    ("low", "high", "status"),
    [
        (1.051, 1.20, Status.REGRESSED), (0.99, 1.049, Status.OK), (0.90, 0.99, Status.IMPROVED),
        (1.04, 1.06, Status.UNCLEAR), (0.5, 2.0, Status.UNCLEAR), (1.001, 1.05, Status.OK),
        (1.05, 1.07, Status.UNCLEAR),
    ],
)  # fmt: skip
def test_the_gate_is_decided_by_the_interval(low: float, high: float, status: Status) -> None:
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
    findings = [Finding(case="a", metric="latency", status=status, tolerance=0.05) for status in statuses]
    assert exit_code(findings, unclear_fails=unclear_fails) == code


def test_tolerances() -> None:
    policy = Policy(tolerances=parse_tolerances(["latency=3%", "mine.py:act:latency=8%", "params=1%"], ["mine.py:act"]))
    assert policy.of("swiglu", "latency") == 0.03
    assert policy.of("mine.py:act", "latency") == 0.08
    assert (policy.of("swiglu", "params"), policy.of("swiglu", "peak_bytes")) == (0.01, 0.0)
    assert Policy().of("swiglu", "latency") == 0.05
    assert parse_tolerances(["0.5%", "params=0"], []) == (("", "latency", 0.005), ("", "params", 0.0))


def test_a_tolerance_of_a_variant_is_that_of_its_rows_in_every_group() -> None:
    labels = ["relu@seq_len=1", "swiglu@seq_len=1", "swiglu@seq_len=128", "swiglu@bias=true@seq_len=1"]
    policy = Policy(tolerances=parse_tolerances(["swiglu@seq_len=128:latency=9%", "swiglu:latency=8%"], labels))
    assert [policy.of(label, "latency") for label in labels] == [0.05, 0.08, 0.09, 0.05]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("latency", "cannot read the tolerance"),
        ("latncy=5%", "no metric is called 'latncy'"),
        ("swigul:latency=5%", "no case 'swigul'"),
        ("latency=much", "'much' is not a percentage"),
        ("latency=-5%", "no share above zero"),
        ("latency=0%", "no share above zero"),
        ("latency=8", "'8' could mean 8% or 800%"),
        ("latency=0.05", "'0.05' could mean 0.05% or 5%"),
        ("5", "'5' could mean 5% or 500%"),
        ("latency=nan", "no share above zero"),
        ("spec=5%", "no metric is called 'spec'"),
    ],
)
def test_tolerances_that_are_none(text: str, says: str) -> None:
    with pytest.raises(FfnbenchError, match=says):
        parse_tolerances([text], ["swiglu"])


def test_unchanged_code_passes(call, baseline: Path) -> None:
    code, out, err = call(str(baseline))
    assert code == 0, err
    assert re.search(r"swiglu\s+latency\s+OK", out)
    assert "exact rows are equal" in out
    assert "9 of 10 checks find a slow-down of " in out


def test_a_slower_case_fails(call, baseline: Path) -> None:
    launch = machine({"swiglu": 1.2}, seed=2)
    code, out, _ = call(str(baseline), launch=launch)
    assert code == 1
    assert re.search(r"swiglu\s+latency\s+REGRESSED", out)
    assert re.search(r"gelu\s+latency\s+OK", out)


def test_a_faster_reference_machine_changes_nothing(call, baseline: Path) -> None:
    assert call(str(baseline), launch=machine(dict.fromkeys(("relu", "gelu", "swiglu", "(control)"), 3.0)))[0] == 0


def test_an_improvement_is_told_and_passes(call, baseline: Path) -> None:
    code, out, _ = call(str(baseline), launch=machine({"swiglu": 0.8}))
    assert code == 0
    assert re.search(r"swiglu\s+latency\s+IMPROVED", out)


def test_noise_is_unclear_and_loud(call, baseline: Path) -> None:
    arguments = (str(baseline), "--budget", "5")
    code, out, _ = call(*arguments, launch=machine({"swiglu": 1.05}, scatter=0.2))
    assert code == 0
    assert "WARNING" in out
    assert "could not be decided" in out
    assert call(*arguments, "--on-unclear", "fail", launch=machine({"swiglu": 1.05}, scatter=0.2))[0] == 4


def test_a_machine_that_differs_from_itself_decides_nothing(call, baseline: Path) -> None:
    """+20 % for swiglu, and +20 % for the reference against itself."""
    launch = machine({"swiglu": 1.2, "(control)": 1.2}, seed=3)
    code, out, _ = call(str(baseline), "--budget", "5", launch=launch)
    assert code == 0
    assert re.search(r"swiglu\s+latency\s+UNCLEAR", out)


def test_a_failed_case_never_passes(call, baseline: Path) -> None:
    launch = machine()
    launch.trouble = {("open", "swiglu"): "crash"}
    code, out, _ = call(str(baseline), launch=launch)
    assert code == 3
    assert re.search(r"swiglu\s+latency\s+MISSING", out)
    assert "swiglu said no" in out


def test_exact_only_measures_nothing(call, baseline: Path) -> None:
    launch = machine()
    code, out, _ = call(str(baseline), "--exact-only", launch=launch)
    assert (code, launch.log) == (0, [])
    assert "exact rows are equal" in out


def edited(path: Path, change: Callable[[dict], None], reseal: bool = False) -> None:
    data = json.loads(path.read_text())
    change(data)
    path.write_text(json.dumps(data))
    if reseal:
        path.write_text(report_text(api.load(str(path))))


def more_params(data: dict) -> None:
    next(c for c in data["costs"] if c["case"] == "swiglu")["cost"]["params"] -= 8


def test_a_count_that_changed_is_a_regression(call, baseline: Path) -> None:
    """The baseline as an older version of the code would have written it, with its own seal."""
    edited(baseline, more_params, reseal=True)
    code, out, _ = call(str(baseline), "--exact-only")
    assert code == 1
    assert re.search(r"swiglu\s+params\s+REGRESSED", out)
    assert call(str(baseline), "--exact-only", "--tolerance", "params=1%")[0] == 0


def test_an_edited_baseline_is_refused(call, baseline: Path) -> None:
    edited(baseline, more_params)
    code, _, err = call(str(baseline))
    assert code == 2
    assert "was edited: its specs and its costs disagree" in err


def test_another_kind_of_machine_is_said_loudly(call, baseline: Path) -> None:
    edited(baseline, lambda data: data["environment"].update(cpu="Other CPU"))
    launch = machine({"swiglu": 2.0})
    code, out, _ = call(str(baseline), launch=launch)
    assert code == 0
    assert re.search(r"swiglu\s+latency\s+INCOMPARABLE", out)
    assert "WARNING: 2 rows could not be compared" in out
    assert not [job for _, job, _ in launch.log if job == "sample"]
    assert call(str(baseline), "--on-unclear", "fail")[0] == 4
    assert call(str(baseline), "--across-machines", launch=machine({"swiglu": 2.0}))[0] == 1


def test_absolute_needs_the_very_machine(call, baseline: Path) -> None:
    slow = dict.fromkeys(("relu", "gelu", "swiglu", "(control)"), 1.5)
    assert call(str(baseline), launch=machine(slow))[0] == 0
    code, out, _ = call(str(baseline), "--absolute", launch=machine(slow))
    assert code == 1
    assert re.search(r"relu\s+seconds\s+REGRESSED", out)
    edited(baseline, lambda data: data["environment"].update(fingerprint="else", torch="1.0"))
    code, _, err = call(str(baseline), "--absolute")
    assert code == 2
    assert "torch 1.0 then" in err


@pytest.mark.parametrize(
    ("damage", "error"),
    [
        (lambda text: "no json", "is not a whole ffnbench report"),
        (lambda text: text[:-200], "is not a whole ffnbench report"),
        (lambda text: text.replace('"schema": 2', '"schema": 9'), "has schema 9"),
        (lambda text: text.replace('"interrupted": false', '"interrupted": true'), "ended early and is no baseline"),
        (lambda text: text.replace('"device": "cpu"', '"device": "cuda"'), "was asked for, but torch"),
    ],
)
def test_a_baseline_that_is_none(call, baseline: Path, damage, error: str) -> None:
    baseline.write_text(damage(baseline.read_text()))
    code, out, err = call(str(baseline))
    assert (code, out) == (2, "")
    assert error in err.splitlines()[0]
    assert err.splitlines()[1].startswith("hint: ")


def test_a_baseline_too_unsure_is_refused_with_the_command_for_a_better_one(call, tmp_path: Path) -> None:
    unsure = baseline_in(tmp_path, machine(scatter=0.05), precision=10.0, budget=5.0)
    code, _, err = call(str(unsure), "--tolerance", "latency=1%")
    assert code == 2
    assert "only, the tolerance is 1.0%" in err
    asked = f"--variants {VARIANTS} --d-model 64 --threads 1 --metrics latency"
    assert f"ffnbench compare {asked} --precision 0.33 -o {unsure}" in err


def test_the_command_for_a_better_one_makes_the_same_cases(call, tmp_path: Path) -> None:
    """What was asked by flags is asked again."""
    asked = {"variants": "swiglu@dropout=0.1,geglu,relu@backend=compile", "d_ff": 128, "bias": True, "init": "normal",
             "mode": "train", "match": "none"}  # fmt: skip
    unsure = baseline_in(tmp_path, machine(scatter=0.05), precision=10.0, budget=5.0, **asked)
    before = json.loads(unsure.read_text())["plan"]["cases"]
    code, _, err = call(str(unsure), "--tolerance", "latency=1%")
    assert code == 2
    hint = re.search(r"ffnbench compare (.*) --precision", err)
    assert hint
    flags = dict(re.findall(r"--([\w-]+) ?((?!--)\S*)", hint[1]))
    assert flags.keys() == (asked.keys() - {"d_ff"}) | {"d-model", "d-ff", "threads", "metrics"}
    given = {name.replace("-", "_"): value for name, value in flags.items()} | {"bias": True, "threads": 1}
    again = plan_compare(CompareRequest(**(given | {name: int(given[name]) for name in ("d_model", "d_ff")})))
    forms = {case["label"]: (case["ffn"]["d_ff"], case["ffn"]["bias"], case["ffn"]["init"]) for case in before}
    assert {c.label: (c.ffn.d_ff, c.ffn.bias, c.ffn.init.value) for c in again.cases} == forms


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["none.json"], "cannot read 'none.json'"),
        (["BASE", "--budget", "1"], "--budget 1 is too short"),
        (["BASE", "--on-unclear", "panic"], "unknown --on-unclear 'panic'"),
        (["BASE", "--format", "githb"], "unknown format 'githb'"),
        (["BASE", "--export", "bencer"], "unknown export 'bencer'"),
        (["BASE", "--update", "--exact-only"], "--update needs the whole measurement"),
        (["BASE", "-o", "x.html"], "unknown suffix '.html'"),
        (["BASE", "--tolerance", "latency"], "cannot read the tolerance"),
        (["BASE", "none.json"], "cannot read 'none.json'"),
    ],
)
def test_mistakes_are_found_before_measuring(call, baseline: Path, arguments: list[str], error: str) -> None:
    launch = machine()
    code, out, err = call(*[str(baseline) if a == "BASE" else a for a in arguments], launch=launch)
    assert (code, out, launch.log) == (2, "", [])
    assert error in err.splitlines()[0]
    assert err.splitlines()[1].startswith("hint: ")


def test_what_ci_reads(call, baseline: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", "summary.md")
    code, out, _ = call(
        str(baseline), "--format", "github", "-o", "junit.xml", "-o", "report.md", "--export", "bencher=b.json",
        "--export", "github-action-benchmark", "--export", "go-bench=go.txt", launch=machine({"swiglu": 1.2}),
    )  # fmt: skip
    assert code == 1
    stop, end, line = [line for line in out.splitlines() if line.startswith("::")]
    assert stop.removeprefix("::stop-commands::") == end.strip(":")  # the table between is no command
    assert line.startswith("::error title=ffnbench REGRESSED::swiglu latency: REGRESSED, +2")
    assert "%25" in line
    assert "| swiglu | latency | REGRESSED |" in (tmp_path / "summary.md").read_text()
    suite = xml.parse(tmp_path / "junit.xml").getroot()
    failed = [case for case in suite if case.find("failure") is not None]
    assert [(case.get("classname"), case.get("name")) for case in failed] == [("ffnbench.swiglu", "latency")]
    assert suite.get("failures") == "1"
    latency = json.loads((tmp_path / "b.json").read_text())["swiglu"]["latency"]
    assert latency["lower_value"] < latency["value"] < latency["upper_value"]
    assert latency["value"] == pytest.approx(12e6, rel=0.05)  # nanoseconds
    entries = json.loads((tmp_path / "github-action-benchmark.json").read_text())
    assert {"name", "unit", "value"} <= set(entries[0])
    config, units, results = benchfmt((tmp_path / "go.txt").read_text())
    assert config["pkg"] == "ffnbench"
    assert units == {"params": {"assume": "exact"}}
    assert {name for name, _, _ in results} == {f"FFN/{name}-1" for name in VARIANTS.split(",")}
    swiglu = [values for name, _, values in results if name == "FFN/swiglu-1"]
    assert len(swiglu) >= 4  # one a worker
    assert all(v["ns/op"] == pytest.approx(12e6, rel=0.05) for v in swiglu)
    assert len({v["params"] for v in swiglu}) == 1  # benchstat warns of exact units that differ


def benchfmt(text: str) -> tuple[dict[str, str], dict[str, dict[str, str]], list[tuple[str, int, dict[str, float]]]]:
    """What benchstat reads, by the rules of golang.org/x/perf/benchfmt: configuration, units' metadata, results.

    A line that begins with Benchmark and is malformed is an error there, other lines that fit nothing are ignored;
    here nothing may be ignored.
    """
    config, units, results = {}, {}, []
    for line in text.splitlines():
        fields = line.split()
        if line.startswith("Benchmark"):
            name, iterations, *rest = fields
            assert len(rest) >= 2
            assert len(rest) % 2 == 0
            assert name[len("Benchmark") :][0].isupper()
            values = {unit: float(value) for value, unit in zip(rest[::2], rest[1::2], strict=True)}
            results.append((name[len("Benchmark") :], int(iterations), values))
        elif fields[0] == "Unit":
            units[fields[1]] = dict(pair.split("=") for pair in fields[2:])
        else:
            found = re.fullmatch(r"([^\sA-Z:][^\sA-Z:]*):[ \t]+(.*)", line)
            assert found, line
            assert found[1][0].islower()
            config[found[1]] = found[2]
    return config, units, results


def test_benchstat_keeps_labels_that_end_in_a_number_apart(call, tmp_path: Path) -> None:
    """benchstat takes a trailing -N for GOMAXPROCS."""
    request = CompareRequest(variants="a-1=relu,a-2=gelu", d_model=64, threads=2, precision=0.5, metrics="latency")
    report = api.measure(api.prepare(request), launch=machine())
    _, _, results = benchfmt(EXPORTS["go-bench"](report))
    assert {name.rpartition("-")[0] for name, _, _ in results} == {"FFN/a-1", "FFN/a-2"}
    assert {name.rpartition("-")[2] for name, _, _ in results} == {"2"}


def test_update_accepts_and_shows_what(call, baseline: Path) -> None:
    code, out, err = call(str(baseline), "--update", launch=machine({"swiglu": 1.2}))
    assert code == 0
    assert re.search(r"swiglu\s+latency\s+REGRESSED", out)
    assert str(baseline) in err
    assert call(str(baseline), launch=machine({"swiglu": 1.2}, seed=5))[0] == 0


def test_update_needs_a_whole_measurement(call, baseline: Path) -> None:
    """A baseline of another machine, or with a case that fails, is kept."""
    before = baseline.read_text()
    failing = machine()
    failing.trouble = {("open", "swiglu"): "crash"}
    code, _, err = call(str(baseline), "--update", launch=failing)
    assert (code, baseline.read_text()) == (3, before)
    assert "the baseline was not updated: nothing was measured for swiglu" in err
    edited(baseline, lambda data: data["environment"].update(cpu="Other CPU"))
    before = baseline.read_text()
    code, _, err = call(str(baseline), "--update")
    assert (code, baseline.read_text()) == (3, before)


def test_update_needs_quiet(call, baseline: Path) -> None:
    """Rounds in which the threads waited for a CPU make no baseline."""
    before = baseline.read_text()
    noisy = machine({"swiglu": 1.3})
    noisy.waited = 0.7
    code, out, err = call(str(baseline), "--update", "--budget", "10", launch=noisy)
    assert (code, baseline.read_text()) == (3, before)
    assert "REGRESSED" not in out
    assert "the baseline was not updated: nothing was measured for gelu, relu, swiglu" in err


def test_a_tolerance_below_what_runs_move_by_is_refused(call, tmp_path: Path) -> None:
    """The baseline is sure enough, but one run of it can't show what moves between runs."""
    sure = baseline_in(tmp_path, machine(scatter=0.0003), precision=0.05)
    launch = machine()
    code, out, err = call(str(sure), "--tolerance", "latency=1%", launch=launch)
    assert (code, out, launch.log) == (2, "", [])
    assert err.startswith("error: a baseline of 1 run can't resolve a tolerance of 1.0% for 'gelu': a change of")
    would_do = re.search(r"--tolerance (latency=[\d.]+%) would do", err)
    assert would_do
    assert re.search(r"with \d+ runs in the baseline 1.0% may do: `ffnbench check \S+ \S+ \S+ --append` adds one", err)
    assert err.rstrip().endswith("`ffnbench ab` measures both sides in one run")
    assert call(str(sure), "--tolerance", would_do[1])[0] == 0


def test_a_budget_too_short_for_the_tolerance_is_refused(call, tmp_path: Path) -> None:
    """Many workers made the baseline sure; the few that a short budget has room for would not be."""
    path = baseline_in(tmp_path, machine(scatter=0.015), precision=None, workers=40, rounds=8)
    edited(path, lambda data: data.update(wall_s=200.0))
    assert call(str(path), "--tolerance", "latency=2%", "--budget", "600")[0] == 0
    code, _, err = call(str(path), "--tolerance", "latency=2%", "--budget", "20")
    assert code == 2
    assert err.startswith("error: 20 s can't resolve a tolerance of 2.0%")
    assert "give more --budget, or --tolerance latency=" in err


def stored(folder: Path, launch: FakeLaunch, **options: object) -> Path:
    (folder / "now").mkdir(exist_ok=True)
    return baseline_in(folder / "now", launch, **options)


def test_a_saved_run_is_held_against_the_baseline(call, baseline: Path, tmp_path: Path) -> None:
    launch = machine()
    code, _, err = call(str(baseline), str(stored(tmp_path, machine({"swiglu": 1.2}, seed=3))), launch=launch)
    assert (code, launch.log) == (1, []), err
    assert call(str(baseline), str(stored(tmp_path, machine(seed=3))))[0] == 0


def test_a_saved_run_with_other_cases(call, baseline: Path, tmp_path: Path) -> None:
    """A case that has gone never passes, a new one is told, and so is another workload."""
    code, out, _ = call(str(baseline), str(stored(tmp_path, machine(), variants="relu,swiglu,silu", seq_len=64)))
    assert code == 1
    assert re.search(r"gelu\s+spec\s+MISSING", out)
    assert re.search(r"silu\s+spec\s+NEW", out)
    assert "seq_len 512 then, 64 now" in " ".join(out.split())
    code, _, err = call(str(baseline), str(stored(tmp_path, machine(), variants="gelu,relu")))
    assert code == 2
    assert "compares with 'gelu', the baseline with 'relu'" in err


def test_a_count_that_was_not_known_is_new(call, baseline: Path) -> None:
    edited(baseline, lambda data: data["costs"][0]["cost"].update(saved_bytes=None, flops_elementwise=None))
    code, out, _ = call(str(baseline), "--exact-only")
    assert code == 0
    assert re.search(r"relu\s+flops_elementwise\s+NEW", out)


def test_what_was_measured_is_saved_with_the_findings(call, baseline: Path, tmp_path: Path) -> None:
    code, _, _ = call(str(baseline), "-o", str(tmp_path / "out.json"), launch=machine({"swiglu": 1.2}))
    assert code == 1
    saved = json.loads((tmp_path / "out.json").read_text())
    assert {s["case"] for s in saved["now"]["samples"] if s["metric"] == "latency"} >= {"relu", "gelu", "swiglu"}


def test_everything_faster_may_be_a_slower_reference(call, baseline: Path) -> None:
    code, out, _ = call(str(baseline), launch=machine({"relu": 1.3, "(control)": 1.3}))
    assert code == 0
    assert "WARNING: every row improved: has relu, the reference, become slower?" in " ".join(out.split())


def test_a_gate_neither_cries_wolf_nor_sleeps(call, baseline: Path) -> None:
    """Ten checks each of unchanged code and of +8 % at a tolerance of 2 %, with workers of 0.4 % scatter."""

    def codes(factor: float) -> list[int]:
        return [
            call(str(baseline), "--tolerance", "latency=2%", launch=machine({"swiglu": factor}, 0.004, seed))[0]
            for seed in range(10)
        ]  # fmt: skip

    assert codes(1.0) == [0] * 10
    assert sum(code == 1 for code in codes(1.08)) >= 9
