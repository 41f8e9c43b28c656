"""Fresh inputs, what a timed call leaves behind, and what a judge makes of it: formulas, and made-up lies."""

from __future__ import annotations

import base64
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from conftest import FakeLaunch, KnownProber
from torch import Tensor, nn
from torch.nn.modules.module import register_module_full_backward_hook
from torch.overrides import TorchFunctionMode, _get_current_function_mode_stack

from ffnbench import api, jsonable
from ffnbench.plan import NoProbe, Plan, cost_of
from ffnbench.planning.compare import plan_compare
from ffnbench.request import CompareRequest, TimingRequest
from ffnbench.result import Against, CaseCost, FailureKind
from ffnbench.run.judging import SHARE, OutputChecks
from ffnbench.run.runner import run
from ffnbench.run.session import WorkerLost
from ffnbench.worker import evidence
from ffnbench.worker import tampering as originals
from ffnbench.worker.inputs import Pool, factors_of, most_inputs
from ffnbench.worker.jobs import Jobs
from ffnbench.worker.tampering import Originals

D, H = 32, 48


def plan_of(variants: str, **options: Any) -> Plan:
    settings = {"d_model": D, "d_ff": H, "seq_len": 24, "threads": 1, "device": "cpu", "match": "none", **options}
    return plan_compare(CompareRequest(variants=variants, **settings), NoProbe())


def told_by(plan: Plan, calls: int = 3, salts: tuple[int, ...] = (5, 6)) -> tuple[Jobs, list[dict[str, Any]]]:
    """The evidence of some samples of a plan's first case, and the worker that has given it."""
    jobs, label = Jobs(plan), plan.cases[0].label
    jobs.open(label, calls)
    every = [jobs.sample(label, calls, salt=salt, looks=[salt % calls])["evidence"] for salt in salts]
    return jobs, [one for told in every for one in told]


# Inputs


@pytest.mark.parametrize(("dtype", "train"), [(torch.float32, True), (torch.bfloat16, False)])
def test_no_content_repeats_and_each_can_be_made_again(dtype: torch.dtype, train: bool) -> None:
    base = torch.randn(2, 5, 24, generator=torch.Generator().manual_seed(1)).to(dtype)
    pool, elsewhere = Pool(base, train=train), Pool(base.clone(), train=False)
    seen, sizes = set[bytes](), set[bytes]()
    for salt in (11, 12, 2**55 + 3):
        inputs = pool.renew(salt, 7)
        assert len({x.untyped_storage().data_ptr() for x in inputs}) == 7  # none leads to the next
        for number, x in enumerate(inputs):
            assert (x.shape, x.dtype, x.requires_grad, x.is_leaf, x._base) == (base.shape, dtype, train, True, None)
            assert torch.equal(elsewhere.input(salt, 7, number), x)
            rows = elsewhere.rows(salt, 7, number, torch.tensor([0, 3, 9]))
            assert torch.equal(rows, x.detach().reshape(-1, 24)[[0, 3, 9]])
            for found, values in ((seen, x.detach()), (sizes, x.detach().abs())):
                found.add(values.contiguous().view(torch.uint8).numpy().tobytes())
            assert 0.4 < float(x.detach().double().std()) < 1.6  # of 240 numbers by 24 factors
            x.detach().fill_(7.0)  # what was written to is whole again in the next sample
    assert (len(seen), len(sizes)) == (21, 21)  # no magnitudes either


def test_factors_of_inputs_have_either_sign_and_the_mean_square_of_the_seeded_one() -> None:
    factors = factors_of(7, 200, 64)
    assert 0.45 < float((factors < 0).float().mean()) < 0.55
    assert 0.5 <= float(factors.abs().min()) < float(factors.abs().max()) <= 1.43
    assert float(factors.square().mean()) == pytest.approx(1, abs=0.02)


def test_memory_bounds_the_pool() -> None:
    x = torch.zeros(1, 1 << 10, 1 << 10)
    assert most_inputs(x, None) == 64
    assert most_inputs(x, 16 * 3 * x.nbytes) == 3
    assert most_inputs(x, 10) == 1
    plan = plan_of("relu", seq_len=64)
    jobs = Jobs(plan, memory_bytes=4 * 16 * 5 * 64 * D * 4)
    opened = jobs.open("relu", 1000)
    assert (opened["calls"], opened["inputs"]["count"]) == (5, 5)
    assert opened["inputs"]["bytes"] == 5 * 64 * D * 4


# Honest ones, by formulas


@pytest.mark.parametrize("mode", ["forward", "train", "backward"])
@pytest.mark.parametrize(
    "variant",
    ["relu@bias=true", "swiglu", "gelu_glu@bias=true", "swiglu_oai", "swish@beta=0.5", "relu@dropout=0.3", "prelu",
     "swiglu@moe=4x2@shared=16@shared_gate=true", "geglu@moe=4x1@routing=skewed", "swiglu@backend=packed"],
)  # fmt: skip
def test_honest_forms_are_right(variant: str, mode: str) -> None:
    jobs, told = told_by(plan_of(variant, mode=mode))
    label = jobs.plan.cases[0].label
    found = Jobs(jobs.plan).judge(label, told, 5.0)
    assert found["error"] < 2e-5, found
    assert (found["outputs"], found["gradients"] > 0, found["finite"]) == (2, mode != "forward", True)
    assert found["form"]


@pytest.mark.parametrize(
    ("dtype", "least", "most"), [("float64", 0, 1e-13), ("bfloat16", 1e-4, 2e-2), ("float16", 1e-5, 3e-3)]
)
def test_the_error_is_that_of_the_dtype_and_a_wrong_gradient_is_found(dtype: str, least: float, most: float) -> None:
    jobs, told = told_by(plan_of("swiglu", dtype=dtype, mode="train"))
    assert least <= Jobs(jobs.plan).judge("swiglu", told, 5.0)["error"] < most
    for one in told:
        one["dx"] = evidence.packed(-evidence.unpacked(one["dx"], getattr(torch, dtype), (-1,)))
    assert Jobs(jobs.plan).judge("swiglu", told, 5.0)["error"] > 0.1


def test_the_rows_that_travel_are_those_of_a_plain_formula() -> None:
    """SwiGLU by hand, on the inputs that the salt stands for: gradients too."""
    plan = plan_of("swiglu", mode="train")
    jobs, (*_, told) = told_by(plan)
    subject = jobs.subjects["swiglu"]
    x = subject.pool.input(told["salt"], told["calls"], told["call"]).double().requires_grad_()
    gate, up, down = (
        getattr(subject.module, name).weight.detach().double().requires_grad_() for name in ("gate", "up", "down")
    )
    y = (F.silu(x @ gate.T) * (x @ up.T)) @ down.T
    y.backward(subject.grads.input(told["salt"] + 1, told["calls"], told["call"]).double())
    rows = told["rows"]
    for text, whole in ((told["y"], y), (told["dx"], x.grad)):
        values = torch.frombuffer(bytearray(base64.b64decode(text)), dtype=torch.float32).view(len(rows), D)
        torch.testing.assert_close(values.double(), whole.detach().reshape(-1, D)[rows], rtol=1e-4, atol=1e-5)
    for name, weight in (("gate.weight", gate), ("up.weight", up), ("down.weight", down)):
        drawn = told["dw"][name]
        values = torch.frombuffer(bytearray(base64.b64decode(drawn["values"])), dtype=torch.float32)
        expected = weight.grad[drawn["rows"]]
        torch.testing.assert_close(values.double().view(expected.shape), expected, rtol=1e-4, atol=1e-5)


def changed(text: str, factor: float, rows: int = 1) -> str:
    values = torch.frombuffer(bytearray(base64.b64decode(text)), dtype=torch.float32).clone()
    values[-rows * D :] *= factor
    return evidence.packed(values)


@pytest.mark.parametrize("variant", ["swiglu", "swiglu@dropout=0.3"])
def test_a_wrong_row_is_found(variant: str) -> None:
    jobs, told = told_by(plan_of(variant, mode="train"), salts=(4, 5, 6))
    label, judge = jobs.plan.cases[0].label, Jobs(jobs.plan)
    weight = told[1]["dw"]["gate.weight"]
    for values, key, factor, rows, what in (
        (told[1], "y", 1.01, 1, "output"),
        (told[1], "dx", 1.01, 2, "gradient of the input"),  # of a gradient one row alone may be a kink's
        (weight, "values", 1.02, 2, "gradient of gate.weight"),
    ):
        right = values[key]
        values[key] = changed(right, factor, rows)
        found = judge.judge(label, told, 60.0)
        assert 1e-3 < found["error"] < 0.05
        assert found["what"] == what
        values[key] = right
    told[0]["y"] = changed(told[0]["y"], float("nan"))
    found = judge.judge(label, told, 60.0)
    assert (found["error"], found["finite"], found["what"]) == (None, False, "output")


# What an output may be


def test_an_output_is_a_plain_tensor_of_this_process() -> None:
    x = torch.randn(1, 2, 4)

    class Odd(Tensor):
        pass

    reasons = {
        "Odd": (x + 1).as_subclass(Odd),
        "NoneType": None,
        "on meta": torch.empty(1, 2, 4, device="meta"),
        "unlike its input": (x + 1)[:, :1],
        "bfloat16": (x + 1).bfloat16(),
        "its input's own memory": x.view(1, 2, 4),
    }
    for reason, y in reasons.items():
        assert reason in evidence.unlike_plain(y, x, foreign=True)
    assert evidence.unlike_plain(x + 1, x, foreign=True) == ""
    assert evidence.unlike_plain(x, x, foreign=False) == ""


# What the process was like


def test_what_stands_in_for_a_clock_is_found_and_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    known, right, ours = Originals(), time.perf_counter, originals.time.monotonic
    monkeypatch.setattr(time, "perf_counter", lambda: 0.0)
    assert known.replaced() == "time.perf_counter"
    assert time.perf_counter is right
    assert known.replaced() == ""
    from ffnbench.worker import meters

    monkeypatch.setattr(meters, "perf_counter", ours)
    assert known.replaced() == "ffnbench.worker.meters.perf_counter"
    assert meters.perf_counter is right
    monkeypatch.setattr(Tensor, "clone", lambda self: self)
    assert known.replaced() == "torch.Tensor.clone"


class Mode(TorchFunctionMode):
    """Changes nothing."""


class Slow(nn.Parameter):
    """Another class than nn.Parameter."""


LEFT = {
    "the function modes of torch": lambda module: Mode().__enter__(),
    "the hooks of all modules": lambda module: register_module_full_backward_hook(lambda *_: None),
    "the class of mine's weight": lambda module: setattr(module.weight, "__class__", Slow),
}


@pytest.mark.parametrize("what", LEFT)
def test_what_a_call_leaves_behind_is_found_and_taken_away(what: str) -> None:
    known, module = Originals(), nn.Linear(2, 2)
    known.keep("mine", module)
    LEFT[what](module)
    assert known.replaced() == what
    assert (type(module.weight), len(_get_current_function_mode_stack())) == (nn.Parameter, 0)
    assert not nn.modules.module._has_any_global_hook()
    assert known.replaced() == ""


# Modules with a state of their own


STATEFUL = """
import torch
import torch.nn.functional as F
from torch import nn

class Swiglu(nn.Module):
    def __init__(self, d_model, d_ff):
        super().__init__()
        self.gate, self.up = nn.Linear(d_model, d_ff), nn.Linear(d_model, d_ff)
        self.down = nn.Linear(d_ff, d_model)
        self.register_buffer("mean", torch.zeros(()))

    def forward(self, x, units=None):
        g, u = self.gate(x)[..., :units], self.up(x)[..., :units]
        return F.linear(F.silu(g) * u, self.down.weight[:, :units], self.down.bias)

class Draws(Swiglu):
    def forward(self, x):
        torch.rand(())
        return super().forward(x)

class Fewer(Swiglu):
    def forward(self, x):
        torch.rand(())
        return super().forward(x, None if x.shape[1] <= 16 else 24)

class Moves(Swiglu):
    def forward(self, x):
        self.mean.lerp_(x.detach().mean(), 0.1)
        return super().forward(x)

class Centred(Moves):
    def forward(self, x):
        self.mean.add_(0.1)
        return Swiglu.forward(self, x) + self.mean

class Unseeded(Swiglu):
    def __init__(self, d_model, d_ff):
        super().__init__(d_model, d_ff)
        nn.init.normal_(self.up.weight, generator=torch.Generator().manual_seed(torch.Generator().seed()))

class Zeros(Swiglu):
    def __init__(self, d_model, d_ff):
        super().__init__(d_model, d_ff)
        self.down.weight.data[:, 24:] = 0

    def forward(self, x):
        return super().forward(x, 24)

class Kept(Swiglu):
    def __init__(self, d_model, d_ff):
        super().__init__(d_model, d_ff)
        self.kept = {}

    def forward(self, x):
        return self.kept.setdefault(x.data_ptr(), super().forward(x)) * 1

class OneBuffer(Swiglu):
    y = None

    def forward(self, x):
        y = super().forward(x)
        self.y = torch.empty_like(y) if self.y is None or self.y.shape != y.shape else self.y
        return self.y.copy_(y)
"""


@pytest.fixture
def stateful(tmp_path: Path) -> Callable[..., Plan]:
    (tmp_path / "mine.py").write_text(STATEFUL)

    def plan(name: str, **options: Any) -> Plan:
        request = CompareRequest(
            variants=f"m={tmp_path}/mine.py:{name}", d_model=D, d_ff=H, seq_len=24, threads=1, device="cpu",
            match="none", **options,
        )  # fmt: skip
        return plan_compare(request, KnownProber(1.0))

    return plan


@pytest.mark.parametrize(
    ("name", "mode"), [("Draws", "forward"), ("Fewer", "forward"), ("Moves", "forward"), ("Moves", "train")]
)
def test_the_form_that_it_is_said_to_be_tells_what_a_module_with_state_should_give(stateful, name, mode) -> None:
    """Half of the units is wrong whatever is drawn."""
    jobs, told = told_by(stateful(f"{name}@like=swiglu", mode=mode), salts=(5, 6, 7))
    found = Jobs(jobs.plan).judge("m", told, 60.0)
    assert (found["form"], found["outputs"] >= 2) == ("swiglu", True)
    assert found["error"] > 0.1 if name == "Fewer" else found["error"] < 2e-5


def test_what_draws_while_it_trains_is_held_against_another_instance_and_that_is_said(stateful) -> None:
    """It may drop out, which the form does not."""
    jobs, told = told_by(stateful("Draws@like=swiglu", mode="train"), salts=(5, 6, 7))
    found = Jobs(jobs.plan).judge("m", told, 60.0)
    assert (found["form"], found["why"], found["error"] < 2e-5) == ("", "", True)


def test_an_output_that_hangs_on_a_buffer_which_training_moves_is_not_judged(stateful) -> None:
    jobs, told = told_by(stateful("Centred", mode="train"), salts=(5, 6))
    found = Jobs(jobs.plan).judge("m", told, 60.0)
    assert (found["outputs"], found["error"]) == (0, None)
    assert "changes its buffers" in found["why"]


@pytest.mark.parametrize(
    ("name", "says"),
    [("Unseeded", "its up.weight differs between two instances"),
     ("Zeros@like=swiglu", "with other weights it differs from swiglu by")],
)  # fmt: skip
def test_what_is_wrong_whatever_its_outputs_are(stateful, name: str, says: str) -> None:
    jobs, told = told_by(stateful(name), salts=(5,))
    assert says in Jobs(jobs.plan).judge("m", told, 60.0)["wrong"]


def test_what_differs_most_is_judged_first(stateful) -> None:
    """There may be time for one alone: of a cache's outputs the first was right."""
    jobs, told = told_by(stateful("Kept"), salts=(1, 2, 3, 4, 5))
    judge = Jobs(jobs.plan)
    for first in range(len(told)):
        found = judge.judge("m", told[first:] + told[:first], 0.0)
        assert (found["outputs"], found["error"] > 0.1) == (1, True)


def test_an_output_that_a_later_call_changes_is_told(stateful) -> None:
    _, (first, second) = told_by(stateful("OneBuffer"))
    assert (first["problem"], second["problem"]) == ("", "it gives the memory of an earlier output again")
    assert not any(one["problem"] for one in told_by(stateful("Moves"), salts=(1, 2, 3, 4))[1])


# The parent's side


class FakeJudge:
    """A judge that says what it is told to say; `fails` are the losses that come first."""

    ended = False

    def fork(self, timeout_s: float) -> None:
        return None

    def rest(self, rests: bool) -> None:
        pass

    def __init__(self, answer: dict[str, Any], fails: list[str]) -> None:
        self.answer, self.fails, self.asked = answer, fails, []

    def __call__(self, arm: object = None) -> FakeJudge:
        return self

    def greeting(self, timeout_s: float = 0.0) -> dict[str, Any]:
        return {"gpus": 0, "build": {}}

    def ask(self, request: dict[str, Any], timeout_s: float) -> dict[str, Any]:
        self.asked.append(request)
        if request["do"] == "plan":
            return {}
        if self.fails:
            raise WorkerLost(self.fails.pop(0), "it is gone")
        return self.answer

    def close(self) -> None:
        pass


RIGHT = {
    "error": 3e-7, "finite": True, "what": "output", "outputs": 2, "gradients": 0, "why": "", "tolerance": 1e-4,
    "form": "", "wrong": "",
}  # fmt: skip


def judged_by(
    answer: dict[str, Any], fails: list[str] | None = None, times: int = 1
) -> tuple[list[str], OutputChecks, FakeJudge]:
    plan, judge = plan_of("relu,swiglu"), FakeJudge(RIGHT | answer, fails or [])
    checks = OutputChecks(judge, "", lambda: 5.0, time.monotonic)
    said = []
    for _ in range(times):
        checks.add_evidence("swiglu", {"salt": 1})
        said.append(checks.judge("swiglu", 1.0, plan))
    return said, checks, judge


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ({}, ""),
        ({"error": 2e-4}, "the output of a call differs from a second instance of it by 2.0e-04"),
        ({"error": 1.0, "form": "swiglu"}, "differs from the float64 reference by 1.0e+00"),
        ({"error": None, "finite": False}, "the output of a call is not finite"),
        ({"wrong": "it can't be made twice"}, "it can't be made twice"),
    ],
)
def test_what_makes_a_row_suspect(answer: dict[str, Any], words: str) -> None:
    (said,), checks, _ = judged_by(answer)
    assert said == words or (words and words in said)
    for judged in checks.judged:
        assert judged.against is (Against.FORM if answer.get("form") else Against.ITSELF)
        assert jsonable.decode(type(judged), jsonable.encode(judged)) == judged


def test_a_judge_that_is_lost_is_started_again_and_a_second_time_is_the_cases_fault() -> None:
    said, checks, judge = judged_by({}, ["crash"], times=2)
    assert said == ["", ""]
    assert [(found.error, found.why, found.outputs) for found in checks.judged] == [(3e-7, "", 2)]
    assert [request["do"] for request in judge.asked] == ["plan", "judge", "plan", "judge"]
    said, checks, _ = judged_by({}, ["crash", "crash"], times=2)
    assert said[0] == ""
    assert "died twice: it is gone" in said[1]
    said, checks, _ = judged_by({}, ["oom", "oom"], times=2)
    assert said == ["", ""]
    assert [(found.error, found.why) for found in checks.judged] == [(None, "it is gone")]


def test_judging_waits_for_its_share_of_the_time() -> None:
    _, checks, _ = judged_by({})
    assert checks.seconds_to_judge("swiglu", 100.0) == 0  # nothing waits
    checks.add_evidence("swiglu", {})
    checks.add_evidence("relu", {})
    assert checks.seconds_to_judge("relu", 10.0) == 0  # the run may be a short one
    assert checks.seconds_to_judge("relu", 30.0) > 0  # was never judged
    checks.seconds = 4.0
    assert checks.seconds_to_judge("swiglu", 4.0 / SHARE - 1) == 0
    assert checks.seconds_to_judge("swiglu", 4.0 / SHARE + 100) == pytest.approx(100 * SHARE / 2)


# In a run


def seconds_of(**slow: float) -> Callable[[str, int, int], float]:
    return lambda label, worker, number: slow.get(label, 0.01)


def test_a_time_that_can_t_be_is_measured_again_and_suspect() -> None:
    """Roofs of 100 GFLOP/s; a row that needs 1 GFLOP and says 1 ms."""
    plan = plan_of("relu,swiglu", d_model=1024, d_ff=4096, seq_len=64, workers=3, rounds=6)
    costs = tuple(CaseCost(case=case.label, cost=cost_of(case, NoProbe())) for case in plan.cases)

    def roofs(candidates: list[dict[str, Any]]) -> list[dict[str, Any]]:
        products = next(one for one in candidates if one["bound"] == "products")
        return [{"roof": products, "seconds": products["amount"] / 1e11, "calls": 1}]

    launch = FakeLaunch(seconds=seconds_of(relu=0.02, swiglu=0.001))
    launch.roofs = roofs
    disturbed = {"value": 0.001, "waited": 0.2}
    launch.roof = lambda roof, worker: disturbed
    assert not run(plan, launch=launch, costs=costs, judge=FakeJudge(RIGHT, [])).failures  # busy: nobody knows
    launch.roof = lambda roof, worker: {"value": roof["amount"] / 1e11, "waited": 0.0}
    launch.log.clear()
    found = run(plan, launch=launch, costs=costs, judge=FakeJudge(RIGHT, []))
    assert [(f.case, f.kind) for f in found.failures] == [("swiglu", FailureKind.SUSPECT)]
    assert "its matrix products take this machine 12.9 ms" in found.failures[0].message
    explored = [do for _, do, _ in launch.log if do == "explore"]
    assert len(explored) == 2  # once more before anything was accused
    assert not run(plan, launch=launch, costs=costs).failures  # nobody judges


def test_evidence_goes_from_workers_to_the_judge() -> None:
    plan = plan_of("relu,swiglu", workers=3, rounds=6)
    launch, judge = FakeLaunch(), FakeJudge(RIGHT, [])
    launch.told = lambda request: {"evidence": [{"salt": request["salt"], "call": look} for look in request["looks"]]}
    found = run(plan, launch=launch, judge=judge)
    assert {one.case for one in found.judged} == {"relu", "swiglu"}
    asked = [one for request in judge.asked if request["do"] == "judge" for one in request["evidence"]]
    assert len({(one["salt"], one["call"]) for one in asked}) == len(asked) >= 2 * 6
    assert found.judging_s >= 0
    launch.told = lambda request: (
        {"evidence": [{"problem": "its output is a Lazy"}]} if request["label"] == "relu" else {}
    )
    failed = run(plan, launch=launch, judge=FakeJudge(RIGHT, [])).failures
    assert [(f.case, f.message) for f in failed] == [("relu", "in a call its output is a Lazy")]


def test_gradients_of_a_list_that_is_renewed_in_parts_are_right() -> None:
    """131,072 numbers are more than WIDEST: of their gradient the same rows are renewed as of the input."""
    asked = TimingRequest(activations="relu,silu", elements="131072", threads=1, device="cpu")
    plan = api.prepare(asked).plan
    label = next(c.label for c in plan.cases if (c.variant, c.workload.mode) == ("silu", "backward"))
    jobs = Jobs(plan)
    jobs.open(label, 3)
    samples = [jobs.sample(label, 3, salt=salt, looks=[0]) for salt in (5, 6, 22)]
    told = [one for sample in samples for one in sample["evidence"]]
    assert not any(one.get("problem") for one in told)
    found = Jobs(plan).judge(label, told, 5.0)
    assert (found["outputs"], found["gradients"], found["finite"]) == (3, 3, True)
    assert found["error"] < 2e-6, found
