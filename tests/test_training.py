"""What is learnt: the model, its steps and its text against others' code; what is decided of losses; the command."""

from __future__ import annotations

import json
import math
import random
from dataclasses import replace
from pathlib import Path

import numpy
import pytest
import torch
import torch.nn.functional as F
from conftest import FakeLaunch
from scipy import stats
from torch.utils.flop_counter import FlopCounterMode

from ffnbench import api
from ffnbench.backends.building import build
from ffnbench.errors import FfnbenchError
from ffnbench.plan import NoProbe, cost_of
from ffnbench.planning.training import plan_train
from ffnbench.report.files.store import load
from ffnbench.report.tables.text import plain
from ffnbench.report.tables.training import training_table
from ffnbench.request import TrainRequest
from ffnbench.result import Sample, Verdict
from ffnbench.stats import training as learning
from ffnbench.stats.cells import cells_of
from ffnbench.stats.pairs import Pair
from ffnbench.stats.training import Learns, learnt, paired, scatter_of, verdicts
from ffnbench.training.decoder_module import RotaryAttention
from ffnbench.training.text import read_text
from ffnbench.worker.training import Trainee

ASKED = TrainRequest(
    variants="relu,swiglu", d_model=32, layers=2, steps=6, context=16, batch=4, threads=1, device="cpu"
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
    return plan_train(replace(ASKED, text=text, **asked), NoProbe())


def runs(text: str, **asked):
    return [case for case in planned(text, **asked).cases if case.training]


# the model


@pytest.mark.parametrize("variant", ["relu", "swiglu", "swiglu@moe=4x2"])
def test_parameters_and_flops_are_those_that_torch_counts(text: str, variant: str) -> None:
    case = planned(text, variants=variant).cases[0]
    module, cost = build(case.ffn, device="cpu", dtype=torch.float32), cost_of(case, NoProbe())
    assert cost.params == sum(p.numel() for p in module.parameters())
    if "moe" in variant:
        return  # its products are grouped, and torch's counter knows them not
    x = torch.randn(4, 16, 32, requires_grad=True)
    with FlopCounterMode(display=False) as forward:
        y = module(x)
    with FlopCounterMode(display=False) as backward:
        y.sum().backward()
    # which knows nothing of attention on a CPU: each token's with itself and those before it, keys and values
    attention = 4 * case.ffn.layers * (16 * 17 // 2) * 2 * 2 * 32
    assert cost.flops_forward * 64 == forward.get_total_flops() + attention
    assert cost.flops_backward * 64 == backward.get_total_flops() + 2 * attention


def test_a_token_sees_none_after_it_and_places_only_as_distances(text: str) -> None:
    module = build(planned(text).cases[0].ffn, device="cpu", dtype=torch.float64)
    x = torch.randn(1, 12, 32, dtype=torch.float64)
    other = x.clone()
    other[:, 7] += 1
    assert torch.equal(module(x)[:, :7], module(other)[:, :7])
    assert not torch.allclose(module(x)[:, 7:], module(other)[:, 7:])
    attention = module.blocks[0].attention
    assert isinstance(attention, RotaryAttention)
    q, k, _ = attention.heads(torch.ones(1, 12, 32, dtype=torch.float64))  # the same at every place
    scores = (q @ k.transpose(-2, -1))[0, 0]
    for distance in range(1, 5):
        assert torch.allclose(scores.diagonal(-distance), scores[distance, 0].expand(12 - distance), atol=1e-6)
    assert not math.isclose(scores[1, 0].item(), scores[4, 0].item(), rel_tol=1e-4)


def test_variants_share_all_but_the_ffn_and_the_bytes(text: str) -> None:
    one, other = (Trainee(case, None) for case in runs(text, seeds=1))
    for name, value in one.model.state_dict().items():
        if ".ffn." not in name:
            assert torch.equal(value, other.model.state_dict()[name]), name
    assert torch.equal(one._batch(), other._batch())


def test_a_step_is_that_of_a_loop_written_by_hand(text: str) -> None:
    """Cross entropy by its definition, AdamW of torch, the schedule as docs/training.md has it."""
    case = runs(text, steps=40, seeds=1)[0]
    trainee, other = Trainee(case, None), Trainee(case, None)
    trainee.go(1e9)
    model, losses = other.model, []
    optimizer = torch.optim.AdamW(model.parameters(), betas=(0.9, 0.999), weight_decay=0.01)
    for step in range(40):
        rate = 3e-3 * ((step + 1) / 2 if step < 2 else 0.1 + 0.45 * (1 + math.cos(math.pi * (step - 2) / 38)))
        optimizer.param_groups[0]["lr"] = rate
        other.step = step
        batch = other._batch()
        logits = model(batch[:, :-1])
        loss = -F.log_softmax(logits, dim=-1).gather(-1, batch[:, 1:, None]).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert [loss for _, loss, _ in trainee.curve] == pytest.approx(losses, rel=1e-4)
    assert losses[-1] < 0.9 * losses[0]  # it learns


def test_from_a_checkpoint_it_goes_on_to_the_same_loss_to_the_bit(text: str, tmp_path: Path) -> None:
    case = runs(text, steps=90, variants="swiglu@dropout=0.1", seeds=1)[0]
    whole = Trainee(case, None).go(1e9)
    parts, kept = [], tmp_path / "kept" / "run.pt"
    for _ in range(500):
        trainee = Trainee(case, kept)  # a process that was ended after one step, and begins again
        told = trainee.go(1e-9)
        parts.append(trainee.step)
        if "loss" in told:
            break
    assert parts[:3] == [1, 2, 3]
    assert told["loss"] == whole["loss"]
    assert [point[:2] for point in told["curve"]] == [point[:2] for point in whole["curve"]]
    assert whole["loss"] == Trainee(case, None).go(1e9)["loss"]
    assert whole["loss"] != Trainee(runs(text, steps=90, seeds=2)[-1], None).go(1e9)["loss"]


def test_a_full_disk_loses_no_run(text: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    trainee = Trainee(runs(text)[0], tmp_path / "file" / "run.pt")
    trainee.go(1e-9)
    assert "no checkpoint is kept" in trainee.go(1e-9)["saved"]
    assert "loss" in trainee.go(1e9)


def test_a_checkpoint_that_is_cut_off_begins_anew(text: str, tmp_path: Path) -> None:
    case, kept = runs(text)[0], tmp_path / "run.pt"
    Trainee(case, kept).go(1e-9)
    kept.write_bytes(kept.read_bytes()[:-1000])
    trainee = Trainee(case, kept)
    assert trainee.step == 0
    assert trainee.go(1e9)["loss"] == Trainee(case, None).go(1e9)["loss"]


def test_a_loss_that_is_not_finite_at_the_end_has_diverged(text: str) -> None:
    trainee = Trainee(runs(text)[0], None)
    while trainee.step < 6:
        trainee.go(0)
    trainee.model.head.weight.data.fill_(math.nan)
    told = trainee.go(0)
    assert told["diverged"] == 6
    assert "loss" not in told


def test_a_rate_that_is_too_high_diverges_at_a_step(text: str) -> None:
    told = Trainee(runs(text, lr="9", steps=60)[0], None).go(1e9)
    assert 1 < told["diverged"] <= told["step"] <= 60
    assert "loss" not in told


# the text


def test_parts_of_a_text_share_no_file(text: str, tmp_path: Path) -> None:
    told, parts = read_text(text, 1)
    files = [path.read_bytes() for path in Path(text).iterdir()]
    for content in files:
        assert sum(content in part for part in (parts.train, parts.choosing, parts.held_out)) == 1
    assert told.bytes == sum(map(len, files)) == len(parts.train) + len(parts.choosing) + len(parts.held_out)
    one = tmp_path / "one.bin"
    one.write_bytes(bytes(range(256)) * 40)
    told, parts = read_text(str(one), 1)
    assert parts.train + parts.choosing + parts.held_out == one.read_bytes()
    for number in range(3):
        (tmp_path / "few").mkdir(exist_ok=True)
        (tmp_path / "few" / f"{number}.txt").write_text("a few books " * 500)
    _, few = read_text(str(tmp_path / "few"), 1)
    assert all((few.train, few.choosing, few.held_out))
    assert told.printable == pytest.approx((95 + 3 + 128) / 256)


@pytest.mark.parametrize(
    ("asked", "error", "hint"),
    [
        ({"context": 4000, "batch": 400}, "too short", "--batch"),
        ({"text": "/nowhere"}, "is no file and no folder", "path"),
        ({"d_model": 100}, "--d-model 100 can't be cut into heads of 32", "--d-model 96"),
        ({"steps": 0}, "steps must be a positive integer", "--steps"),
        ({"seeds": 99}, "more than 20", "3 to 5"),
        ({"lr": "fast"}, "no number", "3e-3"),
        ({"lr": "-1"}, "out of range", "--lr"),
        ({"dtype": "float16"}, "gradients scaled", "bfloat16"),
        ({"variants": "relu,swiglu@backend=compile"}, "workload of its own", "@backend"),
    ],
)
def test_what_can_not_be_trained_is_told_before(text: str, asked: dict, error: str, hint: str) -> None:
    with pytest.raises(FfnbenchError) as caught:
        plan_train(replace(ASKED, **{"text": text, **asked}), NoProbe())
    assert error in caught.value.message
    assert hint in caught.value.hint


def test_notes_tell_of_one_seed_of_junk_and_of_a_short_text(tmp_path: Path) -> None:
    junk = tmp_path / "junk.bin"
    junk.write_bytes(bytes(range(20)) * 100)
    said = " ".join(note.text for note in planned(str(junk), seeds=1, steps=100).notes)
    assert "one seed" in said
    assert "are no text" in said
    assert "seen 4.0 times" in said


# what is decided


def report_of(text: str, losses: dict[tuple[str, int], float], choosing: dict | None = None, **asked):
    """A report with these losses, by variant (or variant and rate) and seed."""
    plan = planned(text, **asked)
    samples = []
    for case in plan.cases:
        if case.training:
            name = plan.name_of(case.label)
            for metric, values in (("loss", losses), ("choosing_loss", choosing or {})):
                value = values.get(
                    (name, case.training.rate, case.training.seed), values.get((name, case.training.seed))
                )
                if value is not None:
                    samples.append(
                        Sample(case=case.label, metric=metric, worker=0, round=0, order=0, value=value, calls=1)
                    )
    from ffnbench.api.preparing import Prepared, new_report
    from ffnbench.result import CaseCost

    costs = tuple(CaseCost(case=case.label, cost=cost_of(case, NoProbe())) for case in plan.cases)
    return replace(new_report(plan, Prepared(plan=plan, costs=costs).costs), samples=tuple(samples), environment=None)


def test_differences_are_paired_by_seed_as_scipy_pairs_them(text: str) -> None:
    relu, other = [2.0, 2.3, 1.8, 2.1], [1.95, 2.26, 1.74, 2.07]
    losses = {("relu", s): v for s, v in enumerate(relu)} | {("swiglu", s): v for s, v in enumerate(other)}
    found = learnt(report_of(text, losses, seeds=4))["swiglu"]
    expected = stats.ttest_rel(other, relu)
    assert found.difference.p_value() == pytest.approx(expected.pvalue)
    assert found.difference.interval(0.95) == pytest.approx(tuple(expected.confidence_interval(0.95)))
    assert found.verdict is Learns.BETTER
    assert (
        learnt(report_of(text, {key: v for key, v in losses.items() if key[1] == 0}, seeds=4))["swiglu"].verdict
        is Learns.UNCLEAR
    )


@pytest.mark.parametrize(("seeds", "wild"), [(2, 1.0), (3, 1.0), (5, 1.0), (3, 4.0)])
def test_a_variant_beside_itself_has_a_verdict_in_five_of_a_hundred_at_most(seeds: int, wild: float) -> None:
    """Five variants that are the reference by other seeds, whose losses scatter by 0.014 as those of real runs do, half
    of it common to a seed; one of them maybe more. Any of them better or worse counts.
    """
    draw, wrong, tries = random.Random(seeds), 0, 600
    for _ in range(tries):
        of_seed = [draw.gauss(1.4, 0.01) for _ in range(seeds)]
        runs = [{s: x + draw.gauss(0, 0.01) * (wild if v == 5 else 1) for s, x in enumerate(of_seed)} for v in range(6)]
        common = scatter_of(runs)
        means = {v: paired(run, runs[0], common) for v, run in enumerate(runs) if v}
        wrong += any(one in (Learns.BETTER, Learns.WORSE) for one in verdicts(means).values())
    allowed = 0.05 if wild == 1 else 0.1  # a scatter that nobody knows of costs twice that
    assert wrong <= stats.binom.ppf(0.999, tries, allowed)


def test_the_scatter_of_all_variants_is_that_of_a_textbook() -> None:
    """Two-way without interaction, by ordinary least squares."""
    draw = random.Random(1)
    rows = [[draw.gauss(0, 1) for _ in range(4)] for _ in range(3)]
    design = [
        [float(i == v) for i in range(3)] + [float(i == s) for i in range(1, 4)] for v in range(3) for s in range(4)
    ]
    values = [rows[v][s] for v in range(3) for s in range(4)]
    fit, *_ = numpy.linalg.lstsq(numpy.array(design), numpy.array(values), rcond=None)
    rest = numpy.array(values) - numpy.array(design) @ fit
    found = scatter_of([dict(enumerate(row)) for row in rows])
    assert found.freedom == 6
    assert found.variance == pytest.approx(float(rest @ rest) / 6)


def test_a_rate_is_chosen_where_it_is_not_reported(text: str) -> None:
    losses = {("relu", 1e-3, 0): 2.0, ("relu", 2e-3, 0): 1.5, ("swiglu", 1e-3, 0): 1.9, ("swiglu", 2e-3, 0): 1.8}
    choosing = {("relu", 1e-3, 0): 1.0, ("relu", 2e-3, 0): 1.1, ("swiglu", 1e-3, 0): 1.1, ("swiglu", 2e-3, 0): 1.0}
    found = learnt(report_of(text, losses, choosing, lr="1e-3,2e-3", seeds=1))
    assert (found["relu"].rate, found["relu"].loss.mean) == (1e-3, 2.0)
    assert (found["swiglu"].rate, found["swiglu"].loss.mean) == (2e-3, 1.8)


def test_what_none_beats_is_better_in_one_and_not_worse_in_the_other(text: str, monkeypatch) -> None:
    names = ["relu", "gelu", "swiglu", "glu"]
    level = {"relu": 2.0, "gelu": 1.9, "swiglu": 1.8, "glu": 1.85}
    time = {"relu": 1.0, "gelu": 1.0, "swiglu": 1.3, "glu": 1.5}
    losses = {(name, s): level[name] + 0.001 * ((s * 7 + len(name)) % 5) for name in names for s in range(5)}
    report = report_of(text, losses, variants=",".join(names), seeds=5)

    def pairs(found):
        labels = {name: f"{name}@of=step" for name in names}
        sides = {1: Verdict.SLOWER, 0: Verdict.SAME, -1: Verdict.FASTER}
        return {(labels[a], labels[b]): Pair(None, sides[(time[a] > time[b]) - (time[a] < time[b])])
                for a in names for b in names if a != b}  # fmt: skip

    monkeypatch.setattr(learning, "pairs_of", pairs)
    assert learning.unbeaten(report, learnt(report), "step") == {"gelu", "swiglu"}


def test_order_of_losses_is_held_against_published_ones(text: str) -> None:
    names = ["relu", "gelu", "swiglu", "geglu"]
    losses = {(name, s): loss for name, loss in zip(names, (1.9, 1.8, 1.7, 1.6), strict=True) for s in range(2)}
    agreed = learning.agreement(learnt(report_of(text, losses, variants=",".join(names), seeds=2)))
    published = learning.CITED["Shazeer 2020"]
    expected = stats.spearmanr((1.9, 1.8, 1.7, 1.6), [published[name] for name in names]).statistic
    assert agreed["Shazeer 2020"] == (pytest.approx(expected), 4)


# the command


def learning_of(loss: float) -> dict:
    curve = [[3, loss + 1, 0.1], [3, loss, 0.2]]
    return {"step": 6, "curve": curve, "seconds": 0.2, "diverged": None, "saved": "", "loss": loss, "choosing": loss}


def trained(text: str, on_machine, tmp_path: Path, trouble: dict | None = None, **asked):
    """The whole journey, with processes that tell made-up losses; the file, read again."""
    plan = planned(text, **asked)
    answers = {
        ("train", case.label): learning_of(1.9 + case.training.seed / 100 - 0.1 * case.label.startswith("swiglu"))
        for case in plan.cases
        if case.training
    }
    launch = FakeLaunch(trouble=answers | (trouble or {}))
    on_machine(launch)
    return api.train(replace(ASKED, text=text, **asked)), launch


def test_the_journey_gives_a_row_a_variant_and_reads_back(text: str, on_machine, tmp_path: Path) -> None:
    report, _ = trained(text, on_machine, tmp_path)
    report.save(tmp_path / "run.json")
    again = load(tmp_path / "run.json")
    relu, swiglu = report.rows()
    assert (relu["verdict"], swiglu["verdict"]) == ("reference", "better")
    assert swiglu["difference"] == pytest.approx(-0.1)
    assert relu["loss"] == pytest.approx(1.91)
    assert relu["step_s"] == pytest.approx(0.01)
    assert learnt(again)["swiglu"].losses == pytest.approx({0: 1.8, 1: 1.81, 2: 1.82})
    assert "swiglu learns better than relu" in str(report)
    assert "a probe" in str(report)
    assert len(cells_of(report.plan)) == 2 + 2 * 3
    for suffix in ("png", "svg", "html", "csv", "md"):
        assert report.save(tmp_path / f"run.{suffix}").stat().st_size


def test_experts_are_trained_beside_a_dense_form(text: str, on_machine, tmp_path: Path) -> None:
    plan = planned(text, variants="relu,swiglu@moe=4x2")
    assert len({case.workload for case in plan.cases if case.training}) == 1


def test_each_rate_is_chosen_where_runs_are_jobs_of_one_case(text: str) -> None:
    told = Trainee(runs(text, lr="1e-3,3e-3")[0], None).go(1e9)
    assert told["choosing"] != told["loss"]


def test_what_shares_no_seed_is_shown(text: str) -> None:
    losses = {("relu", 0): 2.0, ("gelu", 1): 2.0, ("swiglu", 0): 1.9, ("swiglu", 1): 1.9}
    assert "gelu" in plain(training_table(report_of(text, losses, variants="relu,gelu,swiglu")), 80)


def test_a_journal_of_a_run_that_was_killed_is_shown_and_columns_are_told(
    text, on_machine, in_process, tmp_path
) -> None:
    plan = planned(text)
    answers = {("train", case.label): learning_of(1.9) for case in plan.cases if case.training}
    journal = tmp_path / "run.json.journal"
    kept = []

    def killed(worker):
        kept.append(journal.read_bytes())
        return learning_of(1.9)

    on_machine(FakeLaunch(trouble=answers | {("train", "relu@of=run@lr=0.003@seed=1"): killed}))
    asked = (*SMALL, "--d-model=32", "--layers=2", "--steps=6", "--context=16", "--batch=4", "--threads=1",
             "--text", text, "--device=cpu", "-o", tmp_path / "run.json", "-q", "--columns", "loss,params")  # fmt: skip
    code, out, err = in_process(*asked)
    assert code == 0, err
    assert "1.900" in out
    for cut in (kept[0], kept[0][: kept[0].index(b"@of=run@lr=0.003@seed=0", len(kept[0]) // 3)]):
        journal.write_bytes(cut)
        code, out, err = in_process("report", journal)
        assert code == 0, err
        assert "relu" in out
    for words in (("check", tmp_path / "run.json"), ("plot", tmp_path / "run.json", "-o", tmp_path / "p.png")):
        code, _, err = in_process(*words)
        assert code == 2
        assert "says what is learnt" in err


def test_what_diverges_is_a_row(text: str, on_machine, tmp_path: Path) -> None:
    diverged = {"step": 3, "curve": [], "seconds": 0.1, "diverged": 3, "saved": ""}
    trouble = {("train", f"swiglu@of=run@lr=0.003@seed={seed}"): diverged for seed in range(3)}
    report, _ = trained(text, on_machine, tmp_path, trouble)
    assert report.rows()[1]["loss"] is None
    assert "diverged at step 3" in report.rows()[1]["failure"]
    assert "swiglu: diverged at step 3 (seed 0, rate 0.003): try a smaller --lr" in " ".join(str(report).split())


def test_what_is_interrupted_goes_on_where_it_was(text: str, on_machine, in_process, tmp_path: Path) -> None:
    plan = planned(text)
    answers = {("train", case.label): learning_of(1.9) for case in plan.cases if case.training}
    stop = {("train", "relu@of=run@lr=0.003@seed=1"): KeyboardInterrupt()}
    asked = (*SMALL, "--d-model=32", "--layers=2", "--steps=6", "--context=16", "--batch=4", "--threads=1",
             "--text", text, "--device", "cpu", "-o", tmp_path / "run.json", "-q")  # fmt: skip
    on_machine(FakeLaunch(trouble=answers | stop))
    code, out, _ = in_process(*asked)
    assert code == 130
    assert "interrupted: 4 of 8 groups are done" in " ".join(out.split())
    launch = FakeLaunch(trouble=answers)
    on_machine(launch)
    code, out, err = in_process(*asked, "--resume")
    assert code == 0, err
    done = [label for _, do, label in launch.log if do == "train"]
    assert done == [f"{name}@of=run@lr=0.003@seed={seed}" for seed in (1, 2) for name in ("relu", "swiglu")]
    assert not [label for _, do, label in launch.log if do == "sample"]
    assert len(json.loads((tmp_path / "run.json").read_text())["plan"]["cases"]) == 10
    code, _, err = in_process(*asked, "--resume", "--lr", "1e-3")
    assert code == 2
    assert "another plan" in err


@pytest.mark.slow
def test_a_real_run_of_jobs_equals_one_of_this_process(text: str, tmp_path: Path) -> None:
    from conftest import ffnbench

    asked = (*SMALL, "--d-model=32", "--layers=1", "--steps=20", "--context=16", "--batch=4", "--seeds=2",
             "--text", text, "--threads=1")  # fmt: skip
    found = []
    for name, more in (("here", ()), ("jobs", ("--on", "local"))):
        ran = ffnbench(*asked, "-o", str(tmp_path / f"{name}.json"), *more)
        assert ran.returncode == 0, ran.stderr
        found.append({name: one.losses for name, one in learnt(load(tmp_path / f"{name}.json")).items()})
    assert found[0] == found[1]
