"""What is timed is the right function before its rounds and after them: by formulas,
and by modules that are wrong.

A module that is wrong is found, and none that is right is called wrong, in any dtype,
mode and backend.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from fake_machine import FakeLaunch, KnownProber, measure, planned, prepare

from ffnbench.common.errors import Unsupported
from ffnbench.ffn.modules import GatedFeedForward
from ffnbench.plan.plan import Plan
from ffnbench.report.columns import case_rows
from ffnbench.worker.backends.building import why_no_onednn
from ffnbench.worker.correctness import Mismatch, relative_errors
from ffnbench.worker.jobs import Jobs

D, H = 32, 48
MINE = '''
import torch
import torch.nn.functional as F
from torch import nn

class Swiglu(nn.Module):
    def __init__(self, d_model, d_ff):
        super().__init__()
        self.gate, self.up = nn.Linear(d_model, d_ff), nn.Linear(d_model, d_ff)
        self.down = nn.Linear(d_ff, d_model)
        self.calls = 0

    def forward(self, x):
        return self.down(F.silu(self.gate(x)) * self.up(x))

class Gelu(Swiglu):
    def forward(self, x):
        return self.down(F.gelu(self.gate(x)) * self.up(x))

class Unscaled(Swiglu):
    def forward(self, x):
        return 0.9 * super().forward(x)

class Zeros(Swiglu):
    def forward(self, x):
        return 0 * super().forward(x)

class LastToken(Swiglu):
    def forward(self, x):
        y = super().forward(x)
        return torch.cat([y[:, :-1], 0 * y[:, -1:]], dim=1)

class Stale(Swiglu):
    """Gives the first output of a shape again."""
    def __init__(self, d_model, d_ff):
        super().__init__(d_model, d_ff)
        self.register_buffer("kept", None)

    def forward(self, x):
        if self.kept is None or self.kept.shape != x.shape:
            self.kept = super().forward(x).detach()
        return self.kept + 0 * super().forward(x)

class ByAddress(Swiglu):
    """Takes an input at the place of an old one for the old one."""
    def forward(self, x):
        kept = self.__dict__.setdefault("kept", {})
        if x.data_ptr() not in kept:
            kept[x.data_ptr()] = super().forward(x).detach()
        return kept[x.data_ptr()] + 0 * super().forward(x)

class StaleLater(Swiglu):
    """Right in the first calls, while it is looked at and warmed up; then it stays as it is."""
    def forward(self, x):
        self.calls += 1
        if self.calls < 12:
            self.last = super().forward(x).detach()
            return super().forward(x)
        return self.last + 0 * super().forward(x)

class NoGradient(Swiglu):
    def forward(self, x):
        return self.down(F.silu(self.gate(x)) * self.up(x.detach()))

class NoGradientLater(Swiglu):
    def forward(self, x):
        self.calls += 1
        return super().forward(x if self.calls < 12 else x.detach() + 0 * x)

class NotFinite(Swiglu):
    def forward(self, x):
        return super().forward(x) / 0

class InPlace(Swiglu):
    def forward(self, x):
        with torch.no_grad():
            x.mul_(1.5)
        return super().forward(x)

class Drops(Swiglu):
    def forward(self, x):
        return self.down(F.dropout(F.silu(self.gate(x)) * self.up(x), 0.3, self.training))

class Wide(Swiglu):
    """Adds up in float32."""
    def forward(self, x):
        return self.down((F.silu(self.gate(x)).float() * self.up(x).float()).to(x.dtype))

class Normed(Swiglu):
    """Training moves its buffers."""
    def __init__(self, d_model, d_ff):
        super().__init__(d_model, d_ff)
        self.norm = nn.BatchNorm1d(d_model)

    def forward(self, x):
        return super().forward(self.norm(x.transpose(1, 2)).transpose(1, 2))

class Moves(Swiglu):
    """Its output is by a buffer that training moves."""
    def __init__(self, d_model, d_ff):
        super().__init__(d_model, d_ff)
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x):
        self.seen += self.training
        return super().forward(x) * (1 + 0.1 * self.seen)

class Experts(nn.Module):
    def __init__(self, d_model, d_ff):
        super().__init__()
        self.router = nn.Linear(d_model, 8, bias=False)
        self.experts = nn.ModuleList(Swiglu(d_model, d_ff) for _ in range(8))

    def forward(self, x):
        weights, chosen = self.router(x).softmax(-1).topk(2, -1)
        parts = [e(x) * (weights * (chosen == i)).sum(-1, keepdim=True) for i, e in enumerate(self.experts)]
        return sum(parts)

class Mixes(nn.Module):
    """Tokens meet others."""
    def __init__(self, d_model, d_ff):
        super().__init__()
        self.attention = nn.MultiheadAttention(d_model, 4, batch_first=True)

    def forward(self, x):
        return self.attention(x, x, x, need_weights=False)[0]

class Noisy(Swiglu):
    def forward(self, x):
        return super().forward(x) + 0.01 * torch.randn_like(x)
'''


@pytest.fixture(scope="module")
def mine(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("mine") / "mine.py"
    path.write_text(MINE)
    return str(path)


def plan_of(variants: str, **options: Any) -> Plan:
    settings = {
        "d_model": D,
        "d_ff": H,
        "seq_len": 24,
        "threads": 1,
        "device": "cpu",
        "match": "none",
        **options,
    }
    plan = planned(variants=variants, **settings, probe=KnownProber(1.0))
    return replace(plan, protocol=replace(plan.protocol, warmup_s=1e-3))


def errors(variant: str, **options: Any) -> dict[str, float | None]:
    """Those of a worker that opens a case, takes some samples, and checks it."""
    jobs = Jobs(plan_of(variant, **options))
    label = jobs.plan.reference
    jobs.open(label=label, calls=3)
    for salt in range(5):
        jobs.sample(label=label, calls=3, salt=salt + 100)
    return jobs.check(label=label)


# What is wrong

AT_ONCE = {
    "Gelu@like=swiglu": "the output differs from the float64 reference of ffnbench's own swiglu by",
    "Unscaled@like=swiglu": "the output differs from the float64 reference of ffnbench's own swiglu by 1.0e-01",
    "Zeros@like=swiglu": "the output differs from the float64 reference of ffnbench's own swiglu by 1.0e+00",
    "LastToken@like=swiglu": "the output differs from the float64 reference of ffnbench's own swiglu by",
    "NotFinite": "the output is not finite",
    "Stale": "the output differs from the module's own in float64 by",
}


@pytest.mark.parametrize("mode", ["forward", "train"])
@pytest.mark.parametrize("name", AT_ONCE)
def test_what_is_wrong_at_once_is_found_before_it_is_timed(
    mine: str, name: str, mode: str
) -> None:
    plan = plan_of(f"m={mine}:{name}", mode=mode)
    with pytest.raises(Mismatch) as caught:
        Jobs(plan).open(label="m", calls=3)
    assert AT_ONCE[name] in str(caught.value)


@pytest.mark.parametrize("like", ["", "@like=swiglu"])
@pytest.mark.parametrize(
    ("name", "mode", "says"),
    [("ByAddress", "forward", "after its rounds the output differs from"),
     ("StaleLater", "forward", "after its rounds the output differs from"),
     ("StaleLater", "train", "after its rounds the output differs from"),
     ("NoGradientLater", "train", "after its rounds the gradient of the input differs from")],
)  # fmt: skip
def test_what_is_right_at_first_and_wrong_later_is_found_after_its_rounds(
    mine, name, mode, says, like
) -> None:
    jobs = Jobs(plan_of(f"m={mine}:{name}{like}", mode=mode))
    jobs.open(label="m", calls=3)
    jobs.sample(label="m", calls=12, salt=5)
    with pytest.raises(Mismatch, match=says):
        jobs.check(label="m")


@pytest.mark.parametrize("mode", ["train", "backward"])
def test_a_gradient_that_does_not_flow_is_found_where_the_form_is_known(
    mine: str, mode: str
) -> None:
    says = "the gradient of the input differs from the float64 reference of ffnbench's own swiglu"
    with pytest.raises(Mismatch, match=says):
        errors(f"m={mine}:NoGradient@like=swiglu", mode=mode)
    assert (
        errors(f"m={mine}:NoGradient@like=swiglu")["error"] < 1e-6
    )  # forward it is right


@pytest.mark.skipif(bool(why_no_onednn()), reason="this torch has no oneDNN")
def test_a_module_of_another_is_proven_where_onednn_has_packed_it(mine: str) -> None:
    right = errors(f"m={mine}:Swiglu@like=swiglu@backend=onednn")
    assert right["error"] < 1e-6
    with pytest.raises(Mismatch):
        errors(f"m={mine}:Gelu@like=swiglu@backend=onednn")


def test_a_changed_input_is_refused(mine: str) -> None:
    with pytest.raises(Unsupported, match="it changes its input"):
        errors(f"m={mine}:InPlace")


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_form_that_computes_something_else_is_found(
    dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A form whose hidden layer is too large."""
    right = GatedFeedForward.hidden
    assert errors("swiglu", dtype=dtype)["error"] < 2e-2
    monkeypatch.setattr(
        GatedFeedForward, "hidden", lambda module, x: 1.2 * right(module, x)
    )
    with pytest.raises(
        Mismatch, match=r"the output differs from the float64 reference by 2\.0e-01"
    ):
        errors("swiglu", dtype=dtype)


# What is right

LIMITS = {
    "float64": (0.0, 1e-13),
    "float32": (1e-9, 1e-5),
    "float16": (1e-5, 3e-3),
    "bfloat16": (1e-4, 3e-2),
}
FORMS = [
    "relu@bias=true", "swiglu", "gelu_glu@bias=true", "swiglu_oai", "swish@beta=0.5", "relu@dropout=0.3", "prelu",
    "swiglu@moe=4x2@shared=16@shared_gate=true", "geglu@moe=4x1@routing=skewed",
    "swiglu@moe=16x3",
]  # fmt: skip


@pytest.mark.parametrize("dtype", LIMITS)
@pytest.mark.parametrize("mode", ["forward", "train", "backward"])
@pytest.mark.parametrize("variant", FORMS)
def test_our_forms_are_right_and_off_by_what_their_dtype_rounds(
    variant: str, mode: str, dtype: str
) -> None:
    found = errors(variant, mode=mode, dtype=dtype)
    low, high = LIMITS[dtype]
    assert low <= found["error"] < high
    assert (found["gradient_error"] is None) == (mode == "forward")
    assert found["gradient_error"] is None or found["gradient_error"] < max(
        2 * high, 1e-12
    )


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("mode", ["forward", "train"])
@pytest.mark.parametrize(
    "name", ["Swiglu", "Drops", "Wide", "Normed", "Moves", "Experts", "Mixes"]
)
def test_modules_of_somebody_else_are_right(
    mine: str, name: str, mode: str, dtype: str
) -> None:
    variants = [f"{mine}:{name}"]
    variants += (
        [f"{mine}:{name}@like=swiglu"] if name in ("Swiglu", "Drops", "Wide") else []
    )
    for variant in variants:
        found = errors(variant, mode=mode, dtype=dtype)
        assert found["error"] < LIMITS[dtype][1]
        assert (found["gradient_error"] is None) == (mode == "forward")


def test_what_draws_numbers_that_nobody_can_draw_again_is_not_called_wrong(
    mine: str,
) -> None:
    assert errors(f"{mine}:Noisy") == {"error": None, "gradient_error": None}
    with pytest.raises(Mismatch):
        errors(f"{mine}:Noisy@like=swiglu")


# The errors themselves, by hand


def test_what_rounding_leaves_of_a_gradient_of_zero_is_no_error() -> None:
    y = torch.ones(2, 2)
    expected = {
        "output": y,
        "gradient of the input": y,
        "gradient of a": 100 * y,
        "gradient of b": 1e-6 * y,
    }
    answer = expected | {"gradient of b": 2e-6 * y, "gradient of c": y}
    found = relative_errors(answer, expected)
    # 1 % of the largest gradient is what a small one is held against
    assert found.pop("gradient of b") == pytest.approx(1e-6)
    assert set(found.values()) == {0.0}
    assert "gradient of c" not in found
    found = relative_errors(answer | {"gradient of a": 101 * y}, expected)
    assert found["gradient of a"] == pytest.approx(0.01)


# In a run, on the fake machine


def test_each_case_is_checked_once_after_the_rounds_of_the_first_worker() -> None:
    cases = ("relu", "gelu", "swiglu")
    launch = FakeLaunch()
    launch.trouble = {("check", case): {"error": 3e-7} for case in cases}
    request = dict(
        variants="relu,gelu,swiglu", d_model=64, metrics="latency", workers=3, rounds=2
    )
    report = measure(prepare(**request), launch=launch)
    of_first = [(do, label) for worker, do, label in launch.log if worker == 0]
    checks = [label for do, label in of_first if do == "check"]
    assert sorted(checks) == sorted(cases)
    assert {do for do, _ in of_first[-3:]} == {"check"}
    assert not any(do == "check" for worker, do, _ in launch.log if worker)
    assert [record["error"] for record in case_rows(report)] == [3e-7] * 3
    assert [record["gradient_error"] for record in case_rows(report)] == [None] * 3
