"""The method number: what a file says of it, what an older one reads as, and that ratios of two are never compared."""

from __future__ import annotations

import json
import math
import random
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import ROOT, FakeLaunch

from ffnbench import api, cli
from ffnbench.errors import FfnbenchError
from ffnbench.report.files.store import load, report_text
from ffnbench.report.shown_report import as_shown, recompute
from ffnbench.request import CompareRequest, TimingRequest

TODAY = 6  # written by hand: whoever raises it says in plan.py what it means
OLD = ROOT / "tests" / "golden" / "old"


def machine(factor: float = 1.0, seed: int = 1) -> FakeLaunch:
    """Workers of 10 ms a call, swiglu's times a factor, with a little chance."""
    dice = random.Random(seed)

    def seconds(label: str, worker: int, number: int) -> float:
        return 0.01 * (factor if label == "swiglu" else 1.0) * math.exp(dice.gauss(0, 0.002))

    return FakeLaunch(seconds)


@pytest.fixture
def baseline(tmp_path: Path) -> Path:
    return saved(tmp_path / "base line.json")


def saved(path: Path, variants: str = "relu,gelu,swiglu", **flags: object) -> Path:
    request = CompareRequest(**{"variants": variants, "d_model": 64, "threads": 1, "metrics": "latency", **flags})
    path.write_text(report_text(api.measure(api.prepare(request), launch=machine(seed=0))))
    return path


def edited(path: Path, edit: Callable[[dict], object]) -> Path:
    data = json.loads(path.read_text())
    edit(data)
    path.write_text(json.dumps(data))
    return path


def of_method(path: Path, method: int) -> Path:
    return edited(path, lambda data: data["plan"]["protocol"].update(method=method))


@pytest.fixture
def check(on_machine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """`ffnbench check` in this process, workers faked; gives exit code, stdout in one line, stderr, and the workers."""

    def run(*arguments: object, launch: FakeLaunch | None = None) -> tuple[int, str, str, FakeLaunch]:
        launch = launch or machine()
        on_machine(launch)
        monkeypatch.setattr(sys, "argv", ["ffnbench", "check", *map(str, arguments)])
        with pytest.raises(SystemExit) as caught:
            cli.main()
        out, err = capsys.readouterr()
        return caught.value.code or 0, " ".join(out.split()), err, launch

    return run


def timed(launch: FakeLaunch) -> bool:
    return any(job == "sample" for _, job, _ in launch.log)


def test_a_file_says_its_method_in_the_protocol(baseline: Path) -> None:
    data = json.loads(baseline.read_text())
    assert data["plan"]["protocol"]["method"] == TODAY
    assert "method" not in data
    assert load(baseline).plan.protocol.method == TODAY


@pytest.mark.parametrize(
    ("edit", "method"),
    [
        (lambda data: None, 2),
        (lambda data: data.update(method=2), 2),
        (lambda data: data.update(method=1), 1),
    ],
)
def test_a_file_without_it_is_of_an_older_method(baseline: Path, edit: Callable[[dict], object], method: int) -> None:
    """Schema 2 had the number beside the plan, or none."""
    edited(baseline, lambda data: data["plan"]["protocol"].pop("method"))
    assert load(edited(baseline, edit)).plan.protocol.method == method


@pytest.mark.parametrize(("name", "method"), [("compare", 2), ("compile", 2), ("glu-train", 1), ("act-in-ffn", 1)])
def test_the_method_of_files_of_schema_1(name: str, method: int, tmp_path: Path) -> None:
    """It stays in what is written from them: figures are computed anew, but the samples are what they were."""
    report = load(OLD / f"{name}.json")
    assert report.plan.protocol.method == method
    (tmp_path / "again.json").write_text(report_text(recompute(as_shown(report))))
    assert load(tmp_path / "again.json").plan.protocol.method == method


@pytest.mark.parametrize("where", ["protocol", "top"])
def test_a_newer_method_is_refused_in_one_line(baseline: Path, where: str, check) -> None:
    edited(
        baseline,
        lambda data: (
            data["plan"]["protocol"].update(method=TODAY + 1, something="that is not known yet")
            if where == "protocol"
            else (data["plan"]["protocol"].pop("method"), data.update(method=TODAY + 1))
        ),
    )
    with pytest.raises(FfnbenchError) as caught:
        load(baseline)
    assert (
        caught.value.message
        == f"{str(baseline)!r} was measured by method {TODAY + 1}, this ffnbench knows methods up to {TODAY}"
    )
    assert caught.value.hint == "update ffnbench to read it"
    assert check(baseline, "--exact-only")[0] == 2


@pytest.mark.parametrize("method", ["two", None, 2.5, True, []])
def test_a_method_that_is_no_number_is_a_broken_file(baseline: Path, method: object) -> None:
    edited(baseline, lambda data: data["plan"]["protocol"].update(method=method))
    with pytest.raises(FfnbenchError, match=r"is not a whole ffnbench report: Report\.plan\.protocol\.method"):
        load(baseline)


def test_a_baseline_of_another_method_is_gated_exactly_and_not_timed(baseline: Path, check) -> None:
    code, out, _, launch = check(of_method(baseline, 2), launch=machine(factor=2.0))
    assert (code, timed(launch)) == (0, False)
    assert len(re.findall(r"latency INCOMPARABLE¹", out)) == 2
    assert "WARNING: 2 rows could not be compared: gelu, swiglu" in out
    assert f"was measured by method 2, now it is {TODAY}, and ratios of the two can't be compared" in out
    assert "exact rows are equal" in out
    assert check(baseline, "--on-unclear", "fail")[0] == 4
    assert check(baseline, "--across-machines")[0] == 0
    edited(baseline, lambda data: data["costs"][1]["cost"].update(params=7))
    baseline.write_text(report_text(load(baseline)))  # with a seal, as code that counted otherwise wrote it
    code, out, _, _ = check(baseline)
    assert code == 1
    assert "gelu params REGRESSED" in out


def test_the_command_that_makes_it_anew_is_told_once(tmp_path: Path, check) -> None:
    """As it was asked for: a fixed number of workers stays one, and no precision is made up."""
    path = saved(tmp_path / "base line.json", workers=4, rounds=12, variants="relu,gelu,swiglu,geglu,silu")
    _, out, _, _ = check(of_method(path, 2))
    asked = "--d-model 64 --variants relu,gelu,swiglu,geglu,silu"
    command = re.search(r"make it anew: (ffnbench compare .*?\.json')", out)
    assert command
    assert out.count("ffnbench compare") == 1
    assert out.count("INCOMPARABLE¹") == 4
    for part in (*re.split(r" (?=--)", asked), "--workers 4", "--rounds 12", "--threads 1", "--metrics latency"):
        assert part in command[1], part
    assert "--precision" not in command[1]
    assert command[1].endswith(f"-o '{path}'")


def test_a_precision_that_was_asked_for_is_asked_for_again(tmp_path: Path, check) -> None:
    path = of_method(saved(tmp_path / "b.json", precision=0.5, budget=33.0), 1)
    assert "--precision 0.5 --budget 33" in check(path)[1]


def test_the_command_of_timed_activations(tmp_path: Path, check, on_machine) -> None:
    on_machine(machine())
    request = TimingRequest(activations="relu,silu", workers=3, rounds=7, threads=1)
    path = tmp_path / "acts.json"
    path.write_text(report_text(api.time_activations(request)))
    _, out, _, _ = check(of_method(path, 2))
    assert "make it anew: ffnbench activations --time --activations relu,silu" in out
    for part in ("--workers 3", "--rounds 7", "--threads 1"):
        assert part in out
    assert f" -o {path}" in out


def test_seconds_are_incomparable_as_well(baseline: Path, check) -> None:
    """On another machine too: what the method says comes first, and nothing is timed."""
    edited(of_method(baseline, 2), lambda data: data["environment"].update(fingerprint="else"))
    code, out, _, launch = check(baseline, "--absolute")
    assert (code, timed(launch)) == (0, False)
    assert out.count("seconds INCOMPARABLE¹") == 3
    assert out.count("latency INCOMPARABLE¹") == 2


def test_what_could_not_be_resolved_is_not_asked_of_another_method(baseline: Path, check) -> None:
    assert check(baseline, "--tolerance", "latency=0.01%")[0] == 2
    assert check(of_method(baseline, 2), "--tolerance", "latency=0.01%")[0] == 0


@pytest.mark.parametrize(("then", "now", "told"), [(2, TODAY, ["base"]), (TODAY, 2, ["now"]), (2, 2, ["base", "now"])])
def test_saved_runs_of_another_method(baseline: Path, tmp_path: Path, check, then: int, now: int, told) -> None:
    """Figures of either are computed anew, but samples are not."""
    run = of_method(saved(tmp_path / "now.json"), now)
    code, out, _, launch = check(of_method(baseline, then), run)
    assert (code, timed(launch)) == (0, False)
    assert out.count("latency INCOMPARABLE¹") == 2
    paths = {"base": baseline, "now": run}
    for name, path in paths.items():
        assert (f"'{path}' was measured by method 2" in out) == (name in told)
    assert check(of_method(baseline, TODAY), of_method(run, TODAY))[1].count("INCOMPARABLE") == 0


def test_update_measures_an_older_baseline_anew(baseline: Path, check) -> None:
    """With its own plan and effort: the next check compares with it."""
    code, out, err, launch = check(of_method(baseline, 2), "--update", launch=machine(factor=1.2))
    assert (code, timed(launch)) == (0, True), err
    assert out.count("INCOMPARABLE¹") == 2
    before = load(baseline)
    assert before.plan.protocol.method == TODAY
    assert [case.label for case in before.plan.shown] == ["relu", "gelu", "swiglu"]
    assert check(baseline, launch=machine(factor=1.2, seed=5))[1].count("latency OK") == 2


def test_an_older_baseline_is_kept_where_no_new_one_could_be_made(baseline: Path, tmp_path: Path, check) -> None:
    text = of_method(baseline, 2).read_text()
    failing = machine()
    failing.trouble = {("open", "relu"): "crash"}  # the reference: it has no row of its own
    code, _, err, _ = check(baseline, "--update", launch=failing)
    assert (code, baseline.read_text()) == (3, text)
    assert "the baseline was not updated: nothing was measured for" in err
    edited(baseline, lambda data: data["environment"].update(cpu="Other CPU"))
    text = baseline.read_text()
    code, _, _, launch = check(baseline, "--update")
    assert (code, timed(launch), baseline.read_text()) == (3, False, text)
    code, _, _, _ = check(baseline, of_method(saved(tmp_path / "now.json"), 2), "--update")
    assert (code, baseline.read_text()) == (3, text)


def test_an_older_baseline_is_replaced_by_a_saved_run_of_today(baseline: Path, tmp_path: Path, check) -> None:
    run = saved(tmp_path / "now.json")
    code, out, err, launch = check(of_method(baseline, 2), run, "--update")
    assert (code, timed(launch)) == (0, False), err
    assert out.count("INCOMPARABLE¹") == 2
    assert load(baseline).plan.protocol.method == TODAY
    assert load(baseline).samples == load(run).samples


def test_a_file_that_knows_its_plan_alone_is_made_anew_by_update(tmp_path: Path, check) -> None:
    path = tmp_path / "old.json"
    path.write_text((OLD / "baseline.json").read_text())
    code, out, _, launch = check(path)
    assert (code, timed(launch)) == (0, False)
    assert out.count(f"make it anew: ffnbench check {path} --update") == 1
