"""A flag that would let its user believe a wrong thing of the numbers is refused; one without effect is accepted."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from conftest import FakeLaunch, KnownProber

from ffnbench import api
from ffnbench.cli import app
from ffnbench.errors import FfnbenchError
from ffnbench.report.files.store import report_text
from ffnbench.request import CompareRequest

MOE = "swiglu@moe=4x2@routing=uniform"
REFUSED = [  # what is typed, the flag that is refused, and what the number that it speaks of is in truth
    ("cost relu --d-ff 100 --ratio 3", "--ratio", "every width is given, or matched"),  # d_ff 100, not 3 * 768
    ("cost --preset gpt2 --ratio 2", "--ratio", "every width is given, or matched"),  # 3,072, not 2 * 768
    ("cost relu --d-ff 100 --match none --multiple-of 8", "--multiple-of", "no width is rounded"),  # 100 = 12.5 * 8
    ("cost relu --rule llama --ffn-dim-multiplier 2", "--ffn-dim-multiplier", "no width is made by a rule"),  # 4 * 768
    ("cost relu@d_ff=8 --rule llama", "--rule", "every variant says itself"),  # 8
    ("cost relu@d_ff=8 --match none --d-ff 9", "--d-ff", "every variant says itself"),  # 8
    ("cost relu@bias=true --no-bias", "--no-bias", "no variant takes it"),  # with biases
    ("cost relu@dropout=0.2 --mode train --dropout 0.1", "--dropout", "no variant takes it"),  # 0.2
    ("compare mypkg.mlp:SwiGLU --init normal", "--init", "no variant takes it"),  # the module's own weights
    ("ab mypkg.mlp:SwiGLU --base-env A:1 --bias", "--bias", "no variant takes it"),
    ("cost relu@seq_len=8 --seq-len 9", "--seq-len", "every variant has its own"),  # 8
    ("ab swiglu@seq_len=8 --base-env A:1 --seq-len 9", "--seq-len", "every variant has its own"),
    ("cost relu@dtype=bf16 --dtype float16", "--dtype", "every variant has its own"),  # bfloat16's bytes
    ("cost relu@mode=train --mode forward", "--mode", "every variant has its own"),
    ("cost relu@batch=2 --batch 3", "--batch", "every variant has its own"),
    ("compare relu@threads=1 --threads 2", "--threads", "every variant has its own"),
    ("compare relu@compile=max-autotune --backend eager", "--backend", "every variant has its own"),
    ("block --variant relu@cache=cold --cache hot", "--cache", "every variant has its own"),
    (f"compare {MOE} --routing skewed", "--routing", "every variant has its own"),
    ("block --preset gpt2 --whole-model --mode train", "--mode", "counted for one sequence's forward pass"),
    ("block --preset gpt2 --whole-model --batch 8", "--batch", "counted for one sequence's forward pass"),
    ("activations --dtype bf16", "--dtype", "facts are found in float64"),
    ("check counted.json --absolute", "--absolute", "the baseline has no latencies"),  # no seconds are held to anything
    ("check counted.json --tolerance 5%", "--tolerance 5%", "no row is held to it"),
    ("check counted.json --tolerance swiglu:latency=5%", "--tolerance swiglu:latency=5%", "no row is held"),
    ("check timed.json --tolerance relu:latency=5%", "--tolerance relu:latency=5%", "no row is held"),  # its ratio is 1
    ("check timed.json --tolerance seconds=5%", "--tolerance seconds=5%", "no row is held"),  # but with --absolute
]  # fmt: skip
WITHOUT_EFFECT = [  # what is typed, and the flags more that change nothing of the answer
    ("cost relu", "--json --format json", "--json"), ("cost relu -f csv", "--wide", ""),
    ("cost relu", "--force -o a.csv -o a.csv", ""), ("cost relu", "--match flops --reference relu --sort latency", ""),
    ("cost relu --preset gpt2", "--d-model 768", ""), ("cost relu", "--dropout 0.1", ""),
    ("cost relu --json", "--sort params --columns params", ""),
    ("env", "--quiet --wide", ""), ("list rules -f csv", "--wide", ""),
    ("block --cost-only", "--timeout 9 --runs 2 --pause 1 --quick --device cpu --sort d_ff", ""),
    ("block --preset gpt2 --whole-model", "--cost-only --mode forward --batch 1 --seed 3 --columns d_ff", ""),
    ("block --preset gpt2 --whole-model", "--mode inference", ""),
    ("check counted.json", "--exact-only", ""), ("check counted.json", "-q --budget 60 --across-machines --wait", ""),
    ("check counted.json", "--exact-only --absolute --tolerance latency=5% --on-unclear fail", ""),
    ("check timed.json --exact-only", "--tolerance latency=5% --absolute", ""),
    ("check timed.json now.json", "--budget 9 -q", ""), ("check counted.json", "--tolerance saved_bytes=5%", ""),
    ("report timed.json now.json", "--sort label --columns params", ""),
    ("report timed.json --json", "--sort label", ""),
]  # fmt: skip
MEASURED = [  # and of what is measured, where no two answers are the same
    "compare relu --quick --workers 3 --rounds 6 --pause 5",
    "compare relu,gelu --metrics memory --control --cache cold",
    "compare relu --metrics memory --workers 3 --rounds 6", "compare relu --quick --routing skewed --time wall",
    "compare relu --quick --dtype bf16 --matmul-precision high --no-reduced-reductions",
    "ab swiglu --base-env A:1 --base-env A:2 --exact-only --fail-above 5% --budget 9 --cache cold",
]  # fmt: skip


@pytest.fixture
def call(on_machine, in_process, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """A command in this process, workers faked, in a folder with a timed and a counted baseline."""
    dice = random.Random(0)
    on_machine(FakeLaunch(lambda label, worker, number: 0.01 * dice.uniform(1, 1.004)), KnownProber)
    monkeypatch.chdir(tmp_path)
    for name in ("timed", "now"):
        request = CompareRequest(variants="relu,swiglu", d_model=64, threads=1, precision=0.5, metrics="latency")
        Path(f"{name}.json").write_text(report_text(api.measure(api.prepare(request))))
    Path("counted.json").write_text(report_text(api.cost(CompareRequest(variants="relu,swiglu", d_model=64))))
    return lambda line: in_process(*line.split())


def test_what_would_mislead_is_refused_and_nothing_is_measured_or_written(call) -> None:
    before = {path.name for path in Path().iterdir()}
    for line, flag, why in REFUSED:
        code, out, err = call(line)
        assert (code, out) == (2, ""), line
        assert err.startswith(f"error: {flag} would do nothing: "), f"{line}: {err}"
        assert why in err.splitlines()[0], line
    assert {path.name for path in Path().iterdir()} == before


@pytest.mark.parametrize(("line", "more", "as_with"), WITHOUT_EFFECT)
def test_what_is_without_effect_is_accepted_in_silence(call, line: str, more: str, as_with: str) -> None:
    code, out, err = call(f"{line} {more}")
    assert code == 0, err
    if "json" not in f"{line}{more}":  # that has a date
        assert out == call(f"{line} {as_with}")[1]


@pytest.mark.parametrize("line", MEASURED)
def test_what_is_without_effect_on_a_measurement_is_accepted(call, line: str) -> None:
    code, out, err = call(line)
    assert (code, "error" in err) == (0, False), err
    assert "control" not in out


def test_a_run_is_held_against_itself(call, on_machine) -> None:
    """Though no budget would resolve its tolerance: a saved run is not measured, and no budget may be asked for."""
    dice = random.Random(3)
    on_machine(FakeLaunch(lambda label, worker, number: 0.01 * dice.uniform(1, 1.5)))
    assert call("compare relu gelu --d-model 64 --quick -q -o wide.json")[0] == 0
    code, _, err = call("check wide.json --tolerance 2%")
    assert (code, "error" in err) == (2, True)
    code, out, err = call("check wide.json wide.json --tolerance 2%")
    assert (code, err) == (0, "")
    assert "REGRESSED" not in out


def test_what_a_file_of_defaults_says_is_not_typed(call, capsys: pytest.CaptureFixture[str]) -> None:
    defaults = {"cost": {"d_ff": "100", "ratio": "3"}}
    assert app(["cost"], standalone_mode=False, default_map=defaults) in (0, None)
    assert "d_ff 100" in capsys.readouterr().out
    with pytest.raises(FfnbenchError, match="--ratio would do nothing"):
        app(["cost", "--ratio", "3"], standalone_mode=False, default_map=defaults)


def test_from_python_nothing_is_typed() -> None:
    assert api.cost(CompareRequest(variants="relu", d_ff=100, ratio=3.0)).plan.cases[0].ffn.d_ff == 100
    assert json.loads(report_text(api.cost(CompareRequest(variants="relu"))))["plan"]["reference"] == "relu"
