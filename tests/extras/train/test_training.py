"""What is learnt: the model, its steps and its text against others' code; what is
decided of losses; the command.
"""

from __future__ import annotations

import json
import math
import random
import time
from dataclasses import replace
from pathlib import Path

import numpy
import pytest
import torch
import torch.nn.functional as F
import training as script
from fake_machine import FakeLaunch, KnownProber
from paths import ROOT
from scipy import stats
from torch.utils.flop_counter import FlopCounterMode

from ffnbench.api import preparing
from ffnbench.common.errors import FfnbenchError
from ffnbench.extras.train import measuring
from ffnbench.extras.train.decoder import RotaryAttention
from ffnbench.extras.train.losses import (
    front_of,
    learnt,
    mean_paired_difference,
    scatter_of,
    verdicts_of,
)
from ffnbench.extras.train.measuring import OfAllRuns
from ffnbench.extras.train.picture import training_figure
from ffnbench.extras.train.plan import (
    Train,
    Trained,
    TrainRequest,
    plan_train,
    trained_by,
)
from ffnbench.extras.train.table import training_frame, training_records
from ffnbench.extras.train.text import read_text
from ffnbench.extras.train.worker import TrainingRun
from ffnbench.following import Following, ProgressListener
from ffnbench.messages import Open, TakeSample
from ffnbench.plan import Probe, cost_of
from ffnbench.report.files.store import read_report
from ffnbench.report.terminal import plain
from ffnbench.result import Progress, Sample, Verdict
from ffnbench.run import world
from ffnbench.run.resources import memory_needed
from ffnbench.run.worker_pool import WorkerPool
from ffnbench.stats.cells import cells_of_plan
from ffnbench.worker.backends.building import build_module

ASKED = TrainRequest(
    variants="relu,swiglu",
    d_model=32,
    layers=2,
    steps=6,
    context=16,
    batch=4,
    threads=1,
    device="cpu",
)

SMALL = ("train", "relu,swiglu")


@pytest.fixture(scope="module")
def text(tmp_path_factory) -> str:
    """A text that can be learnt: words of a few letters, in 30 files."""
    folder, draw = tmp_path_factory.mktemp("text"), random.Random(0)
    words = ["".join(draw.choices("abcdefgh", k=draw.randint(2, 5))) for _ in range(50)]
    for number in range(30):
        (folder / f"{number}.txt").write_text(" ".join(draw.choices(words, k=400)))
    return str(folder)


def planned(text: str, **asked):
    return plan_train(replace(ASKED, text=text, **asked), Probe())


def runs(text: str, **asked):
    return [case for case in planned(text, **asked).cases if trained_by(case)]


# the model


@pytest.mark.parametrize("variant", ["relu", "swiglu", "swiglu@moe=4x2"])
def test_parameters_and_flops_are_those_that_torch_counts(
    text: str, variant: str
) -> None:
    case = planned(text, variants=variant).cases[0]
    module, cost = (
        build_module(case.ffn, device="cpu", dtype=torch.float32),
        cost_of(case, Probe()),
    )
    assert cost.params == sum(p.numel() for p in module.parameters())
    if "moe" in variant:
        return  # its products are grouped, and torch's counter knows them not
    x = torch.randn(4, 16, 32, requires_grad=True)
    with FlopCounterMode(display=False) as forward:
        y = module(x)
    with FlopCounterMode(display=False) as backward:
        y.sum().backward()
    # which knows nothing of attention on a CPU: each token's with itself and those
    # before it, keys and values
    attention = 4 * case.ffn.layers * (16 * 17 // 2) * 2 * 2 * 32
    assert cost.flops_forward * 64 == forward.get_total_flops() + attention
    assert cost.flops_backward * 64 == backward.get_total_flops() + 2 * attention


def test_a_token_sees_none_after_it_and_places_only_as_distances(text: str) -> None:
    module = build_module(planned(text).cases[0].ffn, device="cpu", dtype=torch.float64)
    x = torch.randn(1, 12, 32, dtype=torch.float64)
    other = x.clone()
    other[:, 7] += 1
    assert torch.equal(module(x)[:, :7], module(other)[:, :7])
    assert not torch.allclose(module(x)[:, 7:], module(other)[:, 7:])
    attention = module.blocks[0].attention
    assert isinstance(attention, RotaryAttention)
    q, k, _ = attention.heads(
        torch.ones(1, 12, 32, dtype=torch.float64)
    )  # the same at every place
    scores = (q @ k.transpose(-2, -1))[0, 0]
    for distance in range(1, 5):
        assert torch.allclose(
            scores.diagonal(-distance),
            scores[distance, 0].expand(12 - distance),
            atol=1e-6,
        )
    assert not math.isclose(scores[1, 0].item(), scores[4, 0].item(), rel_tol=1e-4)


def test_variants_share_all_but_the_ffn_and_seeds_share_no_batch(text: str) -> None:
    relu, swiglu, *others = (TrainingRun(case) for case in runs(text))
    for name, value in relu.model.state_dict().items():
        if ".ffn." not in name:
            assert torch.equal(value, swiglu.model.state_dict()[name]), name
    assert torch.equal(relu._batch(), swiglu._batch())
    seen = set()
    for run in (relu, *others[::2]):
        for step in range(6):
            run.step = step
            seen.add(run._batch().numpy().tobytes())
    assert len(seen) == 3 * 6


def test_a_step_is_that_of_a_loop_written_by_hand(text: str) -> None:
    """Cross entropy by its definition, AdamW of torch, the schedule as docs/training.md
    has it.
    """
    case = runs(text, steps=40, seeds=1)[0]
    run, other = TrainingRun(case), TrainingRun(case)
    run.train_for(1e9)
    model, losses = other.model, []
    optimizer = torch.optim.AdamW(
        model.parameters(), betas=(0.9, 0.999), weight_decay=0.01
    )
    for step in range(40):
        rate = 3e-3 * (
            (step + 1) / 2
            if step < 2
            else 0.1 + 0.45 * (1 + math.cos(math.pi * (step - 2) / 38))
        )
        optimizer.param_groups[0]["lr"] = rate
        other.step = step
        batch = other._batch()
        logits = model(batch[:, :-1])
        loss = -F.log_softmax(logits, dim=-1).gather(-1, batch[:, 1:, None]).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    for ours, by_hand in zip(run.model.parameters(), model.parameters(), strict=True):
        assert torch.allclose(ours, by_hand, rtol=1e-3, atol=1e-5)
    assert losses[-1] < 0.9 * losses[0]  # it learns


def test_in_one_go_or_step_by_step_it_is_the_same_loss_to_the_bit(text: str) -> None:
    case = runs(text, steps=40, variants="swiglu@dropout=0.1", seeds=1)[0]
    whole, run = TrainingRun(case).train_for(1e9), TrainingRun(case)
    told = run.train_for(1e-9)
    assert told.step == 1
    while told.held_out is None:
        told = run.train_for(1e-9)
    assert (told.held_out, told.curve) == (whole.held_out, whole.curve)
    assert (
        whole.held_out
        != TrainingRun(runs(text, steps=40, seeds=2)[-1]).train_for(1e9).held_out
    )


def test_what_is_held_out_is_looked_at_after_every_tenth_of_the_steps(
    text: str,
) -> None:
    case = runs(text, steps=25, seeds=1, variants="relu@dropout=0.5")[0]
    told, other = TrainingRun(case).train_for(1e9), TrainingRun(case)
    found = dict(told.curve)
    assert list(found) == [3, 5, 8, 10, 13, 15, 18, 20, 23, 25]
    assert found[25] == told.held_out != told.choosing
    while other.step < 10:
        other.train_for(0.0)
    _, parts = read_text(text, 1, 1)
    places = numpy.linspace(
        0, len(parts.held_out) - 17, len(parts.held_out) // 17
    ).astype(int)
    sequences = torch.tensor(
        [list(parts.held_out[place : place + 17]) for place in places]
    )
    with torch.no_grad():
        logits = other.model.eval()(sequences[:, :-1])
    loss = -F.log_softmax(logits, dim=-1).gather(-1, sequences[:, 1:, None]).mean()
    assert found[10] == pytest.approx(float(loss), rel=1e-4)


def test_what_diverges_has_a_step_and_no_loss(text: str) -> None:
    told = TrainingRun(runs(text, lr="9", steps=60)[0]).train_for(1e9)
    assert 1 < told.diverged <= told.step <= 60
    assert told.held_out is None
    run = TrainingRun(runs(text)[0])
    while run.step < 6:
        run.train_for(0)
    run.model.head.weight.data.fill_(math.nan)
    told = run.train_for(0)
    assert (told.diverged, told.held_out) == (6, None)


# the text


def test_parts_of_a_text_share_no_file(text: str, tmp_path: Path) -> None:
    told, parts = read_text(text, 1, 1)
    files = [path.read_bytes() for path in Path(text).iterdir()]
    for content in files:
        assert (
            sum(
                content in part
                for part in (parts.train, parts.choosing, parts.held_out)
            )
            == 1
        )
    assert (
        told.bytes
        == sum(map(len, files))
        == len(parts.train) + len(parts.choosing) + len(parts.held_out)
    )
    one = tmp_path / "one.bin"
    one.write_bytes(bytes(range(256)) * 40)
    told, parts = read_text(str(one), 1, 1)
    assert parts.train + parts.choosing + parts.held_out == one.read_bytes()
    for number in range(3):
        (tmp_path / "few").mkdir(exist_ok=True)
        (tmp_path / "few" / f"{number}.txt").write_text("a few books " * 500)
    _, few = read_text(str(tmp_path / "few"), 1, 1)
    assert all((few.train, few.choosing, few.held_out))
    assert told.printable == pytest.approx((95 + 3 + 128) / 256)


def test_what_memory_does_not_hold_fails_before_anything_is_built(text: str) -> None:
    launch = FakeLaunch()
    report = train(
        replace(ASKED, text=text, layers=10**6), launch, memory=lambda: 10**10
    )
    assert all(
        "of memory, and 9.31 GiB are available" in row["failure"]
        for row in report.rows()
    )
    assert not [do for _, do, _ in launch.log if do in (Open, Train)]


def test_memory_to_train_with_is_that_of_four_copies_of_all_weights(text: str) -> None:
    case = runs(text, d_model=64, layers=3)[0]
    state = sum(
        4 * p.numel() * p.element_size()
        for p in TrainingRun(case).model.decoder.parameters()
    )
    assert memory_needed([case]) == pytest.approx(state, rel=0.01)  # without norms


def test_a_default_text_that_is_too_short_is_named() -> None:
    with pytest.raises(FfnbenchError, match="the default text, the standard library's"):
        planned("", context=10**6, batch=1000)


def test_notes_tell_of_one_seed_of_junk_and_of_a_short_text(tmp_path: Path) -> None:
    junk = tmp_path / "junk.bin"
    junk.write_bytes(bytes(range(20)) * 100)
    said = " ".join(note.text for note in planned(str(junk), seeds=1, steps=100).notes)
    assert "one seed" in said
    assert "are no text" in said
    assert "seen 4.0 times" in said


# what is decided


def report_of(
    text: str,
    losses: dict[tuple[str, int], float],
    choosing: dict | None = None,
    **asked,
):
    """A report with these losses, by variant (or variant and rate) and seed."""
    plan = planned(text, **asked)
    samples = []
    for case in plan.cases:
        if trained_by(case):
            name = plan.name_of(case.label)
            for metric, values in (("loss", losses), ("choosing_loss", choosing or {})):
                value = values.get(
                    (name, case.training.rate, case.training.seed),
                    values.get((name, case.training.seed)),
                )
                if value is not None:
                    samples.append(
                        Sample(
                            case=case.label,
                            metric=metric,
                            worker=0,
                            round=0,
                            order=0,
                            value=value,
                            calls=1,
                        )
                    )
    from ffnbench.api.preparing import Prepared, new_report
    from ffnbench.result import CaseCost

    costs = tuple(
        CaseCost(case=case.label, cost=cost_of(case, Probe())) for case in plan.cases
    )
    return replace(
        new_report(plan, Prepared(plan=plan, costs=costs).costs),
        samples=tuple(samples),
        environment=None,
    )


def test_differences_are_paired_by_seed_as_scipy_pairs_them(text: str) -> None:
    relu, other = [2.0, 2.3, 1.8, 2.1], [1.95, 2.26, 1.74, 2.07]
    losses = {("relu", s): v for s, v in enumerate(relu)} | {
        ("swiglu", s): v for s, v in enumerate(other)
    }
    found = learnt(report_of(text, losses, seeds=4))["swiglu"]
    expected = stats.ttest_rel(other, relu)
    assert found.difference.p_value() == pytest.approx(expected.pvalue)
    assert found.difference.interval(0.95) == pytest.approx(
        tuple(expected.confidence_interval(0.95))
    )
    assert found.verdict is Verdict.FASTER
    assert (
        learnt(
            report_of(
                text, {key: v for key, v in losses.items() if key[1] == 0}, seeds=4
            )
        )["swiglu"].verdict
        is Verdict.UNCLEAR
    )


@pytest.mark.parametrize(("seeds", "wild"), [(2, 1.0), (3, 1.0), (5, 1.0), (3, 4.0)])
def test_a_variant_beside_itself_has_a_verdict_in_five_of_a_hundred_at_most(
    seeds: int, wild: float
) -> None:
    """Five variants that are the reference by other seeds, whose losses scatter by
    0.014 as those of real runs do, half of it common to a seed; one of them maybe more.
    Any of them better or worse counts.
    """
    draw, wrong, tries = random.Random(seeds), 0, 600
    for _ in range(tries):
        of_seed = [draw.gauss(1.4, 0.01) for _ in range(seeds)]
        runs = [
            {
                s: x + draw.gauss(0, 0.01) * (wild if v == 5 else 1)
                for s, x in enumerate(of_seed)
            }
            for v in range(6)
        ]
        common = scatter_of(runs)
        means = {
            v: mean_paired_difference(run, runs[0], common)
            for v, run in enumerate(runs)
            if v
        }
        wrong += any(
            one in (Verdict.FASTER, Verdict.SLOWER)
            for one in verdicts_of(means).values()
        )
    allowed = (
        0.05 if wild == 1 else 0.1
    )  # a scatter that nobody knows of costs twice that
    assert wrong <= stats.binom.ppf(0.999, tries, allowed)


def test_the_scatter_of_all_variants_is_that_of_a_textbook() -> None:
    """Two-way without interaction, by ordinary least squares."""
    draw = random.Random(1)
    rows = [[draw.gauss(0, 1) for _ in range(4)] for _ in range(3)]
    design = [
        [float(i == v) for i in range(3)] + [float(i == s) for i in range(1, 4)]
        for v in range(3)
        for s in range(4)
    ]
    values = [rows[v][s] for v in range(3) for s in range(4)]
    fit, *_ = numpy.linalg.lstsq(numpy.array(design), numpy.array(values), rcond=None)
    rest = numpy.array(values) - numpy.array(design) @ fit
    found = scatter_of([dict(enumerate(row)) for row in rows])
    assert found.freedom == 6
    assert found.variance == pytest.approx(float(rest @ rest) / 6)


def test_without_a_time_nothing_is_on_the_front(text: str) -> None:
    report = report_of(text, {("relu", 0): 2.0, ("swiglu", 0): 1.9}, seeds=1)
    assert front_of(report, learnt(report)) == []


def test_a_rate_is_chosen_where_it_is_not_reported(text: str) -> None:
    losses = {
        ("relu", 1e-3, 0): 2.0,
        ("relu", 2e-3, 0): 1.5,
        ("swiglu", 1e-3, 0): 1.9,
        ("swiglu", 2e-3, 0): 1.8,
    }
    choosing = {
        ("relu", 1e-3, 0): 1.0,
        ("relu", 2e-3, 0): 1.1,
        ("swiglu", 1e-3, 0): 1.1,
        ("swiglu", 2e-3, 0): 1.0,
    }
    found = learnt(report_of(text, losses, choosing, lr="1e-3,2e-3", seeds=1))
    assert (found["relu"].rate, found["relu"].loss.mean) == (1e-3, 2.0)
    assert (found["swiglu"].rate, found["swiglu"].loss.mean) == (2e-3, 1.8)


# the command


def learning_of(loss: float) -> Trained:
    return Trained(
        step=6,
        step_s=0.03,
        held_out=loss,
        choosing=loss,
        curve=((3, loss + 1.1), (6, loss)),
    )


def train(request: TrainRequest, launch: FakeLaunch, **outside):
    """What `train` gives on such a machine."""
    machine = world.World(launch=launch, prober=KnownProber, **outside)
    return measuring.measure_training(
        preparing.prepare_plan(request, machine, plan_train), machine
    )


def trained(
    text: str, on_machine, tmp_path: Path, trouble: dict | None = None, **asked
):
    """The whole journey, with processes that tell made-up losses; the file, read
    again.
    """
    plan = planned(text, **asked)
    answers = {
        (Train, case.label): learning_of(
            1.9 + case.training.seed / 100 - 0.1 * case.label.startswith("swiglu")
        )
        for case in plan.cases
        if trained_by(case)
    }
    launch = FakeLaunch(trouble=answers | (trouble or {}))
    return train(replace(ASKED, text=text, **asked), launch), launch


def test_who_learns_best_at_an_end_of_the_rates_is_told(text: str) -> None:
    losses = {
        ("relu", rate, 0): loss
        for rate, loss in ((1e-3, 2.0), (2e-3, 1.9), (4e-3, 2.0))
    }
    losses |= {
        ("swiglu", rate, 0): loss
        for rate, loss in ((1e-3, 1.9), (2e-3, 1.8), (4e-3, 1.7))
    }
    report = report_of(text, losses, losses, lr="1e-3,2e-3,4e-3", seeds=1)
    shown = plain(training_frame(report), 80)
    assert [line.split()[:2] for line in shown.splitlines() if line[:5] in ("relu ", "swigl")] == [
        ["relu", ".002"], ["swiglu", ".004"],
    ]  # fmt: skip
    assert "at an end of the list for swiglu: --lr 0.001,0.002,0.004,0.008" in " ".join(
        shown.split()
    )
    assert "warning" not in plain(training_frame(replace(report, interrupted=True)), 80)
    assert "warning" not in plain(
        training_frame(report_of(text, losses, losses, lr="2e-3", seeds=1)), 80
    )


def test_a_budget_is_for_training_and_what_it_leaves_for_times(text: str) -> None:
    """20 s, of which a chunk takes 3: training ends within the first run, and steps
    have a time as well.
    """
    clock = [0.0]

    def chunk(worker):
        clock[0] += 3
        return Trained(step=1, step_s=3.0)

    launch = FakeLaunch(trouble={(Train, case.label): chunk for case in runs(text)})
    report = train(replace(ASKED, text=text, budget=20.0), launch, now=lambda: clock[0])
    asked = [do for _, do, _ in launch.log if do in (Train, TakeSample)]
    trained = asked.count(Train)
    assert 4 <= trained <= 6
    assert asked[:trained] == [Train] * trained
    assert all(row["step_s"] and row["loss"] is None for row in report.rows())
    assert "--resume" in report.stopped


def test_the_time_of_all_runs_is_told_once() -> None:
    """A quarter of a run is done, 30 s of it are left, and three more take 40 s
    each.
    """
    said = []

    class Listener(ProgressListener):
        left = 3

        def __call__(self, event: Progress) -> None:
            said.append(event.eta_s)

        def tell(self, text: str) -> None:
            said.append(text)

    progress = OfAllRuns(Listener(), tells_time=True)
    for _ in range(2):
        progress(Progress(done=0.25, text="", eta_s=30.0))
    assert said == ["4 runs will take about 3 min", 150.0, 150.0]


def test_the_time_left_of_a_run_is_that_of_the_steps_that_are_left(text: str) -> None:
    """Two of six are done, and one takes 3 s."""
    cell, said = cells_of_plan(planned(text))[0], []
    answers = iter((Trained(step=2, step_s=3.0), learning_of(1.9)))
    launch = FakeLaunch(trouble={(Train, cell.reference): lambda worker: next(answers)})

    class Listener(ProgressListener):
        def __call__(self, event: Progress) -> None:
            said.append(event.eta_s)

    pool = WorkerPool(cell, launch, time.monotonic)
    measuring.train_case(
        cell, pool, Following(progress=Listener()), math.inf, time.monotonic
    )
    assert said == [4 * 3.0]


def test_the_committed_run_of_an_earlier_version_agrees_with_itself() -> None:
    report = read_report(ROOT / "results/amd-epyc-2cpu/training/six-forms.json")
    rows = training_records(report)
    for row in rows:
        assert row["training_s"] == pytest.approx(
            800 * rows[0]["step_s"] * row["step_ratio"]
        )
    assert {row["variant"] for row in rows if row["pareto_front_step"]} == {
        "swiglu",
        "geglu",
        "bilinear",
    }
    losses, differences, of_step = training_figure(report).axes
    assert losses.get_ylabel() == "training loss, nats per byte"
    ends, beside_relu = (
        [line.get_ydata()[-1] for line in axes.lines] for axes in (losses, differences)
    )
    assert beside_relu == pytest.approx([end - ends[0] for end in ends])
    dots = [line for line in of_step.lines if line.get_markerfacecolor() != "none"]
    places = [line.get_xdata()[0] for line in dots]
    assert places == pytest.approx([places[0] * row["step_ratio"] for row in rows])
    assert [line.get_ydata()[0] for line in dots] == [row["loss"] for row in rows]


def test_what_shares_no_seed_is_shown(text: str) -> None:
    losses = {
        ("relu", 0): 2.0,
        ("gelu", 1): 2.0,
        ("swiglu", 0): 1.9,
        ("swiglu", 1): 1.9,
    }
    assert "gelu" in plain(
        training_frame(report_of(text, losses, variants="relu,gelu,swiglu")), 80
    )


def test_a_journal_of_a_run_that_was_killed_is_shown_and_columns_are_told(
    text, on_machine, in_process, tmp_path
) -> None:
    plan = planned(text)
    answers = {
        (Train, case.label): learning_of(1.9) for case in plan.cases if trained_by(case)
    }
    journal = tmp_path / "run.json.journal"
    kept = []

    def killed(worker):
        kept.append(journal.read_bytes())
        return learning_of(1.9)

    on_machine(
        FakeLaunch(trouble=answers | {(Train, "relu@of=run@lr=0.003@seed=1"): killed})
    )
    asked = (*SMALL, "--d-model=32", "--layers=2", "--steps=6", "--context=16", "--batch=4", "--threads=1",
             "--text", text, "--device=cpu", "-o", tmp_path / "run.json", "-q")  # fmt: skip
    code, out, err = in_process(*asked)
    assert code == 0, err
    assert "1.900" in out
    for cut in (kept[0], kept[0][: kept[0].rindex(b"\n", 0, len(kept[0]) - 1)]):
        journal.write_bytes(cut)
        code, out, err = in_process("report", journal)
        assert code == 0, err
        assert "relu" in out
    code, _, err = in_process("check", tmp_path / "run.json")
    assert code == 2
    assert "says what is learnt" in err


def test_what_diverges_is_a_row(text: str, on_machine, tmp_path: Path) -> None:
    diverged = Trained(step=3, step_s=0.03, diverged=3)
    trouble = {
        (Train, f"swiglu@of=run@lr=0.003@seed={seed}"): diverged for seed in range(3)
    }
    report, _ = trained(text, on_machine, tmp_path, trouble)
    assert report.rows()[1]["loss"] is None
    assert "diverged at step 3" in report.rows()[1]["failure"]
    assert (
        "swiglu: diverged at step 3 (seed 0, rate 0.003): try a smaller --lr"
        in " ".join(str(report).split())
    )


def test_what_is_interrupted_goes_on_where_it_was(
    text: str, on_machine, in_process, tmp_path: Path
) -> None:
    plan = planned(text)
    answers = {
        (Train, case.label): learning_of(1.9) for case in plan.cases if trained_by(case)
    }
    stop = {(Train, "relu@of=run@lr=0.003@seed=1"): KeyboardInterrupt()}
    asked = (*SMALL, "--d-model=32", "--layers=2", "--steps=6", "--context=16", "--batch=4", "--threads=1",
             "--text", text, "--device", "cpu", "-o", tmp_path / "run.json", "-q")  # fmt: skip
    on_machine(FakeLaunch(trouble=answers | stop))
    code, out, _ = in_process(*asked)
    assert code == 130
    assert "interrupted: 2 of 7 groups are done" in " ".join(out.split())
    launch = FakeLaunch(trouble=answers)
    on_machine(launch)
    code, out, err = in_process(*asked, "--resume")
    assert code == 0, err
    done = [label for _, do, label in launch.log if do is Train]
    assert done == [
        f"{name}@of=run@lr=0.003@seed={seed}"
        for seed in (1, 2)
        for name in ("relu", "swiglu")
    ]
    assert {label for _, do, label in launch.log if do is TakeSample} == {
        "relu@of=step", "swiglu@of=step",
    }  # fmt: skip
    assert len(json.loads((tmp_path / "run.json").read_text())["plan"]["cases"]) == 8
    code, _, err = in_process(*asked, "--resume", "--lr", "1e-3")
    assert code == 2
    assert "another plan" in err


@pytest.mark.slow
def test_a_real_run_of_jobs_equals_one_of_this_process(
    text: str, tmp_path: Path
) -> None:
    from shell import ffnbench

    asked = (*SMALL, "--d-model=32", "--layers=1", "--steps=20", "--context=16", "--batch=4", "--seeds=2",
             "--text", text, "--threads=1")  # fmt: skip
    found = []
    for name, more in (("here", ()), ("jobs", ("--on", "local"))):
        ran = ffnbench(*asked, "-o", str(tmp_path / f"{name}.json"), *more)
        assert ran.returncode == 0, ran.stderr
        found.append(
            {
                name: one.losses
                for name, one in learnt(read_report(tmp_path / f"{name}.json")).items()
            }
        )
    assert found[0] == found[1]


def test_the_benchmark_of_a_step_runs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["training.py", "--steps", "5"])
    script.main()
    assert "of a loop written by hand (1 turns of 5 steps)" in capsys.readouterr().out
