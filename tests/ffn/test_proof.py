"""`@like`: a user's module proven to be a form, whatever its weights are called and
however they lie, through the command line.
"""

from __future__ import annotations

import json

import pytest
from shell import ffnbench as shell

MODULES = """
import torch, torch.nn.functional as F
from torch import nn

class Gated(nn.Module):
    "gate, up and down under other names; `swap` computes silu(up) * gate."
    def __init__(self, d_model, d_ff, swap=False, bias=False, factor=1.0):
        super().__init__()
        self.gate_proj = nn.Linear(d_model, d_ff, bias=bias)
        self.up_proj = nn.Linear(d_model, d_ff, bias=bias)
        self.down_proj = nn.Linear(d_ff, d_model, bias=bias)
        self.swap, self.factor = swap, factor
    def forward(self, x):
        a, b = self.gate_proj(x), self.up_proj(x)
        if self.swap: a, b = b, a
        return self.factor * self.down_proj(F.silu(a) * b)

class Plain(nn.Module):
    "No names that say a role."
    def __init__(self, d_model, d_ff):
        super().__init__()
        self.a, self.b = nn.Linear(d_model, d_ff), nn.Linear(d_model, d_ff)
        self.c = nn.Linear(d_ff, d_model)
    def forward(self, x):
        return self.c(self.a(x) * F.silu(self.b(x)))

class Packed(nn.Module):
    "gate and up in one weight: halves, up first, interleaved; rows are inputs in `raw`."
    def __init__(self, d_model, d_ff, how="halves", raw=False):
        super().__init__()
        self.how, self.raw = how, raw
        self.gate_up_proj = nn.Parameter(torch.randn(d_model, 2 * d_ff) / d_model ** 0.5)
        if not raw: self.gate_up_proj = nn.Parameter(self.gate_up_proj.detach().T.contiguous())
        self.down = nn.Linear(d_ff, d_model)
    def forward(self, x):
        h = x @ (self.gate_up_proj if self.raw else self.gate_up_proj.T)
        if self.how == "interleaved": g, u = h[..., ::2], h[..., 1::2]
        else: g, u = h.chunk(2, -1)
        if self.how == "up_first": g, u = u, g
        return self.down(F.silu(g) * u)

class Experts(nn.Module):
    def __init__(self, d_model, d_ff, softmax_all=True):
        super().__init__()
        self.gate = nn.Linear(d_model, 4, bias=False)
        self.experts = nn.ModuleList(Gated(d_model, d_ff) for _ in range(4))
        self.softmax_all = softmax_all
    def forward(self, x):
        flat = x.reshape(-1, x.shape[-1])
        scores = self.gate(flat)
        if self.softmax_all: scores = scores.softmax(-1)
        weights, chosen = scores.topk(2, -1)
        if self.softmax_all: weights = weights / weights.sum(-1, keepdim=True)
        y = torch.zeros_like(flat)
        for number, expert in enumerate(self.experts):
            row, place = torch.where(chosen == number)
            y.index_add_(0, row, expert(flat[row]) * weights[row, place, None])
        return y.view(x.shape)

class SubNormed(nn.Module):
    "A norm of the hidden layer before down, with trained factors."
    def __init__(self, d_model, d_ff, norm="RMSNorm", act="silu", bias=False, normed=True, eps=1e-5):
        super().__init__()
        self.gate_proj = nn.Linear(d_model, d_ff, bias=bias)
        self.up_proj = nn.Linear(d_model, d_ff, bias=bias)
        self.down_proj = nn.Linear(d_ff, d_model, bias=bias)
        self.ffn_norm = getattr(nn, norm)(d_ff, eps=eps)
        for parameter in self.ffn_norm.parameters(): nn.init.uniform_(parameter, 0.5, 2.0)
        self.act, self.normed = getattr(F, act), normed
    def forward(self, x):
        hidden = self.act(self.gate_proj(x)) * self.up_proj(x)
        return self.down_proj(self.ffn_norm(hidden) if self.normed else hidden)

class Latent(Experts):
    "Experts at a latent width, and a shared one at the full width."
    def __init__(self, d_model, d_ff, width=24, factor=1.0):
        super().__init__(width, d_ff)
        self.gate = nn.Linear(d_model, 4, bias=False)
        self.fc1, self.fc2 = nn.Linear(d_model, width, bias=False), nn.Linear(width, d_model, bias=False)
        self.shared_mlp = Gated(d_model, 40)
        self.factor = factor
    def forward(self, x):
        flat = x.reshape(-1, x.shape[-1])
        weights, chosen = self.gate(flat).softmax(-1).topk(2, -1)
        weights = weights / weights.sum(-1, keepdim=True)
        v = self.fc1(flat)
        y = torch.zeros_like(v)
        for number, expert in enumerate(self.experts):
            row, place = torch.where(chosen == number)
            y.index_add_(0, row, expert(v[row]) * weights[row, place, None])
        return (self.factor * self.fc2(y) + self.shared_mlp(flat)).view(x.shape)
"""
RIGHT = [
    "Gated@like=swiglu", "Gated@bias=true@like=swiglu", "Plain@like=swiglu", "Packed@like=swiglu",
    "Packed@how=up_first@like=swiglu", "Packed@how=interleaved@like=swiglu", "Packed@raw=true@like=swiglu",
    "Packed@how=interleaved@raw=true@like=swiglu", "Gated@swap=true@like=swiglu", "Experts@like=swiglu@moe=4x2",
    "SubNormed@like=swiglu@subnorm=rms", "SubNormed@bias=true@like=swiglu@subnorm=rms",
    "SubNormed@norm=LayerNorm@like=eva02_glu", "SubNormed@norm=LayerNorm@bias=true@like=eva02_glu",
    "SubNormed@act=relu@like=relu_glu@subnorm=rms", "Latent@like=swiglu@moe=4x2@latent=24@shared=40",
]  # fmt: skip
WRONG = [
    "Gated@like=geglu",
    "Gated@factor=1.01@like=swiglu",
    "Experts@softmax_all=false@like=swiglu@moe=4x2",
    "SubNormed@like=bitnet_glu",
    "SubNormed@like=swiglu",
    "SubNormed@normed=false@like=swiglu@subnorm=rms",
    "SubNormed@eps=0.001@like=swiglu@subnorm=rms",
    "Gated@like=bitnet_glu",
    "Latent@factor=1.01@like=swiglu@moe=4x2@latent=24@shared=40",
    "Latent@like=swiglu@moe=4x2@latent=16@shared=40",
]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> dict:
    """One run of all modules, as it was saved."""
    folder = tmp_path_factory.mktemp("modules")
    (folder / "m.py").write_text(MODULES)
    named = [f"r{n}=m.py:{text}" for n, text in enumerate([*RIGHT, *WRONG])]
    done = shell(
        "compare", "relu", *named, "--match", "none", "--d-model", "32", "--d-ff", "48", "--seq-len", "16",
        "--metrics", "error", "--quick", "--device", "cpu", "-f", "json", cwd=folder,
    )  # fmt: skip
    assert done.returncode in (0, 3), done.stderr
    answer: dict = json.loads(done.stdout)
    return answer


def label_of(text: str) -> str:
    return f"r{[*RIGHT, *WRONG].index(text)}"


@pytest.mark.parametrize("text", RIGHT)
def test_what_computes_a_form_is_proven_however_its_weights_lie(
    run: dict, text: str
) -> None:
    errors = [
        sample["value"]
        for sample in run["samples"]
        if sample["metric"] == "error" and sample["case"] == label_of(text)
    ]
    assert errors
    assert max(errors) < 1e-5


@pytest.mark.parametrize("text", WRONG)
def test_what_computes_something_else_is_a_mismatch(run: dict, text: str) -> None:
    failures = {failure["case"]: failure["kind"] for failure in run["failures"]}
    assert failures[label_of(text)] == "mismatch"


def test_a_name_that_contradicts_its_role_is_said(run: dict) -> None:
    notes = {note["label"]: note["text"] for note in run["plan"]["notes"]}
    swapped, packed = "Gated@swap=true@like=swiglu", "Packed@how=up_first@like=swiglu"
    assert notes[label_of(swapped)].startswith("the activation is on up_proj")
    assert "second half of gate_up_proj" in notes[label_of(packed)]
    silent = {label_of(text) for text in RIGHT} - {label_of(swapped), label_of(packed)}
    assert not silent & notes.keys()
