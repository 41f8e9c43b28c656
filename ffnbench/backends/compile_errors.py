"""What a compiler of kernels says when it can't make one: torch.compile's Inductor, or Triton. Needs no torch.

Its exceptions are known by where they come from and by their names, for not every torch brings Triton.
"""

from __future__ import annotations

INDUCTOR = "torch._inductor.exc"
NAMES = ("BackendCompilerFailed", "GPUTooOldForTriton", "TritonMissing")
TRITON = ("TritonError", "CompilationError", "OutOfResources", "PTXASError")
MOST = 300  # characters of a reason


def not_compiled(problem: BaseException) -> str:
    """Why code could not be compiled, in one line; "" for any other problem, and for memory that was full meanwhile."""
    named = any(one.__module__ == INDUCTOR or one.__name__ in NAMES for one in type(problem).__mro__)
    if not named and not _of_triton(problem):
        return ""
    inner = problem
    while isinstance(deeper := getattr(inner, "inner_exception", None), BaseException) and deeper is not inner:
        inner = deeper
    if isinstance(inner, MemoryError) or type(inner).__name__ == "OutOfMemoryError":
        return ""
    who = "Triton" if _of_triton(inner) else "torch.compile"
    return f"{who} can't compile it: {_reason(inner)}"[:MOST]


def _of_triton(problem: BaseException) -> bool:
    return any(one.__module__.split(".")[0] == "triton" and one.__name__ in TRITON for one in type(problem).__mro__)


def _reason(problem: BaseException) -> str:
    """The line that says what is wrong: Triton's stands last, under the code, a C++ compiler's has `error:`."""
    said = getattr(problem, "error_message", None) or str(problem)
    lines = [line.strip() for line in str(said).splitlines() if line.strip()]
    if not lines:
        return type(problem).__name__
    errors = [line.partition("error:")[2].strip() for line in lines if "error:" in line]
    if errors:
        return errors[0]
    line = lines[-1] if _of_triton(problem) else lines[0]
    name = type(problem).__name__
    return line if line.startswith(name) or _of_triton(problem) else f"{name}: {line}"
