"""A target as the form that it should compute (`like`), on the target's own weights.
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

# A layout whose output is off by no more than this share of the tolerance is the right
# one, and no other need be tried.
CLEAR_SHARE = 0.2
# The part of a name that tells a weight from its bias: fc1.weight and fc1.bias, w_gate
# and b_gate, w1 and b1 have the rest in common.
WEIGHT_OR_BIAS = re.compile(
    r"(?<![a-z])(?:weights?|bias|kernel|[wb](?=gate|up|down)|[wb](?![a-z]))"
)


@dataclass(frozen=True, slots=True)
class Piece:
    """The parameter of a target, or a part of it, that is one parameter of ours: that
    of `name`, transposed where its rows are our columns, and then some of the `rows`.
    """

    name: str
    transposed: bool = False
    rows: slice | None = None

    def of(self, tensor: Tensor) -> Tensor:
        """The view of the whole parameter, or of anything of its shape such as its
        gradient.
        """
        if self.transposed:
            tensor = tensor.mT
        if self.rows is None:
            return tensor
        return tensor[self.rows]


# by the name of our parameter (gate.weight), or by the role of a matrix (gate)
Pieces = dict[str, Piece]


@dataclass(frozen=True, slots=True)
class Layout:
    """Which parameters of a target are which of a form's. `form` has the d_ff and bias
    that the target has.
    """

    form: FFNSpec
    pieces: Pieces

    def of(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Views of a target's parameters by the names of ours. `tensors` are its
        parameters, or whatever has their names and shapes, such as their gradients.
        """
        return {
            name: piece.of(tensors[piece.name]) for name, piece in self.pieces.items()
        }


def as_form(module: nn.Module, form: FFNSpec, x: Tensor) -> OwnForm:
    """Our module of that form on the weights of the target's module, of which it shares
    memory and dtype; d_ff and bias are those of the weights.

    Where the weights can be read in several ways, `x` (..., d_model) is what the module
    is called with, in eval mode and without a graph. Raises FfnbenchError, with what
    does not fit.
    """
    return on_weights(layout_of(module, form, x), module)


def layout_of_like(module: nn.Module, spec: ImportedSpec, x: Tensor) -> Layout:
    """How the parameters of a target's module are those of its form `like`; x as for
    `as_form`. Raises FfnbenchError where the weights are no such form's.
    """
    assert spec.like is not None
    try:
        return layout_of(module, spec.like, x)
    except FfnbenchError as problem:
        raise FfnbenchError(
            f"{spec.target} is not like {spec.like.name}: {problem.message}"
        ) from problem


def on_weights(layout: Layout, module: nn.Module) -> OwnForm:
    """Our module of a layout's form on the weights of the module. Where only some of
    them have a bias, the others' is zero.
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
    """Which parameters of the module are which of the form's; x and errors as for
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
    """The module's own output for x, in eval mode and without a graph; raises
    FfnbenchError unless that is a tensor of x's shape.
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
        if error <= CLEAR_SHARE * tolerance_of(y.dtype):
            break
    return nearest


def relative_error(y: Tensor, expected: Tensor) -> float:
    """The norm of the difference over that of `expected`, in float64; where `expected`
    is zero, the norm of the difference. NaN where a number is not finite.
    """
    difference = (y.double() - expected.double()).norm()
    size = expected.double().norm()
    return float(difference / size) if size else float(difference)


def tolerance_of(dtype: torch.dtype) -> float:
    """The relative error that rounding alone explains, at the precision at which this
    process multiplies matrices now. A dtype that is not in DTYPES has that of float32.
    """
    name = str(dtype).removeprefix("torch.")
    if name not in DTYPES:
        name = "float32"
    try:
        precision = torch.get_float32_matmul_precision()
    except RuntimeError:  # torch refuses where its old and its new setting are mixed
        precision = "highest"
    return tolerance(name, precision)


def _layouts(module: nn.Module, form: FFNSpec) -> Iterator[Layout]:
    """Every layout that the shapes allow, those with fewer transposed matrices first;
    none for a form or a module that is not covered.
    """
    parameters = dict(module.named_parameters())
    matrices = {name: p for name, p in parameters.items() if p.ndim == 2}
    vectors = [name for name, p in parameters.items() if p.ndim == 1]
    is_covered = (
        form.moe is None
        and not form.row.learned
        and len(matrices) + len(vectors) == len(parameters)
        and all(p.is_floating_point() for p in parameters.values())
    )
    d_ff = _width_of(form, sum(matrix.numel() for matrix in matrices.values()))
    if d_ff is None or not is_covered:
        return
    form = replace(form, d_ff=d_ff)
    for pieces in _ways_to_cut(matrices, module, len(form.matrices)):
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


def _ways_to_cut(
    matrices: Mapping[str, Tensor], module: nn.Module, count: int
) -> list[list[Piece]]:
    """Every way to cut the matrices of a module into `count` pieces, those with fewer
    transposed pieces first.
    """
    ways_for_each = [
        _ways_to_cut_one(name, module, matrix) for name, matrix in matrices.items()
    ]
    ways = (list(chain(*pieces_of_each)) for pieces_of_each in product(*ways_for_each))
    return sorted(
        (pieces for pieces in ways if len(pieces) == count),
        key=lambda pieces: sum(piece.transposed for piece in pieces),
    )


def _ways_to_cut_one(
    name: str, module: nn.Module, matrix: Tensor
) -> Iterator[list[Piece]]:
    """Every way to see matrices in one parameter: one, or two, whose rows are its
    halves or alternate. Unless the class of its module tells, its rows may be outputs
    or, as those of transformers' Conv1D, inputs.
    """
    owner = type(module.get_submodule(name.rpartition(".")[0]))
    if issubclass(owner, nn.Linear):
        orientations = [False]
    elif owner.__name__ == "Conv1D":
        orientations = [True]
    else:
        orientations = [False, True]
    for transposed in orientations:
        half = matrix.shape[1 if transposed else 0] // 2
        cuts: list[list[slice | None]] = [
            [None],
            [slice(0, half), slice(half, None)],
            [slice(0, None, 2), slice(1, None, 2)],
        ]
        for cut in cuts:
            yield [Piece(name, transposed, rows) for rows in cut]


def _biases(
    form: FFNSpec, weights: Pieces, vectors: list[str], parameters: Mapping[str, Tensor]
) -> Pieces | None:
    """The vectors as biases of the weights with which they share a name; None where one
    of them is no such bias. The pieces of one packed weight cut its bias as they cut
    it.
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
    """The part of a weight's name that its bias's name has too."""
    rest = WEIGHT_OR_BIAS.sub("", name.lower())
    return "".join(re.findall(r"[a-z0-9]+", rest))


def _misfit_text(module: nn.Module, form: FFNSpec) -> str:
    """Which parameters the module has, and which the form has, as the message of an
    error.
    """
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
        f"where {form.form_name} has {', '.join(expected)}, and biases of their rows"
    )
