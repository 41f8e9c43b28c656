"""The user's own module: from `package.module:Attr` or `path/to/file.py:Attr` to an
nn.Module. Runs in a worker.

A constructor's arguments are found by the names that the ecosystem uses for the two
widths; `@key=value` sets any other and wins. A constructor that takes a config object
gets one with all those names as attributes.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Container, Iterable
from math import inf, nextafter
from typing import Any, TypeVar

from ffnbench.common.errors import FfnbenchError, Raised
from ffnbench.common.names import did_you_mean
from ffnbench.common.targets import one_line, resolve
from ffnbench.ffn.activations import OwnActivation
from ffnbench.ffn.spec import LIKE, ImportedSpec, Scalar

# fmt: off
D_MODEL_NAMES = (
    "d_model", "dim", "hidden_size", "in_features", "embed_dim", "n_embd", "n_embed", "model_dim", "embedding_dim",
    "emb_dim", "d_embed", "in_dim", "input_dim", "dim_in", "d_in", "in_channels", "channels", "width", "embed_dims",
    "dmodel", "input_size", "size",
)
D_FF_NAMES = (
    "d_ff", "intermediate_size", "hidden_features", "ffn_dim", "inner_dim", "dim_feedforward", "ffn_hidden_size",
    "ff_dim", "mlp_dim", "d_hidden", "n_inner", "d_inner", "dff", "dim_ff", "ffn_hidden_dim", "feedforward_dim",
    "intermediate_dim", "ffn_embed_dim", "ff_size", "filter_size", "hidden_channels", "mlp_hidden_dim",
    "feedforward_channels", "inner_size", "hidden_dim",
)
OUT_NAMES = ("out_features", "out_dim", "output_dim", "dim_out", "d_out", "out_channels", "output_size")
RATIO_NAMES = ("mult", "mlp_ratio", "expansion_factor", "expansion", "ffn_mult", "ratio", "expand", "widening_factor")
CONFIG_NAMES = ("config", "cfg", "args", "configuration", "model_args", "params")
CONFIG_DEFAULTS: dict[str, Scalar] = {
    "hidden_act": "silu", "hidden_activation": "silu", "activation_function": "gelu_new", "activation": "gelu",
    "dense_act_fn": "gelu_new",
    "mlp_bias": False, "bias": False, "use_bias": False, "add_bias_linear": False, "dropout": 0.0, "resid_pdrop": 0.0,
    "hidden_dropout": 0.0, "hidden_dropout_prob": 0.0, "activation_dropout": 0.0, "mlp_dropout": 0.0,
    "dropout_rate": 0.0, "pretraining_tp": 1, "layer_norm_eps": 1e-5, "rms_norm_eps": 1e-6, "initializer_range": 0.02,
}
# fmt: on
WIDTH_NAMES = (*D_MODEL_NAMES, *D_FF_NAMES, *RATIO_NAMES, *CONFIG_NAMES)


class Config:
    """A stand-in for a config: the two widths under every name in use, and harmless
    values for common switches.
    """

    def __init__(self, spec: ImportedSpec, overrides: dict[str, Scalar]) -> None:
        self.__dict__.update(dict.fromkeys(D_MODEL_NAMES, spec.d_model))
        self.__dict__.update(dict.fromkeys(D_FF_NAMES, spec.d_ff))
        self.__dict__.update(CONFIG_DEFAULTS)
        self.__dict__.update(overrides)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise FfnbenchError(
            f"its constructor reads config.{name}, which ffnbench can't guess",
            f"set it with @{name}=VALUE",
        )

    def get(self, name: str, default: Any = None) -> Any:
        """As dict.get, for constructors that treat their config as one."""
        return self.__dict__.get(name, default)


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
        hint = "set or override arguments with @name=value"
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
    arguments: dict[str, Any] = _widths(names, spec, takes_any)
    given = dict(spec.arguments)
    config = _first_of(CONFIG_NAMES, names)
    if config is not None:
        unknown = given.keys() - names
        of_config = {name: given.pop(name) for name in unknown}
        arguments[config] = Config(spec, of_config)
    for name in given:
        if name not in names and not takes_any:
            hints = [
                did_you_mean(name, [*names, LIKE]),
                "it takes: " + ", ".join(names),
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
                f"{spec.target} needs {name!r}, which ffnbench can't fill in",
                f"set it with @{name}=VALUE",
            )
    return arguments


def _first_of(candidates: Iterable[str], names: Container[str]) -> str | None:
    """The first of the candidates that is among the names."""
    for candidate in candidates:
        if candidate in names:
            return candidate
    return None


def _widths(names: list[str], spec: ImportedSpec, takes_any: bool) -> dict[str, Any]:
    """The widths by those of a constructor's parameters whose names are known;
    `takes_any` says that it has **kwargs.
    """
    model = _first_of(D_MODEL_NAMES, names)
    inner = _first_of([name for name in D_FF_NAMES if name != model], names)
    if model is None and inner not in (None, "hidden_dim") and "hidden_dim" in names:
        # in (hidden_dim, ffn_dim) the second is clearer, and the first is d_model
        model = "hidden_dim"
    if model is None and inner is None and takes_any:
        return {"d_model": spec.d_model, "d_ff": spec.d_ff}
    widths: dict[str, Any] = {}
    if model is not None:
        widths[model] = spec.d_model
    if inner is not None:
        widths[inner] = spec.d_ff
    else:
        ratio = _first_of(RATIO_NAMES, names)
        if ratio is not None:
            widths[ratio] = _ratio(spec)
    out = _first_of(OUT_NAMES, names)
    if out is not None:
        widths[out] = spec.d_model
    return widths


def _ratio(spec: ImportedSpec) -> float:
    """d_ff / d_model: an integer where it is whole, else a number for which the usual
    int(d_model * ratio) gives d_ff back.
    """
    if spec.d_ff % spec.d_model == 0:
        return spec.d_ff // spec.d_model
    ratio = spec.d_ff / spec.d_model
    if int(spec.d_model * ratio) < spec.d_ff:
        return nextafter(ratio, inf)
    return ratio


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
        setattr(
            function,
            ACTIVATION_ATTRIBUTE,
            {"formula": formula, "flops": flops, "flops_backward": flops_backward},
        )
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
