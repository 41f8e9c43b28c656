"""A module of somebody else's as the form that it is said to be, on its very weights.
Needs torch.

Which parameter is which matrix of the form is read off its shape. Where that leaves
several layouts, as for packed rows, square matrices, or gate and up of one shape, all
are tried, and the one counts whose float64 output is nearest to the module's own.
Norms, experts and activations with trained scalars are not covered.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, permutations, product

import torch
from torch import Tensor, nn

from ffnbench.common.errors import FfnbenchError
from ffnbench.ffn.cost import matrix_params
from ffnbench.ffn.modules import OwnForm, build_dense, reference_output
from ffnbench.ffn.spec import DTYPES, FFNSpec, Gate, ImportedSpec, tolerance

# of the tolerance: an output nearer than that is the form's own, and no other layout
# need be tried
CLEAR = 0.2
# what tells a weight from its bias: fc1.weight and fc1.bias, w_gate and b_gate, w1 and
# b1 have the rest in common
KIND = re.compile(
    r"(?<![a-z])(?:weights?|bias|kernel|[wb](?=gate|up|down)|[wb](?![a-z]))"
)


@dataclass(frozen=True, slots=True)
class Piece:
    """The parameter of that name, or some of its `rows`, taken after turning: as one of
    ours has rows and columns.
    """

    name: str
    turned: bool = False
    rows: slice | None = None

    def of(self, tensor: Tensor) -> Tensor:
        """The view of the parameter, or of anything of its shape, such as its
        gradient.
        """
        if self.turned:
            tensor = tensor.mT
        if self.rows is None:
            return tensor
        return tensor[self.rows]


Pieces = dict[str, Piece]  # by the name of our parameter, or by its role


@dataclass(frozen=True, slots=True)
class Layout:
    """Which parameters of a module are which of a form's. `form` has the module's own
    d_ff and bias.
    """

    form: FFNSpec
    pieces: Pieces

    def of(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """By the names of our module's parameters: views of theirs, or of whatever has
        their names and shapes.
        """
        return {
            name: piece.of(tensors[piece.name]) for name, piece in self.pieces.items()
        }


def as_form(module: nn.Module, form: FFNSpec, x: Tensor) -> OwnForm:
    """Our module of that form on the very weights of the module: it shares their memory
    and has their dtype.

    `x` (..., d_model) is what the module is called with, in eval mode and without a
    graph, where its weights can be read in several ways. d_ff and bias are those of the
    weights. Raises FfnbenchError, with what does not fit.
    """
    return on_weights(layout_of(module, form, x), module)


def layout_as_said(module: nn.Module, spec: ImportedSpec, x: Tensor) -> Layout:
    """How the parameters of a module are those of the form that it is said to be; x as
    for `as_form`. Raises FfnbenchError where the weights are no such form's.
    """
    assert spec.like is not None
    try:
        return layout_of(module, spec.like, x)
    except FfnbenchError as problem:
        raise FfnbenchError(
            f"{spec.target} is not like {spec.like.name}: {problem.message}"
        ) from problem


def on_weights(layout: Layout, module: nn.Module) -> OwnForm:
    """Our module of a layout's form on the weights of the module; a bias that only its
    other weights have is zero.
    """
    form = layout.form
    weights = layout.of(
        {name: parameter.detach() for name, parameter in module.named_parameters()}
    )
    if form.bias:
        for role in form.matrices:
            weight = weights[f"{role}.weight"]
            weights.setdefault(f"{role}.bias", weight.new_zeros(len(weight)))
    own_module = build_dense(form, device="meta")
    own_module.load_state_dict(weights, assign=True)
    return own_module.requires_grad_(False)


def layout_of(module: nn.Module, form: FFNSpec, x: Tensor) -> Layout:
    """How the module's parameters are those of the form; x and errors as for
    `as_form`.
    """
    # at an address of its own: the module may have seen the old one
    x = x.detach().clone()
    y = module_output(module, x)  # first of all: a lazy module makes its weights now
    layouts = list(_layouts(module, form))
    if not layouts:
        raise FfnbenchError(_misfit_text(module, form))
    if len(layouts) == 1 or x.is_meta:
        return layouts[0]
    return _nearest(module, layouts, x, y)


def module_output(module: nn.Module, x: Tensor) -> Tensor:
    """The module's own output in eval mode, without a graph; raises FfnbenchError where
    that is no such tensor.
    """
    training = module.training
    module.eval()
    try:
        with torch.no_grad():
            y = module(x)
    finally:
        module.train(training)  # by its own method, which may do more
    if not isinstance(y, Tensor) or y.shape != x.shape:
        raise FfnbenchError("it does not give a tensor of the shape of its input")
    return y


def _nearest(
    module: nn.Module, layouts: Sequence[Layout], x: Tensor, y: Tensor
) -> Layout:
    """The layout whose reference output for x is nearest to the module's own output
    y.
    """
    nearest, least_error = layouts[0], math.inf
    for layout in layouts:
        error = relative_error(y, reference_output(on_weights(layout, module), x))
        if error < least_error:
            nearest, least_error = layout, error
        if error <= CLEAR * tolerance_of(y.dtype):
            break
    return nearest


def relative_error(y: Tensor, expected: Tensor) -> float:
    """The norm of the difference over that of what is expected, in float64, or by
    itself where nothing but zeros is expected; NaN for what is not finite.
    """
    difference = (y.double() - expected.double()).norm()
    size = expected.double().norm()
    return float(difference / size) if size else float(difference)


def tolerance_of(dtype: torch.dtype) -> float:
    """The relative error that rounding alone explains, as exactly as this process
    multiplies matrices now; that of float32 for a dtype that is none of the table's.
    """
    name = str(dtype).removeprefix("torch.")
    if name not in DTYPES:
        name = "float32"
    try:
        precision = torch.get_float32_matmul_precision()
    except RuntimeError:  # set in both of torch's ways: nobody knows
        precision = "highest"
    return tolerance(name, precision)


def _layouts(module: nn.Module, form: FFNSpec) -> Iterator[Layout]:
    """Every layout that the shapes allow, those with fewer turned matrices first."""
    parameters = dict(module.named_parameters())
    matrices = [name for name, parameter in parameters.items() if parameter.ndim == 2]
    vectors = [name for name, parameter in parameters.items() if parameter.ndim == 1]
    floating = all(parameter.is_floating_point() for parameter in parameters.values())
    d_ff = _width_of(form, sum(parameters[name].numel() for name in matrices))
    other_kinds = len(parameters) - len(matrices) - len(vectors)
    if (
        other_kinds
        or not floating
        or d_ff is None
        or form.moe is not None
        or form.row.learned
    ):
        return
    form = replace(form, d_ff=d_ff)
    readings = [
        list(_ways_to_read(name, module, parameters[name])) for name in matrices
    ]
    ways = []
    for reading_of_each in product(*readings):
        pieces = list(chain(*reading_of_each))
        if len(pieces) == len(form.matrices):
            ways.append(pieces)
    for pieces in sorted(
        ways, key=lambda pieces: sum(piece.turned for piece in pieces)
    ):
        for roles in permutations(form.matrices):
            weights = dict(zip(roles, pieces, strict=True))
            shapes = {
                role: piece.of(parameters[piece.name]).shape
                for role, piece in weights.items()
            }
            if shapes != form.matrices:
                continue
            biases = _biases(form, weights, vectors, parameters)
            if biases is not None:
                named = {f"{role}.weight": piece for role, piece in weights.items()}
                yield Layout(replace(form, bias=bool(biases)), named | biases)


def _width_of(form: FFNSpec, elements: int) -> int | None:
    """The d_ff at which the matrices of a form have so many elements; None where no
    width does it.
    """
    at_one = matrix_params(replace(form, d_ff=1))
    at_two = matrix_params(replace(form, d_ff=2))
    of_a_column = at_two - at_one
    columns, remainder = divmod(elements - at_one, of_a_column)
    if remainder or columns < 0:
        return None
    return 1 + columns


def _ways_to_read(
    name: str, module: nn.Module, parameter: Tensor
) -> Iterator[list[Piece]]:
    """Every way to see matrices in a parameter: one, or two, whose rows are its halves
    or alternate. Where its module's class does not tell, its rows may be outputs or
    inputs, as those of transformers' Conv1D are.
    """
    owner = type(module.get_submodule(name.rpartition(".")[0]))
    if issubclass(owner, nn.Linear):
        orientations = [False]
    elif owner.__name__ == "Conv1D":
        orientations = [True]
    else:
        orientations = [False, True]
    for turned in orientations:
        half = parameter.shape[1 if turned else 0] // 2
        yield [Piece(name, turned)]
        yield [
            Piece(name, turned, slice(0, half)),
            Piece(name, turned, slice(half, None)),
        ]
        yield [
            Piece(name, turned, slice(0, None, 2)),
            Piece(name, turned, slice(1, None, 2)),
        ]


def _biases(
    form: FFNSpec, weights: Pieces, vectors: list[str], parameters: Mapping[str, Tensor]
) -> Pieces | None:
    """The vectors as biases of the weights of their names; None where one is none. Rows
    of one matrix share a bias.
    """
    biases: Pieces = {}
    for name in vectors:
        roles = [
            role
            for role, weight in weights.items()
            if _stem(weight.name) == _stem(name)
        ]
        rows = sum(form.matrices[role][0] for role in roles)
        if not roles or len(parameters[name]) != rows:
            return None
        for role in roles:
            biases[f"{role}.bias"] = Piece(name, rows=weights[role].rows)
    return biases


def _stem(name: str) -> str:
    """What a weight's name has in common with its bias's."""
    return "".join(re.findall(r"[a-z0-9]+", KIND.sub("", name.lower())))


def _misfit_text(module: nn.Module, form: FFNSpec) -> str:
    """What the module has, and what it should have."""
    parameters = [
        f"{name} {tuple(parameter.shape)}"
        for name, parameter in module.named_parameters()
    ]
    gate_rows = "d_ff" if form.gate is Gate.INNER else form.d_model
    shapes = {
        "gate": f"({gate_rows}, {form.d_model})",
        "up": f"(d_ff, {form.d_model})",
        "down": f"({form.d_model}, d_ff)",
    }
    expected = [f"{role} {shapes[role]}" for role in form.matrices]
    expected += [f"{name} ()" for name, _ in form.row.learned]
    return (
        f"its parameters are {', '.join(parameters) or 'none'}, "
        f"where {form.form} has {', '.join(expected)}, and biases of their rows"
    )
