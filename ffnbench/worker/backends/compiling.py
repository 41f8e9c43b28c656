"""Runs a module through torch.compile, and finds the reason in the error of a compiler.
Runs in a worker; needs torch.

Compiling is timed by itself: the compiler is loaded before, and its cache of kernels is
empty. Afterwards nothing may be compiled again: a case whose code does so fails, and
has no slow sample.
"""

from __future__ import annotations

import sysconfig
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from time import perf_counter
from types import FunctionType
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from ffnbench.common.errors import Unsupported
from ffnbench.plan.metrics import COMPILE, HELD
from ffnbench.plan.plan import Workload
from ffnbench.record.messages import Opened
from ffnbench.worker.subject import Subject

if TYPE_CHECKING:
    from ffnbench.device.accelerator import Accelerator

# exceptions of compilers are known by module and name: torch may be without Triton, so
# their classes can't be imported
INDUCTOR = "torch._inductor.exc"
COMPILER_ERRORS = ("BackendCompilerFailed", "GPUTooOldForTriton", "TritonMissing")
TRITON = ("TritonError", "CompilationError", "OutOfResources", "PTXASError")
LONGEST_MESSAGE = 300  # characters of what is said of a compiler's error


def prepare(subject: Subject, work: Workload) -> Opened:
    """Compile a subject's module by its first call, and have it called from then on."""
    subject.run = partial(compiled_of(work), subject.module)
    seconds, graphs = compile_now(
        subject.call, subject.x.device, subject.accelerator, freeze=work.freeze
    )
    # frozen weights are constants, in layouts of the compiler whose size is not known
    held = None if work.freeze else subject.weight_bytes()
    return Opened(calls=1, graphs=graphs, values={COMPILE: seconds, HELD: held})


class Recompiled(Exception):
    """Code was compiled again while it was timed."""


def compiled_of(work: Workload) -> Callable[[nn.Module, Tensor], Tensor]:
    """The function that compiles a module at its first call on it, and then runs it on
    that module and on its copies.

    The compiler stores code by the function that it was made from, and after a second
    width it makes code for all widths. Cases share the functions of their classes, so
    each is given a function of its own: none finds the code of another.
    """

    from torch._inductor import list_mode_options

    modes = list_mode_options()
    if work.compile not in modes:
        raise Unsupported(
            f"torch {torch.__version__} has no compile mode {work.compile!r}, but {', '.join(modes)}"
        )

    def forward(module: nn.Module, x: Tensor) -> Tensor:
        y: Tensor = module(x)
        return y

    name = f"forward_{next(_numbers)}"
    code = forward.__code__.replace(co_name=name, co_qualname=name)
    compiled: Callable[[nn.Module, Tensor], Tensor] = torch.compile(
        FunctionType(code, globals(), name), mode=work.compile
    )
    return compiled


def compile_now(
    call: Callable[[], object],
    device: torch.device,
    accelerator: Accelerator | None = None,
    *,
    freeze: bool = False,
) -> tuple[float, int]:
    """Make the first call of a compiled module with an empty cache of kernels. Return
    the seconds that it took, and into how many graphs the module was cut.

    With `freeze`, weights become constants of the code, in the layout that its kernels
    need. Raises Unsupported where there is no compiler, or nothing was compiled.
    """
    _load(device)
    import torch._inductor.config as inductor
    from torch._inductor import utils

    before = _graphs()
    # not an option of torch.compile: the tracer asks the setting of the process too
    # torch 2.8 has renamed it
    empty_cache = getattr(utils, "fresh_cache", None) or utils.fresh_inductor_cache
    with inductor.patch(freezing=freeze), empty_cache():
        start = perf_counter()
        call()
        if accelerator is not None:
            accelerator.synchronize()
        seconds = perf_counter() - start
    graphs = _graphs() - before
    if not graphs:
        raise Unsupported(
            "torch.compile found nothing in it that it could compile: it would be timed as eager"
        )
    return seconds, graphs


@contextmanager
def recompiling_refused() -> Iterator[None]:
    """A context in which nothing is compiled: Recompiled is raised instead."""
    try:
        with torch.compiler.set_stance("fail_on_recompile"):
            yield
    except RuntimeError as problem:
        if "fail_on_recompile" not in str(problem):
            raise
        lines = [line for line in str(problem).splitlines() if line.strip()]
        why = lines[-1].strip(" -")
        message = f"it compiles again while it is timed: {why}"[:LONGEST_MESSAGE]
        raise Recompiled(message) from problem


_loaded: set[str] = set()  # types of devices for which the compiler has been loaded
_numbers = count()  # of the functions that are compiled


def _load(device: torch.device) -> None:
    """Load the compiler, once in a process, and compile something small: importing it
    and looking at the machine are not part of a module's compile time.
    """
    if device.type in _loaded:
        return
    import torch._dynamo.config as dynamo
    import torch._inductor.config as inductor

    if hasattr(dynamo, "fail_on_recompile_limit_hit"):
        # by default it would go on in eager mode, and that would be timed
        dynamo.fail_on_recompile_limit_hit = True
    inductor.compile_threads = 1  # no pool of processes runs on beside the timing
    reason = why_no_compiler(device)
    if reason:
        raise Unsupported(reason)
    torch.compile(_product_and_relu)(torch.randn(64, 64, device=device))
    _loaded.add(device.type)


def _product_and_relu(x: Tensor) -> Tensor:
    return torch.relu(x @ x)  # the two kinds of kernels that every FFN has


def _graphs() -> int:
    """How many graphs the compiler has made in this process."""
    from torch._dynamo.utils import counters

    return int(counters["stats"]["unique_graphs"])


def why_no_compiler(device: torch.device) -> str:
    """Why torch.compile can't make kernels for a device here; "" if it probably can:
    nothing is compiled.
    """
    if device.type != "cpu":
        if find_spec("triton"):
            return ""
        return "torch.compile needs triton for a GPU, and finds none"
    from torch._inductor.cpp_builder import get_cpp_compiler

    try:
        get_cpp_compiler()
    except Exception:  # InvalidCxxCompiler
        return "torch.compile needs a C++ compiler here, and finds none: install g++"
    if not Path(sysconfig.get_path("include"), "Python.h").exists():
        return "torch.compile needs Python's headers here: install python3-dev"
    return ""


def why_not_compiled(problem: BaseException) -> str:
    """Why code could not be compiled, in one line; "" for any other problem, and where
    memory was full meanwhile.
    """
    if not _is_of_compiler(problem) and not _is_of_triton(problem):
        return ""
    inner = problem
    deeper = getattr(inner, "inner_exception", None)
    while isinstance(deeper, BaseException) and deeper is not inner:
        inner = deeper
        deeper = getattr(inner, "inner_exception", None)
    if isinstance(inner, MemoryError) or type(inner).__name__ == "OutOfMemoryError":
        return ""
    who = "Triton" if _is_of_triton(inner) else "torch.compile"
    return f"{who} can't compile it: {_reason(inner)}"[:LONGEST_MESSAGE]


def _is_of_compiler(problem: BaseException) -> bool:
    return any(
        kind.__module__ == INDUCTOR or kind.__name__ in COMPILER_ERRORS
        for kind in type(problem).__mro__
    )


def _is_of_triton(problem: BaseException) -> bool:
    kinds = [
        kind
        for kind in type(problem).__mro__
        if kind.__module__.split(".")[0] == "triton"
    ]
    return any(kind.__name__ in TRITON for kind in kinds)


def _reason(problem: BaseException) -> str:
    """The line of a compiler's message that says what is wrong. A C++ compiler marks it
    with `error:`; Triton has it last, below the code.
    """
    text = str(getattr(problem, "error_message", None) or problem)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    name = type(problem).__name__
    if not lines:
        return name
    for line in lines:
        _, is_error, message = line.partition("error:")
        if is_error:
            return message.strip()
    if _is_of_triton(problem):
        return lines[-1]
    if lines[0].startswith(name):
        return lines[0]
    return f"{name}: {lines[0]}"
