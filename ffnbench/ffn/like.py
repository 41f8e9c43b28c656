"""A module of somebody else's as the form that it is said to be, on its very weights. Needs torch.

Its parameters are told by shape, and by name where a name says a role in words (gate, up, down, and what T5 and timm
have for them). Where that leaves several ways, as with w1 and w2, packed rows or square matrices, all are tried and the
one is taken whose float64 output is nearest to the module's own. A norm inside is not covered, nor are experts; dropout
is as it is in eval mode: off.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import permutations, product

import torch
from torch import Tensor, nn

from ffnbench.errors import FfnbenchError
from ffnbench.ffn.dtypes import DTYPES, tolerance
from ffnbench.ffn.modules import OwnForm, build_module, reference_output
from ffnbench.ffn.spec import FFNSpec, Gate
from ffnbench.ffn.weight_names import LIKELY, is_bias, said, stem

NORM = re.compile(r"Norm(\d?d)?$")  # how the class of a norm ends
CLEAR = 0.2  # of the tolerance: an output nearer than that is the form's own, and no other way need be tried
TURNS = {"Conv1D": (True,), "Conv1d": (False,), "Conv2d": (False,)}  # transformers' own layer is nn.Linear turned
SHOWN = 4  # parameters that an error names
Way = dict[str, "Piece"]  # name of our parameter -> what of theirs it is
Key = tuple[str, int | None]  # what a weight and its bias have in common: the stem of the name, the number in a stack


@dataclass(frozen=True, slots=True)
class Piece:
    """What is to be cut out of a parameter: a view of it, as one of ours has its rows and columns.

    `part` is (dim, index) of several matrices, or biases, in one tensor. `rows` are taken after turning.
    """

    name: str
    part: tuple[int, int] | None = None
    turned: bool = False
    rows: slice | None = None
    scalar: bool = False

    def of(self, tensor: Tensor) -> Tensor:
        """The view of the parameter, or of anything of its shape, such as its gradient."""
        if self.scalar:
            return tensor.reshape(())
        tensor = tensor.reshape(_plain(tensor.shape))
        tensor = tensor if self.part is None else tensor.select(*self.part)
        tensor = tensor.mT if self.turned else tensor
        return tensor if self.rows is None else tensor[self.rows]


@dataclass(frozen=True, slots=True)
class Layout:
    """Which parameters of a module are which of a form's. `form` has the module's own d_ff and bias."""

    form: FFNSpec
    pieces: Way

    def of(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """By the names of our module's parameters: views of theirs, or of whatever has their names and shapes."""
        return {name: piece.of(tensors[piece.name]) for name, piece in self.pieces.items()}


@dataclass(frozen=True, slots=True)
class _Matrix:
    """A parameter, or a part of one, of two dimensions. `turns`: (False,) for rows of outputs, both where unknown."""

    name: str
    shape: tuple[int, int]
    turns: tuple[bool, ...]
    key: Key
    part: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class _Vector:
    name: str
    size: int
    key: Key
    part: tuple[int, int] | None = None


@dataclass(slots=True)
class _Found:
    """The parameters of a module by what they can be; `shapes` are those of all."""

    matrices: list[_Matrix] = field(default_factory=list)
    vectors: list[_Vector] = field(default_factory=list)
    scalars: list[str] = field(default_factory=list)
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)


def as_form(module: nn.Module, form: FFNSpec, x: Tensor) -> OwnForm:
    """Our module of that form on the very weights of the module: it shares their memory and has their dtype.

    `x` (..., d_model) is what the module is called with, in eval mode and without a graph, where its weights can be
    read in several ways. d_ff and bias are those of the weights. Raises FfnbenchError, with what does not fit.
    """
    return on_weights(layout_of(module, form, x), dict(module.named_parameters()))


def on_weights(layout: Layout, tensors: Mapping[str, Tensor]) -> OwnForm:
    """Our module of a layout's form on weights that have the names and the shapes of theirs; a bias that only the
    others have is zero.
    """
    ours = build_module(layout.form, device="meta")
    found = layout.of({name: tensor.detach() for name, tensor in tensors.items()})
    for name in dict(ours.named_parameters()):
        owner, _, leaf = name.rpartition(".")
        value = found.get(name)
        if value is None:
            weight = found[f"{owner}.weight"]
            value = weight.new_zeros(len(weight))
        setattr(ours.get_submodule(owner), leaf, nn.Parameter(value, requires_grad=False))
    return ours


def layout_of(module: nn.Module, form: FFNSpec, x: Tensor) -> Layout:
    """How the module's parameters are those of the form; x and errors as for `as_form`."""
    if form.moe is not None:
        raise FfnbenchError("experts can't be held against a form of ffnbench's by their weights")
    x = x.detach().clone()  # at an address of its own: the module may have seen the old one
    theirs = output_of(module, x)  # first of all: a lazy module makes its weights now
    found = _parameters(module)
    every = list(_ways(form, found))
    if not every:
        raise FfnbenchError(_misfit(form, found))
    claims = _claims(form, found.matrices)
    by_name = [one for one in every if _as_said(one, claims)] or every
    if len(every) == 1 or x.is_meta:
        return by_name[0]
    best, error = _nearest(module, by_name, x, theirs)
    others = [one for one in every if one not in by_name]
    if others and error > tolerance_of(theirs.dtype):
        other, error = _nearest(module, others, x, theirs)
        if error <= tolerance_of(theirs.dtype):
            told = ", ".join(f"{role} is {other.pieces[f'{role}.weight'].name}" for role in form.matrices)
            raise FfnbenchError(f"its weights are not what their names say: by its output {told}")
    return best


def output_of(module: nn.Module, x: Tensor) -> Tensor:
    """The module's own output in eval mode, without a graph; raises FfnbenchError where that is no such tensor."""
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


def _nearest(module: nn.Module, layouts: Sequence[Layout], x: Tensor, theirs: Tensor) -> tuple[Layout, float]:
    """The layout whose reference is nearest, and its relative error; the likeliest where several are as near."""
    best, least = layouts[0], math.inf
    for layout in layouts:
        y = reference_output(on_weights(layout, dict(module.named_parameters())), x)
        error = relative_error(theirs, y)
        if error < least:
            best, least = layout, error
        if error <= CLEAR * tolerance_of(theirs.dtype):
            break
    return best, least


def relative_error(y: Tensor, expected: Tensor) -> float:
    """The norm of the difference over that of what is expected, in float64, or by itself where nothing but zeros is
    expected; NaN for what is not finite.
    """
    y, expected = y.double(), expected.double()
    size = expected.norm()
    return float((y - expected).norm() / size) if size else float(y.norm())


def tolerance_of(dtype: torch.dtype) -> float:
    """The relative error that rounding alone explains, as exactly as this process multiplies matrices now; that of
    float32 for a dtype that is none of the table's.
    """
    name = str(dtype).removeprefix("torch.")
    try:
        inside = torch.get_float32_matmul_precision()
    except RuntimeError:  # set in both of torch's ways: nobody knows
        inside = "highest"
    return tolerance(name if name in DTYPES else "float32", inside)


def _plain(shape: Sequence[int]) -> tuple[int, ...]:
    """Without the ones of a 1x1 convolution behind and of a broadcast before, down to two dimensions."""
    found = tuple(shape)
    while len(found) > 2 and found[-1] == 1:
        found = found[:-1]
    while len(found) > 2 and found[0] == 1:
        found = found[1:]
    return found


def _parameters(module: nn.Module) -> _Found:
    """The parameters by what they can be; raises FfnbenchError for what no form has."""
    for name, part in module.named_modules():
        if name and NORM.search(type(part).__name__):
            raise FfnbenchError(f"it has a norm inside, {name}")
    found = _Found()
    for name, parameter in module.named_parameters():
        if not parameter.is_floating_point():
            raise FfnbenchError(f"its {name} is of {str(parameter.dtype).removeprefix('torch.')}")
        found.shapes[name] = tuple(parameter.shape)
        kind = type(module.get_submodule(name.rpartition(".")[0]))
        turns = (False,) if issubclass(kind, nn.Linear) else TURNS.get(kind.__name__, (False, True))
        _sort(found, name, _plain(parameter.shape), turns)
    return found


def _sort(found: _Found, name: str, shape: tuple[int, ...], turns: tuple[bool, ...]) -> None:
    """Of three dimensions it is a stack of matrices: gate and up, or all three."""
    key = stem(name)
    if not shape or shape == (1,):
        found.scalars.append(name)
    elif len(shape) == 1:
        found.vectors.append(_Vector(name, shape[0], (key, None)))
    elif len(shape) == 2 and shape[0] <= 3 and is_bias(name):
        keys = [(key, i if shape[0] > 1 else None) for i in range(shape[0])]
        found.vectors += [_Vector(name, shape[1], keys[i], (0, i)) for i in range(shape[0])]
    elif len(shape) == 2:
        found.matrices.append(_Matrix(name, (shape[0], shape[1]), turns, (key, None)))
    else:
        dims = [dim for dim, size in enumerate(shape) if size in (2, 3)]
        if len(shape) > 3 or not dims:
            raise FfnbenchError(f"its {name} is {shape}, which is no matrix of a form's")
        rows, columns = (size for dim, size in enumerate(shape) if dim != dims[0])
        parts = [(dims[0], i) for i in range(shape[dims[0]])]
        found.matrices += [_Matrix(name, (rows, columns), turns, (key, part[1]), part) for part in parts]


def _ways(form: FFNSpec, found: _Found) -> Iterator[Layout]:
    """Every layout that the shapes allow, the likeliest by name first."""
    wanted = {"packed", "down"} if form.gate is Gate.INNER and len(found.matrices) == 2 else set(form.matrices)
    if len(found.matrices) != len(wanted):
        return
    roles: list[str] = [role for role in ("gate", "packed", "up", "down") if role in wanted]
    placed = [
        dict(zip(roles, zip(matrices, turns, strict=True), strict=True))
        for matrices in permutations(found.matrices)
        for turns in product(*(matrix.turns for matrix in matrices))
    ]
    fitting = [(places, width) for places in placed if (width := _width(form, places)) is not None]
    for places, width in sorted(fitting, key=lambda fit: -_likelihood(fit[0])):
        weights = {role: Piece(m.name, m.part, turned) for role, (m, turned) in places.items()}
        for biases in _biases(form, places, width, found.vectors):
            for scalars in _scalars(form, found.scalars):
                for pieces in _unpacked(weights, biases, width):
                    yield Layout(replace(form, d_ff=width, bias=bool(biases)), pieces | scalars)


Places = dict[str, tuple[_Matrix, bool]]  # role -> the matrix, and whether it is turned


def _width(form: FFNSpec, places: Places) -> int | None:
    """d_ff where all matrices have the shapes of the form, else None."""
    shapes = {role: matrix.shape[::-1] if turned else matrix.shape for role, (matrix, turned) in places.items()}
    width = shapes["down"][1]
    wanted = replace(form, d_ff=width).matrices
    if "packed" in shapes:
        wanted = {"packed": (2 * width, form.d_model), "down": wanted["down"]}
    beside = {turned for role, (matrix, turned) in places.items() if role != "down" and len(matrix.turns) > 1}
    return width if shapes == wanted and len(beside) < 2 else None  # raw weights of one kind lie in one way


def _likelihood(places: Places) -> int:
    """How many matrices have a name that is often their role's; weights that lie as nn.Linear's before turned ones."""
    likely = sum(_leaf(matrix.name) in LIKELY.get(role, ()) for role, (matrix, _) in places.items())
    return 4 * likely - sum(turned for _, turned in places.values())


def _leaf(name: str) -> str:
    owner, _, leaf = name.rpartition(".")
    return owner.rpartition(".")[2] if leaf == "weight" else leaf


def _biases(form: FFNSpec, places: Places, width: int, vectors: Sequence[_Vector]) -> Iterator[dict[str, Piece]]:
    """Every way to give the vectors to the matrices as their biases: by name, and by size where names don't tell."""
    sizes = {"packed": 2 * width} | {role: rows for role, (rows, _) in replace(form, d_ff=width).matrices.items()}
    keys = {matrix.key: role for role, (matrix, _) in places.items()}
    known = {keys[vector.key]: vector for vector in vectors if vector.key in keys}
    rest = [vector for vector in vectors if vector.key not in keys]
    if len(known) + len(rest) < len(vectors) or any(sizes[role] != vector.size for role, vector in known.items()):
        return
    free = [role for role in places if role not in known]
    for roles in permutations(free, len(rest)):
        if all(sizes[role] == vector.size for role, vector in zip(roles, rest, strict=True)):
            given = known | dict(zip(roles, rest, strict=True))
            yield {role: Piece(vector.name, vector.part) for role, vector in given.items()}


def _scalars(form: FFNSpec, scalars: Sequence[str]) -> Iterator[Way]:
    """Every way to give the module's scalars to the activation's trained ones; one where the names are the same."""
    ours = [name for name, _ in form.row.learned]
    if len(ours) != len(scalars):
        return
    by_leaf = {name.rpartition(".")[2]: name for name in scalars}
    orders = [tuple(by_leaf[name] for name in ours)] if set(by_leaf) == set(ours) else permutations(scalars)
    for order in orders:
        yield {name: Piece(theirs, scalar=True) for name, theirs in zip(ours, order, strict=True)}


def _unpacked(weights: Mapping[str, Piece], biases: Mapping[str, Piece], width: int) -> Iterator[Way]:
    """The pieces by our names. Packed rows: gate's or up's first, in halves or in turns."""
    kinds = {"weight": weights, "bias": biases}
    named = {f"{role}.{kind}": piece for kind, pieces in kinds.items() for role, piece in pieces.items()}
    packed = {name: piece for name, piece in named.items() if name.startswith("packed.")}
    if not packed:
        yield named
        return
    halves, turns = (slice(0, width), slice(width, None)), (slice(0, None, 2), slice(1, None, 2))
    for cut in (halves, turns):
        for order in (("gate", "up"), ("up", "gate")):
            yield {name: piece for name, piece in named.items() if name not in packed} | {
                name.replace("packed", role): replace(piece, rows=rows)
                for name, piece in packed.items()
                for role, rows in zip(order, cut, strict=True)
            }


Claims = dict[tuple[str, int | None], tuple[str, ...]]  # name of a parameter, number in a stack -> roles in its words


def _claims(form: FFNSpec, matrices: Sequence[_Matrix]) -> Claims:
    """What the names say in words; nothing where two say the same, as "gate" in the name of the whole may."""
    claims: Claims = {}
    for matrix in matrices:
        roles = tuple(role for role in said(matrix.name) if role in form.matrices)
        if matrix.part is not None:
            stacked = [other for other in matrices if other.name == matrix.name]
            roles = (roles[matrix.part[1]],) if len(roles) == len(stacked) else ()
        claims[matrix.name, _number(matrix.part)] = roles
    every = [role for roles in claims.values() for role in roles]
    return claims if len(every) == len(set(every)) else {}


def _as_said(layout: Layout, claims: Claims) -> bool:
    """Whether no weight is another one than its name says. Of packed rows the name says the order, if anything."""
    for role in layout.form.matrices:
        piece = layout.pieces[f"{role}.weight"]
        claim = claims.get((piece.name, _number(piece.part)), ())
        packed = piece.rows is not None
        if packed and len(claim) == 2:
            claim = (claim[1 if piece.rows and piece.rows.start else 0],)
        elif packed and claim != ("down",):
            continue
        if len(claim) == 1 and claim != (role,):
            return False
    return True


def _number(part: tuple[int, int] | None) -> int | None:
    return None if part is None else part[1]


def _misfit(form: FFNSpec, found: _Found) -> str:
    """What does not fit: the matrices, then the biases, then the scalars of the activation."""
    names, scalars = [name for name, _ in form.row.learned], [""] * len(form.row.learned)
    fitting = next(_ways(form, replace(found, vectors=[], scalars=scalars)), None)
    if fitting is None:
        shown = _shown(found, [matrix.name for matrix in found.matrices])
        return f"its weights are {shown}, where {form.form} has {_wanted(form)}" if shown else "it has no weights"
    if next(_ways(form, replace(found, scalars=scalars)), None) is None:
        sizes = {role: rows for role, (rows, _) in fitting.form.matrices.items()}
        told = ", ".join(f"{role} ({size},)" for role, size in sizes.items())
        return f"its {_shown(found, [vector.name for vector in found.vectors])} can't be the biases of {told}"
    theirs = _shown(found, found.scalars) or "none"
    return f"the trained scalars of {form.form} are {', '.join(names) or 'none'}, those of the module {theirs}"


def _wanted(form: FFNSpec) -> str:
    d = form.d_model
    down = f"down ({d}, d_ff)"
    match form.gate:
        case Gate.NONE:
            return f"up (d_ff, {d}) and {down}"
        case Gate.INNER:
            return f"gate and up (d_ff, {d}), or both in one (2 d_ff, {d}), and {down}"
        case Gate.OUTPUT:
            return f"gate ({d}, {d}), up (d_ff, {d}) and {down}"


def _shown(found: _Found, names: Sequence[str]) -> str:
    told = [f"{name} {found.shapes[name]}" for name in dict.fromkeys(names)]
    return ", ".join(told[:SHOWN]) + (f" and {len(told) - SHOWN} more" if len(told) > SHOWN else "")
