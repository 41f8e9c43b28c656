"""`--match time`: the width that is found, on machines whose true width is known."""

from __future__ import annotations

import itertools
import json
import math
import random
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fake_machine import Alone, FakeLaunch, FakeWorker, KnownProber

import ffnbench
from ffnbench.messages import Open, TakeSample
from ffnbench.report.files.store import read_report
from ffnbench.run import world
from ffnbench.stats.figures import with_figures

COMPARE = ["compare", "gelu", "swiglu", "--d-model", "768", "--match", "time"]
QUICK = [*COMPARE, "--quick", "--metrics", "latency", "--threads", "2"]
A_MATRIX = 1e-5  # seconds for each unit of d_ff and matrix, on the linear machine
Cost = Callable[[str, int], float]  # (label, d_ff) -> seconds


class WidthWorker(FakeWorker):
    """A worker whose time depends on the width of the case that it was given."""

    def ask(self, request: Any, timeout_s: float) -> Any:
        plan = getattr(request, "plan", None)
        if plan is not None:
            widths = {case.label: case.ffn.d_ff for case in plan.cases}
            self.launch.widths = widths
            if not self.launch.tried or self.launch.tried[-1] != widths:
                self.launch.tried.append(widths)
        return super().ask(request, timeout_s)


class WidthLaunch(FakeLaunch):
    """A machine with a cost for each label and width, and noise between processes and
    rounds. `tried` are the widths of its runs, one after another.
    """

    def __init__(self, cost: Cost, noise: float = 0.0, seed: int = 1) -> None:
        dice = random.Random(seed)
        layout: dict[tuple[str, int], float] = {}
        self.widths: dict[str, int] = {}
        self.tried: list[dict[str, int]] = []

        def seconds(label: str, worker: int, number: int) -> float:
            own = layout.setdefault((label, worker), dice.gauss(0, noise))
            of_round = dice.gauss(0, noise / 2)
            return cost(label, self.widths[label]) * math.exp(own + of_round)

        super().__init__(seconds)

    def __call__(self, arm: object = None) -> WidthWorker:
        self.workers.append(WidthWorker(self, len(self.workers)))
        return self.workers[-1]


def matrices(label: str) -> int:
    return 3 if label.startswith(("swiglu", "geglu")) else 2


def linear(label: str, d_ff: int) -> float:
    """A gated form takes 3/2 of the time at the same width, and 5 % of its own."""
    own = 1.05 if matrices(label) == 3 else 1.0
    return own * A_MATRIX * matrices(label) * d_ff


def with_constant(label: str, d_ff: int) -> float:
    """Half of gelu's time at 3,072 does not depend on the width; gated forms have a
    fifth more of it.
    """
    constant = 0.06 if matrices(label) == 2 else 0.072
    return constant + A_MATRIX * matrices(label) * d_ff


def stepped(label: str, d_ff: int) -> float:
    """Widths that 256 does not divide take 8 % longer."""
    return linear(label, d_ff) * (1.0 if d_ff % 256 == 0 else 1.08)


@pytest.fixture
def call(on_fakes, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.chdir(tmp_path)
    return on_fakes


def found_by(call, cost: Cost, noise: float = 0.0, seed: int = 1) -> tuple[int, str]:
    """The width of swiglu in the saved file, and what was said on the screen."""
    launch = WidthLaunch(cost, noise, seed)
    code, out, err = call(*QUICK, "-o", "a.json", launch=launch)
    assert code == 0, err
    return read_report("a.json").plan.case("swiglu").ffn.d_ff, out


# The width that is found


@pytest.mark.parametrize(
    ("cost", "truth"),
    [
        # 2 * 3072 = 1.05 * 3 * d_ff
        (linear, 2 * 3072 / 3.15),
        # 0.06 + 2e-5 * 3072 = 0.072 + 3e-5 * d_ff
        (with_constant, (0.06 + 2e-5 * 3072 - 0.072) / 3e-5),
    ],
)
def test_the_width_is_the_true_one_rounded(call, cost: Cost, truth: float) -> None:
    """The nearest multiple of 64, or the one below."""
    width, out = found_by(call, cost)
    assert width % 64 == 0
    assert -64 < width - truth <= 32
    ratio = cost("swiglu", width) / cost("gelu", 3072)
    assert 0.95 < ratio < 1.011
    assert f"swiglu at d_ff {width:,} takes" in out


def test_a_step_of_alignment_is_met_within_a_step_of_width(call) -> None:
    """1,792 takes 0.92 of the time, and no larger multiple of 64 less than 1.01."""
    width, out = found_by(call, stepped)
    assert width == 1792
    assert "swiglu at d_ff 1,792 takes less time than gelu at 3,072: 0.919" in out


def test_noise_moves_the_width_by_no_more_than_it_is(call) -> None:
    """Ten machines with 2 % between processes: the true ratio at the width found."""
    ratios = []
    for seed in range(10):
        width, _ = found_by(call, with_constant, noise=0.02, seed=seed)
        ratios.append(with_constant("swiglu", width) / with_constant("gelu", 3072))
    assert max(abs(ratio - 1) for ratio in ratios) < 0.06
    assert abs(sum(ratios) / len(ratios) - 1) < 0.02


def test_a_width_that_is_never_reached_says_so(call) -> None:
    """A gated form that takes longer at any width."""
    width, out = found_by(
        call, lambda label, d_ff: {"gelu": 0.1}.get(label, 0.13 + 1e-6 * d_ff)
    )
    assert width == 64
    assert "swiglu at d_ff 64, the least width, still takes longer than gelu" in out


def test_each_variant_has_its_own_width_and_multiple(call) -> None:
    launch = WidthLaunch(linear)
    words = [*QUICK[:1], "gelu", "relu", "swiglu@multiple_of=8", *QUICK[3:]]
    code, _, err = call(*words, "--json", "-o", "a.json", launch=launch)
    assert code == 0, err
    plan = read_report("a.json").plan
    widths = [case.ffn.d_ff for case in plan.cases]
    assert widths == [3072, 3072, 1952]  # 2 * 3072 / 3.15 is 1950.5


# The runs, and what is kept of them


def test_what_answers_is_measured_anew_at_the_widths_found(call) -> None:
    launch = WidthLaunch(with_constant)
    assert call(*QUICK, "-o", "a.json", launch=launch)[0] == 0
    report = read_report("a.json")
    assert report.plan.match == "time"
    assert "--match time" in report.plan.command
    case = report.plan.case("swiglu")
    assert case.sizing.how == "matched by time"
    assert launch.tried[-1] == {"gelu": 3072, "swiglu": case.ffn.d_ff}
    assert 2 <= len(launch.tried) <= 4
    assert launch.tried[0]["swiglu"] == 2048  # as many parameters
    # five processes, four rounds and the practice: the last run alone
    kept = [sample for sample in report.samples if sample.metric == "latency"]
    assert len(kept) == 2 * 5 * 4
    samples = [entry for entry in launch.log if entry[1] is TakeSample]
    assert len(samples) > len(kept)


def test_the_saved_file_is_an_ordinary_run(call) -> None:
    launch = WidthLaunch(linear)
    _, out, _ = call(*QUICK, "-o", "a.json", launch=launch)
    line = re.search(r"swiglu at d_ff 1,920 takes .*?; .*? parameters", out)
    assert line, out
    _, again, _ = call("report", "a.json")
    assert line[0] in again
    assert "6.2% fewer parameters" in again  # 3 * 1920 / (2 * 3072) = 0.9375
    code, out, err = call("check a.json --budget 10s", launch=WidthLaunch(linear))
    assert (code, "swiglu" in out) == (0, True), err
    _, out, _ = call(*QUICK, "--json", launch=WidthLaunch(linear))
    assert json.loads(out)["plan"]["match"] == "time"


def test_a_stated_width_stays_beside_one_that_is_found(call) -> None:
    launch = WidthLaunch(linear)
    words = [*QUICK[:3], "swiglu-wide=swiglu@d_ff=3072", *QUICK[3:]]
    _, out, _ = call(*words, launch=launch)
    assert {run["swiglu-wide"] for run in launch.tried} == {3072}
    assert "of stated width, against gelu: swiglu-wide +58%" in out


def test_a_row_that_fails_ends_no_search(call) -> None:
    launch = WidthLaunch(linear)
    launch.trouble = {(Open, "geglu"): "oom"}
    words = [*QUICK[:3], "geglu", *QUICK[3:]]
    code, out, _ = call(*words, launch=launch)
    assert code == 0
    assert "swiglu at d_ff 1,920" in out
    assert "said no" in out


def test_the_budget_of_the_hint_is_that_of_all_runs(call) -> None:
    """The last run has two fifths of it: 2.5 times what the plain hint says."""
    launch = WidthLaunch(lambda label, d_ff: 1e-5 * d_ff, noise=0.04, seed=3)
    words = ["compare", "gelu", "relu", "--quick", "--metrics", "latency"]
    call(*words, "-o", "a.json", launch=launch)
    plain = with_figures(read_report("a.json"))
    matched = with_figures(replace(plain, plan=replace(plain.plan, match="time")))
    assert plain.figures.narrowing
    assert matched.figures.narrowing
    longer = matched.figures.narrowing.seconds / plain.figures.narrowing.seconds
    assert longer == pytest.approx(2.5)


def test_a_busy_machine_is_no_answer(call) -> None:
    launch = WidthLaunch(linear)
    launch.waited = 0.5
    code, out, _ = call(*QUICK, launch=launch)
    assert code == 0
    assert "too disturbed to compare: swiglu" in out
    assert "swiglu: no width could be found" in out
    assert "takes as long" not in out
    assert all(run["swiglu"] == 2048 for run in launch.tried)


def test_an_answer_that_is_disturbed_says_so(call) -> None:
    """Quiet in the first short run alone, which finds 1,920."""
    launch = WidthLaunch(linear)

    quiet = launch.seconds

    def seconds(label: str, worker: int, number: int) -> float:
        launch.waited = 0.5 if launch.widths["swiglu"] == 1920 else 0.0
        return quiet(label, worker, number)

    launch.seconds = seconds
    code, out, _ = call(*QUICK, launch=launch)
    assert code == 0
    told = (
        "swiglu at d_ff 1,920: too disturbed to tell whether it takes as long as gelu"
    )
    assert told in out


@pytest.mark.parametrize("budget", ["10s", "20s", "60s"])
def test_a_budget_is_that_of_all_runs(
    budget: str, in_process, monkeypatch: pytest.MonkeyPatch
) -> None:
    ticks = itertools.count(step=0.005)
    clock = [0.0]

    def now() -> float:
        clock[0] = next(ticks)
        return clock[0]

    launch = WidthLaunch(with_constant, noise=0.2)
    fake = world.World(
        launch=launch, prober=KnownProber, now=now, watch=Alone, began=0.0
    )
    monkeypatch.setattr(world, "this_machine", lambda wait=False: fake)
    code, _, err = in_process(*COMPARE, "--metrics", "latency", "--budget", budget)
    assert code == 0, err
    assert 0.8 * float(budget[:-1]) < clock[0] < 1.1 * float(budget[:-1])


def interrupted_at(sample: int) -> WidthLaunch:
    """A machine on which somebody presses Ctrl-C at that sample."""
    launch = WidthLaunch(linear)
    asked = itertools.count()
    seconds = launch.seconds

    def until(label: str, worker: int, number: int) -> float:
        if next(asked) == sample:
            raise KeyboardInterrupt
        return seconds(label, worker, number)

    launch.seconds = until
    return launch


A_SEARCH = 2 * 3 * 5  # samples: rows, processes, rounds with the practice


@pytest.mark.parametrize("sample", [A_SEARCH + 1, A_SEARCH + 25])
def test_ctrl_c_says_what_was_found_so_far(call, sample: int) -> None:
    code, out, _ = call(*QUICK, "-o", "a.json", launch=interrupted_at(sample))
    assert code == 130
    # 3 * 2048 * 1.05 / (2 * 3072)
    assert "time against gelu so far: swiglu 1.050 at 2,048" in out
    assert read_report("a.json").interrupted
    assert "takes as long" not in out


def test_python_finds_them_too(on_machine, made_up_clock) -> None:
    on_machine(WidthLaunch(linear), KnownProber)
    report = ffnbench.compare(
        ["gelu", "swiglu"], d_model=768, match="time", quick=True, metrics="latency"
    )
    assert list(report.frame()["d_ff"]) == [3072, 1920]


# What has no answer


@pytest.mark.parametrize(
    ("words", "error", "hint"),
    [
        ("gelu", "needs a variant beside the reference", "gelu,swiglu"),
        ("gelu swiglu@d_ff=512", "'swiglu@d_ff=512' states its own", "leave @d_ff"),
        ("gelu swiglu@rule=llama", "states its own", "@rule"),
        ("gelu swiglu --seq-len 1,16", "the lists make 2", "one value"),
        ("gelu swiglu --backend eager,packed", "--backend has a list", "swiglu@backend=packed"),
        ("gelu swiglu --metrics memory", "--metrics leaves it out", "--metrics latency,memory"),
        ("gelu swiglu --runs 2", "--runs repeats one", "then repeat"),
        ("gelu swiglu --state a.safetensors", "weights of one width", "leave one"),
        ("gelu swiglu --budget 7s", "takes 10 s at least", "--budget 10s"),
        ("gelu swiglu --on local", "measures one group several times", "leave --on out"),
        ("gelu swiglu --resume -o a.json", "searches for them", "leave one"),
    ],
)  # fmt: skip
def test_what_has_no_width_to_find_is_refused(
    call, words: str, error: str, hint: str
) -> None:
    launch = WidthLaunch(linear)
    if "--resume" in words:
        assert call(*QUICK, "-o", "a.json", launch=launch)[0] == 0
    launch.log.clear()
    code, _, err = call(f"compare {words} --d-model 768 --match time", launch=launch)
    assert code == 2
    told = [line for line in err.splitlines() if line.startswith(("error:", "hint:"))]
    assert [line.partition(":")[0] for line in told] == ["error", "hint"]
    assert error in told[0]
    assert hint in told[1]
    assert not launch.log


def test_commands_that_measure_no_widths_refuse_it(call) -> None:
    code, _, err = call("cost gelu swiglu --match time")
    assert code == 2
    assert "only `compare` does" in err
    assert "hint: find them first" in err
    code, _, err = call("block gelu --match time")
    assert (code, "no such option" in err) == (2, True)
