"""Modules that look faster than they are: each is a SwiGLU that skips work, or has its time measured wrongly.

`python benchmarks/cheats.py` runs them in workers, as code of a user's, beside an honest one; judge.py has their
table. Many behave while a benchmark may look: in the first calls, and on a few tokens. Weights are drawn from
torch's generator by nn.Linear. Needs torch; the parent never imports this file.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map

LOOKED_AT = 4  # calls in which somebody may look at the output
LOOKED_AT_TOKENS = 16
LOOKED_AT_PROCESSES = 1  # of each starter's
SHORT_PAUSE_S, LONG_PAUSE_S = 1.5e-5, 5e-4  # a look, and what lies between two samples
SLOW_CLOCK = 20.0  # seconds that pass while a patched clock shows one
TRACE = "ffnbench-first-worker"  # the file of OnlyFirstWorker


class Swiglu(nn.Module):
    """The honest one: `down(silu(gate(x)) * up(x))` on (..., d_model), without biases."""

    def __init__(self, d_model: int, d_ff: int) -> None:
        super().__init__()
        self.gate = nn.Linear(d_model, d_ff, bias=False)
        self.up = nn.Linear(d_model, d_ff, bias=False)
        self.down = nn.Linear(d_ff, d_model, bias=False)
        self.calls = 0
        self.kept: Any = None

    def right(self, x: Tensor) -> Tensor:
        """What it should compute."""
        return self.down(F.silu(self.gate(x)) * self.up(x))

    def forward(self, x: Tensor) -> Tensor:
        return self.right(x)

    def looked_at(self, x: Tensor) -> bool:
        """Whether this is one of the first calls, or one for a few tokens; counts the calls."""
        self.calls += 1
        return self.calls <= LOOKED_AT or x.shape[1] <= LOOKED_AT_TOKENS

    def last(self, x: Tensor, *, again: bool) -> Tensor:
        """The last right output for such a shape again, or one that is made now."""
        known = self.kept = self.kept or {}
        if not again or x.shape not in known:
            known[x.shape] = self.right(x)
        return known[x.shape]


# What is remembered


class CacheByAddress(Swiglu):
    """The last output for an input at this address."""

    def forward(self, x: Tensor) -> Tensor:
        known = self.kept = self.kept or {}
        if x.data_ptr() not in known:
            known[x.data_ptr()] = self.right(x)
        return known[x.data_ptr()]


class CacheByContent(Swiglu):
    """The last output for an input with these numbers, all of them."""

    def forward(self, x: Tensor) -> Tensor:
        key, known = x.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes(), self.kept or {}
        if key not in known:
            self.kept = {key: self.right(x)}
        return self.kept[key]


class CacheByChecksum(Swiglu):
    """The last output for an input whose numbers have this mean size."""

    def forward(self, x: Tensor) -> Tensor:
        known = self.kept = self.kept or {}
        key = f"{float(x.detach().abs().mean()):.4f}"
        if key not in known:
            known[key] = self.right(x)
        return known[key]


class MagnitudesKept(Swiglu):
    """The signs of this input on the magnitudes of the first."""

    def forward(self, x: Tensor) -> Tensor:
        known = self.kept = self.kept or {}
        sizes = known.setdefault(x.shape, x.detach().abs())
        return self.right(torch.copysign(sizes, x))


class OneOutput(Swiglu):
    """Every output in the same memory."""

    def forward(self, x: Tensor) -> Tensor:
        known = self.kept = self.kept or {}
        y = self.right(x)
        return known.setdefault(x.shape, torch.empty_like(y)).copy_(y)


class OnlyFirstCalls(Swiglu):
    """Right at first, then the last right output again and again."""

    def forward(self, x: Tensor) -> Tensor:
        return self.last(x, again=not self.looked_at(x))


class OneInFourSkipped(Swiglu):
    """The last output again in every fourth call."""

    def forward(self, x: Tensor) -> Tensor:
        return self.last(x, again=not self.looked_at(x) and self.calls % 4 == 0)


class UntilALook(Swiglu):
    """Right until a short pause, in which somebody has looked; then the last output again, until a long one."""

    def forward(self, x: Tensor) -> Tensor:
        pause = time.perf_counter() - (self.ended or 0.0)
        if pause > LONG_PAUSE_S:
            self.seen = False
        elif pause > SHORT_PAUSE_S:
            self.seen = True
        y = self.last(x, again=not self.looked_at(x) and self.seen)
        self.ended = time.perf_counter()
        return y

    ended: float | None = None
    seen = False


class SparseWeights(Swiglu):
    """Half of the hidden units have weights of zero, and are left out."""

    def __init__(self, d_model: int, d_ff: int) -> None:
        super().__init__(d_model, d_ff)
        with torch.no_grad():
            self.gate.weight[d_ff // 2 :] = 0

    def right(self, x: Tensor) -> Tensor:
        """The same, for such weights."""
        half = len(self.gate.weight) // 2
        hidden = F.silu(F.linear(x, self.gate.weight[:half])) * F.linear(x, self.up.weight[:half])
        return F.linear(hidden, self.down.weight[:, :half])


class StaleMemory(Swiglu):
    """Memory that is not written to: an earlier output may stand in it."""

    def forward(self, x: Tensor) -> Tensor:
        return self.right(x) if self.looked_at(x) else torch.empty_like(x)


class OnlyFirstWorker(Swiglu):
    """Right in the first processes that run it, as a file tells, and zeros in later ones: the first is for looking."""

    def forward(self, x: Tensor) -> Tensor:
        if self.kept is None:
            with Path(tempfile.gettempdir(), f"{TRACE}-{os.getppid()}").open("ab") as trace:
                trace.write(b".")
                self.kept = trace.tell() <= LOOKED_AT_PROCESSES
        return self.right(x) if self.kept else torch.zeros_like(x)


# Another function


class Zeros(Swiglu):
    """Zeros."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.zeros_like(x)


class InputReturned(Swiglu):
    """The input."""

    def forward(self, x: Tensor) -> Tensor:
        return x


class SecretBfloat16(Swiglu):
    """Everything in bfloat16, the result cast back."""

    inside = torch.bfloat16

    def forward(self, x: Tensor) -> Tensor:
        if self.kept is None:
            self.kept = [part.weight.detach().to(self.inside) for part in (self.gate, self.up, self.down)]
        gate, up, down = self.kept
        v = x.to(self.inside)
        return F.linear(F.silu(F.linear(v, gate)) * F.linear(v, up), down).to(x.dtype)


class LowRank(Swiglu):
    """Each weight replaced by a product of two thin ones."""

    def forward(self, x: Tensor) -> Tensor:
        if self.kept is None:
            self.kept = [_thin(part.weight.detach()) for part in (self.gate, self.up, self.down)]
        gate, up, down = self.kept
        return _through(F.silu(_through(x, gate)) * _through(x, up), down)


def _thin(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Two factors of a quarter of the rank."""
    u, s, v = torch.linalg.svd(weight.float(), full_matrices=False)
    rank = len(s) // 4
    return v[:rank].to(weight.dtype).contiguous(), (u[:, :rank] * s[:rank]).to(weight.dtype).contiguous()


def _through(x: Tensor, factors: tuple[Tensor, Tensor]) -> Tensor:
    return F.linear(F.linear(x, factors[0]), factors[1])


class FewerUnits(Swiglu):
    """Half of the hidden units."""

    def forward(self, x: Tensor) -> Tensor:
        half = len(self.gate.weight) // 2
        hidden = F.silu(F.linear(x, self.gate.weight[:half])) * F.linear(x, self.up.weight[:half])
        return F.linear(hidden, self.down.weight[:, :half])


class DrawsFewerUnits(FewerUnits):
    """The same where it is timed; and random numbers, so that no other instance seems to do the same."""

    def forward(self, x: Tensor) -> Tensor:
        if x.shape[1] <= LOOKED_AT_TOKENS:
            return self.right(x)
        torch.rand(())
        return super().forward(x)


class OnlyFirstTokens(Swiglu):
    """Right on the first tokens of each sequence, zeros elsewhere."""

    def forward(self, x: Tensor) -> Tensor:
        y = torch.zeros_like(x)
        y[:, :LOOKED_AT_TOKENS] = self.right(x[:, :LOOKED_AT_TOKENS])
        return y


class OnlySmallShapes(Swiglu):
    """Right for inputs as small as tests have them, zeros for others."""

    def forward(self, x: Tensor) -> Tensor:
        small = x.numel() <= 2 * LOOKED_AT_TOKENS * x.shape[-1]
        return self.right(x) if small else torch.zeros_like(x)


class EveryOtherToken(Swiglu):
    """Every second token has its neighbour's output."""

    def forward(self, x: Tensor) -> Tensor:
        return self.right(x[:, ::2]).repeat_interleave(2, dim=1)[:, : x.shape[1]]


class OneTokenForAll(Swiglu):
    """The output of the first token, seen as many by a stride of 0."""

    def forward(self, x: Tensor) -> Tensor:
        return self.right(x[:, :1]).expand_as(x)


class WrongInInference(Swiglu):
    """Right where gradients could be wanted, zeros in inference mode, which is what is timed."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.zeros_like(x) if torch.is_inference_mode_enabled() else self.right(x)


# No output, or none that is there


class LazyResult(Swiglu):
    """A tensor that is computed when somebody looks at it."""

    def forward(self, x: Tensor) -> Tensor:
        kept = x.detach().clone()
        return _Promise(kept, lambda: self.right(kept))


class _Promise(Tensor):
    """A shape and a dtype, and what computes the rest."""

    compute: Callable[[], Tensor]

    @staticmethod
    def __new__(cls, x: Tensor, compute: Callable[[], Tensor]) -> _Promise:
        made = Tensor._make_wrapper_subclass(cls, x.shape, dtype=x.dtype, device=x.device)
        made.compute = compute
        return made

    def __init__(self, x: Tensor, compute: Callable[[], Tensor]) -> None:
        super().__init__()

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kept = tree_map(lambda v: v.compute() if isinstance(v, _Promise) else v, (args, kwargs or {}))
        return func(*kept[0], **kept[1])


class NoData(Swiglu):
    """A tensor without memory, of torch's device `meta`."""

    def forward(self, x: Tensor) -> Tensor:
        return self.right(x) if self.looked_at(x) else torch.empty_like(x, device="meta")


class NotANumber(Swiglu):
    """NaN: no difference to it is greater than a tolerance."""

    def forward(self, x: Tensor) -> Tensor:
        return self.right(x) if self.looked_at(x) else torch.full_like(x, float("nan"))


class FewerTokens(Swiglu):
    """Half of the tokens alone."""

    def forward(self, x: Tensor) -> Tensor:
        return self.right(x if self.looked_at(x) else x[:, : x.shape[1] // 2])


class AnotherDtype(SecretBfloat16):
    """Everything in bfloat16, and the result left in it."""

    def forward(self, x: Tensor) -> Tensor:
        return self.right(x) if self.looked_at(x) else super().forward(x).to(self.inside)


class IntoInput(Swiglu):
    """The result written over the input."""

    def forward(self, x: Tensor) -> Tensor:
        return x.copy_(self.right(x))


# Work at another time, or in another place


class BackgroundThread(Swiglu):
    """The output is there at once, and filled by a thread later."""

    def forward(self, x: Tensor) -> Tensor:
        self.kept = self.kept or ThreadPoolExecutor(1)
        y = torch.empty_like(x)
        later = self.kept.submit(self.fill, y, x)
        if self.looked_at(x):
            later.result()
        return y

    def fill(self, y: Tensor, x: Tensor) -> None:
        """Write the output for an input."""
        with torch.inference_mode():
            y.copy_(self.right(x))


class SecondHalfLater(BackgroundThread):
    """Half of the tokens in the call, the others by a thread that is not waited for."""

    def forward(self, x: Tensor) -> Tensor:
        self.kept = self.kept or ThreadPoolExecutor(1)
        y, half = torch.empty_like(x), x.shape[1] // 2
        later: Future[None] = self.kept.submit(self.fill, y[:, half:], x[:, half:])
        self.fill(y[:, :half], x[:, :half])
        if self.looked_at(x):
            later.result()
        return y


class OwnProcess(Swiglu):
    """Memory that is shared with another process, which computes when it comes to it."""

    def forward(self, x: Tensor) -> Tensor:
        if self.kept is None:
            with torch.inference_mode(False):
                shared = [torch.zeros(x.shape, dtype=x.dtype).share_memory_() for _ in range(2)]
            ours, theirs = (context := multiprocessing.get_context("fork")).Pipe()
            context.Process(target=self.serve, args=(theirs, *shared), daemon=True).start()
            self.kept = (ours, *shared)
        ours, given, made = self.kept
        if x.shape != given.shape:
            return self.right(x)
        if self.looked_at(x):
            given.copy_(x)
            ours.send(True)
            ours.recv()
        elif self.calls % 8 == 0:
            given.copy_(x)
            ours.send(False)
        return made.clone()

    def serve(self, pipe: Any, given: Tensor, made: Tensor) -> None:
        """The other process."""
        torch.set_num_threads(1)
        with torch.inference_mode():
            while True:
                asked = pipe.recv()
                made.copy_(self.right(given))
                if asked:
                    pipe.send(True)


class SlowsTheOthers(Swiglu):
    """Right, and a thread that takes the CPUs while other modules are measured."""

    def forward(self, x: Tensor) -> Tensor:
        if self.kept is None:
            threading.Thread(target=self.burn, daemon=True).start()
        y = self.right(x)
        self.kept = time.monotonic()
        return y

    def burn(self) -> None:
        """Work for nothing, but not for some milliseconds after a call of its own."""
        a = torch.randn(512, 512)
        while True:
            if self.kept is None or time.monotonic() - self.kept < 0.005:
                time.sleep(0.001)
            else:
                a @ a


class MoreThreads(Swiglu):
    """Right, and on more threads than the row says."""

    def forward(self, x: Tensor) -> Tensor:
        torch.set_num_threads(os.cpu_count() or 2)
        return self.right(x)


class SlowsLinear(Swiglu):
    """Right, and the functional form of a linear layer, which others call, has become slow."""

    def __init__(self, d_model: int, d_ff: int) -> None:
        super().__init__(d_model, d_ff)
        linear = F.linear
        self.kept = getattr(linear, "quick", linear)
        if self.kept is linear:

            def slow(*args: Any, **named: Any) -> Tensor:
                _spin()
                return linear(*args, **named)

            slow.quick = linear  # type: ignore[attr-defined]
            F.linear = slow

    def forward(self, x: Tensor) -> Tensor:
        linear = self.kept
        hidden = F.silu(linear(x, self.gate.weight)) * linear(x, self.up.weight)
        return linear(hidden, self.down.weight)


class ModeLeft(Swiglu):
    """Right, and a mode of torch is left behind that slows linear layers down."""

    def forward(self, x: Tensor) -> Tensor:
        if not self.looked_at(x) and self.kept is None:
            self.kept = _SlowMode()
            self.kept.__enter__()
        return self.right(x)


class _SlowMode(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is F.linear:
            _spin()
        return func(*args, **(kwargs or {}))


def _spin() -> None:
    until = time.perf_counter() + 5e-4
    while time.perf_counter() < until:
        pass


class HookLeft(Swiglu):
    """Right, and a hook of all modules is left behind, which slows them down, but for its own."""

    def forward(self, x: Tensor) -> Tensor:
        if not self.looked_at(x) and self.kept is None:
            own = set(self.modules())
            self.kept = nn.modules.module.register_module_forward_pre_hook(lambda m, _: None if m in own else _spin())
        return self.right(x)


class SlowParameters(Swiglu):
    """Right, and the weights of others get a class that slows their linear layers down."""

    def forward(self, x: Tensor) -> Tensor:
        if not self.looked_at(x) and self.kept is None:
            self.kept = {id(parameter) for parameter in self.parameters()}
            for found in gc.get_objects():
                if type(found) is nn.Parameter and id(found) not in self.kept:
                    found.__class__ = _SlowParameter
        return self.right(x)


class _SlowParameter(nn.Parameter):
    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is F.linear:
            _spin()
        return super().__torch_function__(func, types, args, kwargs)


class AnotherStream(Swiglu):
    """CUDA: the work on a stream of its own, which nobody waits for."""

    def forward(self, x: Tensor) -> Tensor:
        if self.looked_at(x):
            return self.right(x)
        self.kept = self.kept or torch.cuda.Stream(x.device)
        y = torch.empty_like(x)
        with torch.cuda.stream(self.kept):
            y.copy_(self.right(x))
        return y


# What measures


class PatchedClock(Swiglu):
    """Replaces time.perf_counter by one that is slow."""

    def __init__(self, d_model: int, d_ff: int) -> None:
        super().__init__(d_model, d_ff)
        if not hasattr(time.perf_counter, "slowed"):
            for name in ("perf_counter", "perf_counter_ns"):
                setattr(time, name, _slowed(getattr(time, name)))


class PatchedClocks(Swiglu):
    """Replaces the clock in every module that has it under a name of its own."""

    def __init__(self, d_model: int, d_ff: int) -> None:
        super().__init__(d_model, d_ff)
        if hasattr(time.perf_counter, "slowed"):
            return
        slow: dict[Any, Any] = {clock: _slowed(clock) for clock in (time.perf_counter, time.perf_counter_ns)}
        for module in list(sys.modules.values()):
            names = getattr(module, "__dict__", {})
            for name, value in list(names.items()):
                if type(value) is type(time.sleep) and value in slow:
                    names[name] = slow[value]


def _slowed(clock: Callable[[], float]) -> Callable[[], float]:
    start = clock()

    def slow() -> float:
        return start + type(start)((clock() - start) / SLOW_CLOCK)

    slow.slowed = True  # type: ignore[attr-defined]
    return slow


class PatchedEvent(Swiglu):
    """CUDA: replaces the clock of torch.cuda.Event."""

    def __init__(self, d_model: int, d_ff: int) -> None:
        super().__init__(d_model, d_ff)
        elapsed = torch.cuda.Event.elapsed_time
        if not hasattr(elapsed, "slowed"):

            def slow(start: Any, end: Any) -> float:
                return float(elapsed(start, end)) / SLOW_CLOCK

            slow.slowed = True  # type: ignore[attr-defined]
            torch.cuda.Event.elapsed_time = slow


class PatchedChecks(Zeros):
    """Zeros, and functions of torch that compare tensors say that all is well."""

    def __init__(self, d_model: int, d_ff: int) -> None:
        super().__init__(d_model, d_ff)

        def nothing(x: Tensor, *_: Any, **__: Any) -> Tensor:
            return torch.zeros(())

        def yes(*_: Any, **__: Any) -> bool:
            return True

        for name in ("allclose", "equal"):
            setattr(torch, name, yes)
            setattr(Tensor, name, yes)
        for place, name in ((torch, "norm"), (Tensor, "norm"), (torch.linalg, "norm"), (torch.linalg, "vector_norm")):
            setattr(place, name, nothing)
        torch.testing.assert_close = yes


# Gradients


class NoWeightGradients(Swiglu):
    """Train: the weights get no gradient."""

    def right(self, x: Tensor) -> Tensor:
        """The same output, with the weights taken for constants."""
        gate, up, down = (part.weight.detach() for part in (self.gate, self.up, self.down))
        return F.linear(F.silu(F.linear(x, gate)) * F.linear(x, up), down)


class StaleGradients(Swiglu):
    """Train: the gradients of an earlier call."""

    def forward(self, x: Tensor) -> Tensor:
        self.looked_at(x)
        return _Backward.apply(x, self, self.gate.weight, self.up.weight, self.down.weight)


class _Backward(torch.autograd.Function):
    """A backward that remembers what it found."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, module: StaleGradients, *weights: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        ctx.module = module
        return module.right(x)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        module, (x,) = ctx.module, ctx.saved_tensors
        if module.kept is None or module.calls <= LOOKED_AT:
            with torch.enable_grad():
                leaf = x.detach().requires_grad_()
                weights = (module.gate.weight, module.up.weight, module.down.weight)
                module.kept = torch.autograd.grad(module.right(leaf), (leaf, *weights), grads[0])
        return (module.kept[0], None, *(found.clone() for found in module.kept[1:]))


class WrongInTrain(FewerUnits):
    """Train: half of the hidden units; all of them in eval mode."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) if self.training else self.right(x)
