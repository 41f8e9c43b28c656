"""Code of the user's that fails, as its user reads it on the screen."""

from __future__ import annotations

import re
from pathlib import Path

from conftest import FakeLaunch, ProberHere, ffnbench

from ffnbench import jsonable
from ffnbench.device.environment import usable_cpus
from ffnbench.planning.compare import plan_compare
from ffnbench.request import CompareRequest
from ffnbench.worker.agreement import hold, keep
from ffnbench.worker.probe_jobs import InProcess

HOSTILE = str(Path(__file__).with_name("hostile.py"))
TINY = ("--d-model", "64", "--seq-len", "32", "--workers", "3", "--rounds", "1", "--threads", "1")


def test_each_row_says_what_its_code_did_and_the_answer_that_its_reference_failed() -> None:
    rows = ("built=" + HOSTILE + ":broken", "changed=" + HOSTILE + ":Changes@like=relu")
    other = ("other=" + HOSTILE + ":Plain", "relu")
    out = ffnbench("compare", *rows, *other, *TINY, "--match", "none", "-q", columns=180).stdout
    verdicts = {line.split()[0]: line.split()[-1] for line in out.splitlines() if line.split()}
    assert (verdicts["built"], verdicts["changed"]) == ("crash", "unsupported")
    assert re.search(r"^built: .*raised RuntimeError: no GPU here; changed: it changes its input", out, re.MULTILINE)
    assert "nothing to compare with: the reference built failed; --reference other\n" in out
    errors = dict(re.findall(r"^(\S+) .*? (\d+e-\d+(?: vs itself)?) ", out, re.MULTILINE))
    assert ["itself" in errors[name] for name in ("other", "relu")] == [True, False]


def test_the_reference_that_is_hinted_at_compares(on_fakes) -> None:
    launch = FakeLaunch(trouble={("open", "gelu"): "crash"})
    _, out, _ = on_fakes("compare gelu relu silu", *TINY, launch=launch)
    (hint,) = re.findall(r"nothing to compare with: the reference gelu failed; (--reference \w+)", out)
    _, out, _ = on_fakes("compare gelu relu silu", hint, *TINY, launch=launch)
    assert "silu is as fast as relu" in out
    assert "nothing to compare" not in out
    _, out, _ = on_fakes("compare gelu relu --seq-len 8,16", *TINY[:2], *TINY[4:], launch=FakeLaunch(
        trouble={("open", "gelu@seq_len=16"): "crash"}))  # fmt: skip
    assert "nothing to compare with at seq_len 16: the reference gelu failed; --reference relu" in out
    assert "relu is as fast as gelu" in out


def test_cost_says_why_a_row_has_no_flops(on_fakes) -> None:
    _, out, _ = on_fakes("cost relu", f"mine={HOSTILE}:Refuses", "--d-model 64", prober=ProberHere)
    assert out.endswith("mine: not counted: it raised ValueError: no such luck")


def test_a_change_of_the_input_is_no_other_function(tmp_path: Path) -> None:
    """What a side of `ab` is held against is the input that the other one was given, not what became of it."""
    request = CompareRequest(variants=f"relu,mine={HOSTILE}:Changes", d_model=16, d_ff=32, seq_len=4, match="none")
    case = jsonable.encode(plan_compare(request, InProcess()).with_device("cpu").case("mine"))
    keep(case, 0, str(tmp_path))
    assert hold(case, 0, str(tmp_path))["error"] == 0


def test_more_threads_than_cpus_are_not_the_work_of_others(on_fakes) -> None:
    launch, cpus = FakeLaunch(), usable_cpus()
    launch.waited = 0.6
    _, out, _ = on_fakes("compare relu gelu", *TINY[:-1], "999", launch=launch)
    assert out.endswith(f"busy: 999 threads had {cpus} CPU{'s' * (cpus > 1)}; try --threads {cpus}")
    assert "other processes" not in out
