"""The method number: what a file says of it, what an older one reads as, and that
ratios of two are never compared.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from gate_world import edited, machine, saved, timed

from ffnbench.common.errors import FfnbenchError
from ffnbench.report.files.store import read_report

TODAY = 6  # written by hand: whoever raises it says in plan.py what it means


@pytest.fixture
def baseline(tmp_path: Path) -> Path:
    return saved(tmp_path / "baseline.json")


def of_method(path: Path, method: int) -> Path:
    return edited(path, lambda data: data["plan"]["protocol"].update(method=method))


def test_a_newer_method_is_refused_in_one_line_and_so_is_a_file_without_any(
    baseline: Path, on_fakes
) -> None:
    of_method(baseline, TODAY + 1)
    with pytest.raises(
        FfnbenchError,
        match=f"was measured with method {TODAY + 1}, this ffnbench knows",
    ) as caught:
        read_report(baseline)
    assert caught.value.hint == "pip install -U ffnbench"
    assert on_fakes("check", baseline, "--exact-only")[0] == 2
    edited(baseline, lambda data: data["plan"]["protocol"].pop("method"))
    assert on_fakes("report", baseline)[2].count("\n") == 2
    for schema, age in ((1, "older"), (3, "newer")):
        edited(baseline, lambda data, number=schema: data.update(schema=number))
        says = rf"an? {age} ffnbench \(schema {schema}; this one reads 2\)"
        with pytest.raises(FfnbenchError, match=says):
            read_report(baseline)


def test_a_baseline_of_another_method_is_gated_exactly_and_not_timed(
    baseline: Path, on_fakes
) -> None:
    launch = machine({"swiglu": 2.0})
    code, out, _ = on_fakes("check", of_method(baseline, 2), launch=launch)
    assert (code, timed(launch)) == (0, False)
    assert len(re.findall(r"latency INCOMPARABLE", out)) == 2
    assert "WARNING: could not compare 2 rows: gelu, swiglu" in out
    assert (
        f"was measured with method 2, now it is {TODAY}: their ratios can't be compared"
        in out
    )
    assert re.search(r"measure it again: ffnbench compare .*--precision 0.5 .*-o", out)
    assert on_fakes("check", baseline, "--on-unclear fail")[0] == 4
    edited(baseline, lambda data: data["costs"][1]["cost"].update(params=7))
    code, out, _ = on_fakes("check", baseline)
    assert (code, "gelu params REGRESSED" in out) == (1, True)


@pytest.mark.parametrize(("then", "now"), [(2, TODAY), (TODAY, 2), (2, 2)])
def test_saved_runs_of_another_method(
    baseline: Path, tmp_path: Path, on_fakes, then: int, now: int
) -> None:
    """Figures of either are computed anew, but samples are not."""
    run = of_method(saved(tmp_path / "now.json"), now)
    code, out, _ = on_fakes("check", of_method(baseline, then), run)
    assert (code, out.count("latency INCOMPARABLE")) == (0, 2)
    for path, method in ((baseline, then), (run, now)):
        written = "".join(out.split())  # a long path is broken where a line ends
        said = "".join(f"'{path}' was measured with method 2".split())
        assert (said in written) == (method == 2)
