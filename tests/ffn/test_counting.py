"""What a user's module costs where torch does not see all of its kernels, and how it is
said.
"""

from __future__ import annotations

import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
import torch
from fake_machine import planned
from torch.utils.flop_counter import FlopCounterMode

from ffnbench.common.choices import Weights
from ffnbench.common.errors import Unsupported
from ffnbench.device import accelerator
from ffnbench.ffn.cost import Cost
from ffnbench.ffn.spec import ImportedSpec
from ffnbench.plan.plan import Probe, Workload
from ffnbench.record.messages import Failed
from ffnbench.record.result import FailureKind
from ffnbench.worker.backends.compiling import why_not_compiled
from ffnbench.worker.backends.quantised import quantised_copy
from ffnbench.worker.jobs import FUNCTIONS, Jobs, answer_to
from ffnbench.worker.probe_jobs import UNNAMED, count

D_MODEL, D_FF = 16, 48
LAYERS = 4 * D_MODEL * D_FF  # FLOPs of two linear layers, a token
KERNELS = """
import numpy as np
import torch
from torch import nn
from torch.nn import functional as F


class NumPy(torch.autograd.Function):
    '''x @ w.T where torch does not see it.'''

    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return torch.from_numpy(x.detach().numpy() @ w.detach().numpy().T)

    @staticmethod
    def backward(ctx, dy):
        x, w = ctx.saved_tensors
        dy = dy.numpy()
        return torch.from_numpy(dy @ w.numpy()), torch.from_numpy(
            np.einsum('bto,bti->oi', dy, x.numpy()))


class Plain(nn.Module):
    def __init__(self, d_model, d_ff):
        super().__init__()
        self.up, self.down = nn.Linear(d_model, d_ff, bias=False), nn.Linear(d_ff, d_model, bias=False)

    def forward(self, x):
        return self.down(torch.relu(self.up(x)))


class AllOutside(Plain):
    def forward(self, x):
        return NumPy.apply(torch.relu(NumPy.apply(x, self.up.weight)), self.down.weight)


class PretendsOnMeta(AllOutside):
    def forward(self, x):
        return torch.empty_like(x) if x.is_meta else super().forward(x)


class Launching(Plain):
    '''Its activation is a kernel of Triton.'''

    def forward(self, x):
        if x.device.type != 'cpu' or x.requires_grad is False:
            raise RuntimeError('a kernel of Triton wants data')
        import triton
        hidden = self.up(x)
        triton.runtime.JITFunction('silu_kernel').run(hidden, grid=(1,), warmup=True)
        triton.runtime.JITFunction('silu_kernel').run(hidden, grid=(1,), warmup=False)
        return self.down(hidden)


class Auxiliary(Plain):
    '''In training it reconstructs its input beside.'''

    def forward(self, x):
        y = super().forward(x)
        return y + self.down(self.up(y)) if self.training else y


class Mixing(Plain):
    '''Looks at its data, and mixes its tokens.'''

    def forward(self, x):
        if float(x.abs().max()) > 1e9:
            raise ValueError('too large')
        y = self.up(x)
        return self.down(torch.softmax(y @ y.mT, -1) @ y)


class Raw(Plain):
    '''Its first two matrices are one raw parameter.'''

    def __init__(self, d_model, d_ff):
        super().__init__(d_model, d_ff)
        self.up = nn.Linear(d_model, 1)
        self.fused = nn.Parameter(torch.ones(2 * d_ff, d_model))

    def forward(self, x):
        gate, up = (x @ self.fused.T).chunk(2, -1)
        return self.down(gate * up) * self.up(x)


class Twice(Plain):
    '''One layer has two names, and two layers have one weight.'''

    def __init__(self, d_model, d_ff):
        super().__init__(d_model, d_ff)
        self.again, self.tied = self.up, nn.Linear(d_model, d_ff, bias=False)
        self.tied.weight = self.up.weight

    def forward(self, x):
        return self.down(self.up(x) * self.again(x) * self.tied(x))


class InPlace(Plain):
    '''Changes what its backward would need.'''

    def forward(self, x):
        return self.down(self.up(x).relu_().mul_(2))


class Hungry(Plain):
    '''Wants whole blocks of 64 tokens.'''

    def forward(self, x):
        if x.is_meta or x[..., 0].numel() % 64:
            raise RuntimeError('whole blocks, please')
        return super().forward(x)
"""


@pytest.fixture
def kernels(tmp_path: Path) -> str:
    (tmp_path / "kernels.py").write_text(KERNELS)
    return f"{tmp_path}/kernels.py"


def counted(
    kernels: str,
    name: str,
    device: str = "cpu",
    mode: str = "forward",
    weights: Weights = Weights.NONE,
) -> Cost:
    work = Workload(
        batch=2,
        seq_len=32,
        dtype="float32",
        device=device,
        mode=mode,
        threads=1,
        weights=weights,
    )
    return count(
        ImportedSpec(target=f"{kernels}:{name}", d_model=D_MODEL, d_ff=D_FF), work
    )


def test_without_any_product_that_torch_saw_flops_are_unknown_and_not_zero(
    kernels: str,
) -> None:
    plain = counted(kernels, "Plain")
    assert (plain.flops_forward, plain.uncounted) == (LAYERS, ())
    for name in ("AllOutside", "PretendsOnMeta"):
        cost = counted(kernels, name)
        assert (cost.flops_forward, cost.flops_backward) == (None, None)
        assert cost.uncounted == (UNNAMED,)
        assert cost.counted_how == "not counted: torch saw no matrix product"


def test_weights_that_a_first_call_makes_are_counted() -> None:
    spec = ImportedSpec(
        target="torch.nn:LazyLinear",
        d_model=D_MODEL,
        d_ff=D_FF,
        arguments=(("out_features", D_MODEL),),
    )
    work = Workload(
        batch=1, seq_len=8, dtype="float32", device="cpu", mode="forward", threads=1
    )
    assert count(spec, work).params == D_MODEL * D_MODEL + D_MODEL


def test_a_module_is_counted_in_the_mode_in_which_it_runs(kernels: str) -> None:
    flops = [counted(kernels, "Auxiliary", mode=mode) for mode in ("forward", "train")]
    assert [cost.flops_forward for cost in flops] == [LAYERS, 2 * LAYERS]


@pytest.mark.parametrize("name", ["Plain", "Raw", "Twice"])
def test_bytes_of_quantised_weights_are_those_that_the_quantised_copy_holds(
    kernels: str, name: str
) -> None:
    cost = counted(kernels, name, weights=Weights.INT8)
    module = runpy.run_path(kernels)[name](D_MODEL, D_FF)
    copied = quantised_copy(module, Weights.INT8, 32)
    held = list(copied.parameters())
    for layer in {id(layer): layer for layer in copied.modules()}.values():
        held += [value for value in vars(layer).values() if torch.is_tensor(value)]
    assert cost.weight_bytes == sum(tensor.nbytes for tensor in held)
    x = torch.randn(2, D_MODEL)
    assert torch.allclose(copied(x), module(x), rtol=0.1, atol=0.1)
    left = ("fused",) if name == "Raw" else ()
    assert cost.unquantised == left


def test_a_module_that_has_no_backward_is_counted_where_none_is_run(
    kernels: str,
) -> None:
    inference = counted(kernels, "InPlace")
    assert (inference.flops_forward, inference.flops_backward) == (LAYERS, None)
    assert counted(kernels, "InPlace", mode="train").flops_forward is None


def test_kernels_of_triton_are_named_as_they_are_launched(
    kernels: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class JITFunction:
        def __init__(self, name: str) -> None:
            self.fn = SimpleNamespace(__name__=name)

        def run(self, *args: object, grid: tuple, warmup: bool) -> None:
            launched.append(warmup)

    counted(
        kernels, "Plain"
    )  # torch looks for Triton while it loads some of its parts: not for this one
    launched: list[bool] = []
    triton = ModuleType("triton")
    triton.runtime = SimpleNamespace(JITFunction=JITFunction)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "triton", triton)
    run = JITFunction.run
    cost = counted(kernels, "Launching")
    assert cost.uncounted == ("the Triton kernel silu_kernel",)
    assert cost.flops_forward == LAYERS
    assert launched == [True, False]
    assert JITFunction.run is run


def test_a_module_whose_kernels_want_an_accelerator_is_counted_there(
    kernels: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    settled = []
    place = SimpleNamespace(
        device=torch.device("cpu"), make_current=lambda: settled.append(1)
    )
    monkeypatch.setattr(accelerator, "MAKE", lambda name: place)
    monkeypatch.setattr(accelerator, "_MADE", {})
    cost = counted(kernels, "Hungry", device="cuda:0")
    assert (cost.flops_forward, cost.counted_how) == (
        LAYERS,
        "counted by running it on 64 tokens",
    )
    assert settled == [1]


def test_a_module_that_looks_at_data_is_counted_on_the_tokens_of_its_workload(
    kernels: str,
) -> None:
    """Scores and their product with the values are 4 d FLOPs for each other token."""
    tokens, layer = 2 * 32, 2 * D_MODEL * D_FF
    mixing = 4 * 32 * D_FF  # a token sees the 32 of its sequence
    cost = counted(kernels, "Mixing")
    assert cost.counted_how == f"counted by running it on {tokens} tokens"
    assert cost.flops_forward == 2 * layer + mixing
    with FlopCounterMode(display=False) as counter:
        module = runpy.run_path(kernels)["Mixing"](D_MODEL, D_FF)
        module(torch.randn(2, 32, D_MODEL))
    assert cost.flops_forward * tokens == counter.get_total_flops()


def raised(problem: BaseException) -> Failed:
    """What a worker answers where counting a module raises this."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(FUNCTIONS, "count", failing_job(problem))
        return answer_to("count", {})


def failing_job(problem: BaseException) -> Callable[[], None]:
    """A job that raises this."""

    def fails() -> None:
        raise problem

    return fails


def of_triton(name: str, message: str, **facts: str) -> BaseException:
    """An exception of Triton's, as it has them: of its own module, under
    TritonError.
    """
    parent = type("TritonError", (Exception,), {"__module__": "triton.errors"})
    problem = type(name, (parent,), {"__module__": "triton.compiler.errors"})(message)
    for key, value in facts.items():
        setattr(problem, key, value)
    return problem


def test_what_a_compiler_cannot_compile_is_unsupported_and_says_why() -> None:
    """Messages are those of Triton 3.4 and torch 2.13."""
    from torch._inductor.exc import CppCompileError, InductorError, LoweringException

    where = "at 12:11:\n    x = tl.load(X + i)\n           ^\n"
    lowering = LoweringException(NotImplementedError("View"), "aten.view", [], {})
    told = {
        "Triton can't compile it: NameError('blocks is not defined')": of_triton(
            "CompilationError", where + "NameError('blocks is not defined')"
        ),
        "torch.compile can't compile it: LoweringException: NotImplementedError: View": InductorError(
            lowering, None
        ),
        "torch.compile can't compile it: 'y' was not declared in this scope": InductorError(
            CppCompileError(
                ["g++"],
                "/tmp/c.cpp:3:5: error: 'y' was not declared in this scope\n  3 | y\n",
            ),
            None,
        ),
    }
    for says, problem in told.items():
        assert raised(problem) == Failed(kind=FailureKind.UNSUPPORTED, message=says)
    full = InductorError(torch.OutOfMemoryError("CUDA out of memory."), None)
    assert (
        why_not_compiled(full) == why_not_compiled(ValueError("CompilationError")) == ""
    )
    assert raised(ValueError("x")).kind is FailureKind.CRASH
    assert raised(Unsupported("no")).kind is FailureKind.UNSUPPORTED


def test_the_worker_of_a_case_that_failed_to_compile_ends_with_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What a compiler leaves behind that failed makes later rows of a process wrong."""
    plan = planned(
        variants="relu,c=relu@backend=compile", d_model=8, threads=1, probe=Probe()
    )
    monkeypatch.setitem(sys.modules, "torch._dynamo", torch)

    def fails(jobs: Jobs, label: str) -> None:
        raise AssertionError("no rule for this operation")

    monkeypatch.setattr(Jobs, "open", fails)
    answers = [answer_to("open", {"label": name}, Jobs(plan)) for name in ("relu", "c")]
    assert [answer.ends_process for answer in answers] == [False, True]
