"""The user's own activation: a function in a file, with what the cost model should know of it.

    from ffnbench import activation

    @activation(formula="x tanh(exp(x))", flops=3)
    def telu(x):
        return x * x.exp().tanh()

`mine.py:telu` then stands wherever a built-in name does: in curves, in `compare`, and gated with
`@gate=inner`. Without the decorator it works as well; its element-wise cost is then unknown.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar

from ffnbench.common.errors import FfnbenchError
from ffnbench.ffn.activations import Activation

F = TypeVar("F", bound=Callable[..., Any])
MARK = "__ffnbench_activation__"


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnActivation:
    """A function of the user's, by `file.py:function` or `package.module:function`, and what it declares.

    FLOPs are per element, by the convention of ffn/activations.py; None is "not declared".
    """

    target: str
    formula: str = ""
    flops: int | None = None
    flops_backward: int | None = None


def activation(*, formula: str, flops: int, flops_backward: int | None = None) -> Callable[[F], F]:
    """Declare formula and element-wise FLOPs of an activation; raises FfnbenchError for a cost that is no count."""
    for name, value in (("flops", flops), ("flops_backward", flops_backward)):
        if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 0):
            raise FfnbenchError(f"{name} must be a whole number of FLOPs per element, not {value!r}", "for example 5")

    def mark(function: F) -> F:
        setattr(function, MARK, {"formula": formula, "flops": flops, "flops_backward": flops_backward})
        return function

    return mark


def as_activation(found: Any, target: str, width_names: tuple[str, ...]) -> OwnActivation | None:
    """What a loaded object declares as an activation; None where it is a module's class or factory.

    Undecorated, a plain function of one required argument that is not a width counts as one.
    """
    if declared := getattr(found, MARK, None):
        return OwnActivation(target=target, **declared)
    if inspect.isclass(found) or not callable(found):
        return None
    try:
        parameters = inspect.signature(found).parameters.values()
    except (TypeError, ValueError):
        return OwnActivation(target=target)  # a function of torch's own, written in C
    required = [p for p in parameters if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    if len(required) == 1 and required[0].name not in width_names:
        return OwnActivation(target=target)
    return None


@cache
def row_of_own(own: OwnActivation) -> Activation:
    """A row like those of table.py. The function itself is loaded at its first use, in a worker."""

    def apply(functional: Any, x: Any, beta: float) -> Any:
        return _loaded(own.target)(x)

    return Activation(
        name=own.target,
        formula=own.formula,
        derivative="by autograd",
        apply=apply,
        flops=own.flops,
        flops_backward=own.flops_backward,
        steps=None,
    )


@cache
def _loaded(target: str) -> Callable[[Any], Any]:
    from ffnbench.common.targets import resolve

    function: Callable[[Any], Any] = resolve(target)
    return function
