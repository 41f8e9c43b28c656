"""The user's own module: from `package.module:Attr` or `path/to/file.py:Attr` to an
nn.Module. Runs in a worker.

A constructor is given the two widths by their usual names, or a config with them;
`@key=value` sets any other argument and wins.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeVar

from ffnbench.common.errors import FfnbenchError, Raised, WrongValue
from ffnbench.common.names import did_you_mean
from ffnbench.common.targets import one_line, resolve
from ffnbench.ffn.activations import OwnActivation
from ffnbench.ffn.spec import LIKE, ImportedSpec, Scalar

D_MODEL_NAMES = ("d_model", "dim", "hidden_size", "embed_dim", "n_embd", "in_features")
D_FF_NAMES = (
    "d_ff",
    "hidden_dim",
    "intermediate_size",
    "hidden_features",
    "ffn_dim",
    "dim_feedforward",
    "mlp_dim",
)
WIDTH_NAMES = (*D_MODEL_NAMES, *D_FF_NAMES, "config")
A_FACTORY = "or name a factory: def make(d_model, d_ff): return ..."


class MissingField(FfnbenchError, AttributeError):
    """A field that a config has not; `getattr` with a default gives that."""


class Config:
    """What a constructor that takes a `config` is given: hidden_size,
    intermediate_size, hidden_act, and the keys of the variant.
    """

    def __init__(self, spec: ImportedSpec, keys: dict[str, Scalar]) -> None:
        self.hidden_size = spec.d_model
        self.intermediate_size = spec.d_ff
        self.hidden_act = "silu"
        self.__dict__.update(keys)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise MissingField(
            f"its constructor reads config.{name}",
            f"set it with @{name}=VALUE, {A_FACTORY}",
        )


def build_imported(spec: ImportedSpec) -> Any:
    """Call the target, and return its nn.Module, or the function that it gives in place
    of one; raises FfnbenchError where it gives neither.
    """
    factory = resolve(spec.target)
    arguments = match_arguments(factory, spec)
    try:
        module = factory(**arguments)
    except FfnbenchError as problem:
        raise FfnbenchError(
            f"{spec.target}: {problem.message}", problem.hint
        ) from problem
    except Exception as problem:
        shown = [
            f"{name}={value if isinstance(value, int | float | str) else '...'}"
            for name, value in arguments.items()
        ]
        hint = "mend its constructor, or set its arguments with @name=value"
        if isinstance(problem, NameError | AttributeError | ImportError):
            hint = "mend that line of it"  # no argument would help
        elif any(isinstance(value, Config) for value in arguments.values()):
            hint = (
                "name a function that gives it its own config: def make(d_model, d_ff)"
            )
        raise Raised(
            f"{spec.target}({', '.join(shown)}) raised {one_line(problem)}", hint
        ) from problem
    if isinstance(module, type) or not callable(module):
        raise FfnbenchError(
            f"{spec.target} returned {type(module).__name__}, not an nn.Module",
            "return an nn.Module, or a function, that maps (..., d_model) to (..., d_model)",
        )
    return module


def match_arguments(factory: Callable[..., Any], spec: ImportedSpec) -> dict[str, Any]:
    """Keyword arguments for a constructor: the widths by name, a config where it takes
    one, and the user's own arguments, which win over both. Those of the user's that the
    constructor does not take go into the config.
    """
    try:
        parameters = inspect.signature(factory).parameters
    except (TypeError, ValueError) as problem:
        raise FfnbenchError(
            f"the signature of {spec.target} can't be read",
            "wrap it: def make(d_model, d_ff): ...",
        ) from problem
    names = [
        name
        for name, p in parameters.items()
        if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)
    ]
    takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    arguments: dict[str, Any] = {}
    for usual_names, width in ((D_MODEL_NAMES, spec.d_model), (D_FF_NAMES, spec.d_ff)):
        found = [name for name in usual_names if name in names]
        if found:
            arguments[found[0]] = width
    if takes_any and not arguments:
        arguments = {"d_model": spec.d_model, "d_ff": spec.d_ff}
    given = dict(spec.arguments)
    if "config" in names:
        keys = {name: given.pop(name) for name in given.keys() - names}
        arguments["config"] = Config(spec, keys)
    for name in given:
        if name not in names and not takes_any:
            hints = [
                did_you_mean(name, [*names, LIKE]),
                f"it takes: {', '.join(names)}",
            ]
            raise FfnbenchError(
                f"{spec.target} takes no argument {name!r}",
                " ".join(filter(None, hints)),
            )
    arguments |= given
    for name in names:
        if (
            parameters[name].default is inspect.Parameter.empty
            and name not in arguments
        ):
            raise FfnbenchError(
                f"{spec.target} needs {name!r}",
                f"set it with @{name}=VALUE, {A_FACTORY}",
            )
    return arguments


F = TypeVar("F", bound=Callable[..., Any])
ACTIVATION_ATTRIBUTE = "__ffnbench_activation__"


def activation(
    *, formula: str, flops: int, flops_backward: int | None = None
) -> Callable[[F], F]:
    """Declare the formula of an activation and its element-wise FLOPs for one element;
    raises FfnbenchError where these are no whole number.
    """
    for name, value in (("flops", flops), ("flops_backward", flops_backward)):
        if value is not None and (type(value) is not int or value < 0):  # nor a bool
            raise FfnbenchError(
                f"{name} must be a whole number of FLOPs per element, not {value!r}",
                "for example 5",
            )

    def mark(function: F) -> F:
        costs = {"formula": formula, "flops": flops, "flops_backward": flops_backward}
        try:
            setattr(function, ACTIVATION_ATTRIBUTE, costs)
        except (AttributeError, TypeError):
            raise WrongValue(
                f"{function!r} can't be marked: it is written in C",
                "wrap it: def act(x): return torch.relu(x)",
            ) from None
        return function

    return mark


def as_activation(loaded: Any, target: str) -> OwnActivation | None:
    """A loaded object as an activation, with what it declares; None where it is the
    class or factory of a module.

    Without the decorator it is an activation if it is a function of one required
    argument whose name is not that of a width.
    """
    declared = getattr(loaded, ACTIVATION_ATTRIBUTE, None)
    if declared is not None:
        return OwnActivation(target=target, **declared)
    if inspect.isclass(loaded) or not callable(loaded):
        return None
    try:
        parameters = inspect.signature(loaded).parameters.values()
    except (TypeError, ValueError):
        return OwnActivation(target=target)  # a function of torch's own, written in C
    named = [p for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    required = [p for p in named if p.default is p.empty]
    if len(required) == 1 and required[0].name not in WIDTH_NAMES:
        return OwnActivation(target=target)
    return None
