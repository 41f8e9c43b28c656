"""A module of somebody else's as the form that it is said to be, on its very weights. Needs torch.

Its parameters are told by shape, and by name where a name says a role in words (gate, up, down, and what T5 and timm
have for them). Where that leaves several layouts, as with w1 and w2, packed rows or square matrices, all are tried and
the one is taken whose float64 output is nearest to the module's own. Norms and experts are not covered.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import permutations, product

import torch
from torch import Tensor, nn

from ffnbench.errors import FfnbenchError
from ffnbench.ffn.cost import matrix_params
from ffnbench.ffn.dtypes import DTYPES, tolerance
from ffnbench.ffn.modules import OwnForm, build_module, reference_output
from ffnbench.ffn.spec import FFNSpec, Gate
from ffnbench.ffn.weight_names import LIKELY, is_bias, said, stem

CLEAR = 0.2  # of the tolerance: an output nearer than that is the form's own, and no other layout need be tried
TURNED = {"Conv1D": True, "Conv1d": False, "Conv2d": False}  # transformers' own layer is nn.Linear turned


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

    @property
    def place(self) -> int:
        """Before which others of the same parameter it stands."""
        return self.part[1] if self.part else (self.rows and self.rows.start) or 0

    @property
    def key(self) -> tuple[str, int | None]:
        """What a weight and its bias have in common: the stem of the name, the number in a stack."""
        return stem(self.name), self.part and self.part[1]


Pieces = dict[str, Piece]  # by the name of our parameter, or by its role


@dataclass(frozen=True, slots=True)
class Layout:
    """Which parameters of a module are which of a form's. `form` has the module's own d_ff and bias."""

    form: FFNSpec
    pieces: Pieces

    def of(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """By the names of our module's parameters: views of theirs, or of whatever has their names and shapes."""
        return {name: piece.of(tensors[piece.name]) for name, piece in self.pieces.items()}

    @property
    def weights(self) -> Pieces:
        """The matrices by role."""
        return {role: self.pieces[f"{role}.weight"] for role in self.form.matrices}


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
    x = x.detach().clone()  # at an address of its own: the module may have seen the old one
    theirs = output_of(module, x)  # first of all: a lazy module makes its weights now
    every = sorted(_layouts(module, form), key=_unlikely)
    if not every:
        raise FfnbenchError(_misfit(module, form))
    by_name = [layout for layout in every if _as_named(layout)] or every
    if len(every) == 1 or x.is_meta:
        return by_name[0]
    best, error = _nearest(module, by_name, x, theirs)
    others = [layout for layout in every if layout not in by_name]
    if others and error > tolerance_of(theirs.dtype):
        other, error = _nearest(module, others, x, theirs)
        if error <= tolerance_of(theirs.dtype):
            told = ", ".join(f"{role} is {piece.name}" for role, piece in other.weights.items())
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


def _layouts(module: nn.Module, form: FFNSpec) -> Iterator[Layout]:
    """Every layout that the shapes allow."""
    tensors = dict(module.named_parameters())
    for name, tensor in tensors.items():
        if not tensor.is_floating_point():
            raise FfnbenchError(f"its {name} is of {str(tensor.dtype).removeprefix('torch.')}")
    shapes = {name: _plain(tensor.shape) for name, tensor in tensors.items()}
    scalars = [name for name, shape in shapes.items() if shape in ((), (1,))]
    vectors = [piece for name, shape in shapes.items() for piece in _vectors(name, shape)]
    matrices = [name for name in shapes if name not in scalars and name not in {piece.name for piece in vectors}]
    one, two = (matrix_params(replace(form, d_ff=width)) for width in (1, 2))
    more, rest = divmod(sum(tensors[name].numel() for name in matrices) - one, two - one)
    if rest or more < 0 or len(matrices) > len(form.matrices) or form.moe is not None:
        return
    form = replace(form, d_ff=1 + more)
    turns = {name: _turns(module, name) for name in matrices}
    for readings in product(*(list(_readings(name, shapes[name], turns[name])) for name in matrices)):
        pieces = [piece for reading in readings for piece in reading]
        for roles in permutations(form.matrices) if len(pieces) == len(form.matrices) else ():
            weights = dict(zip(roles, pieces, strict=True))
            raw = {p.turned for role, p in weights.items() if role != "down" and len(turns[p.name]) > 1}
            if len(raw) > 1 or any(p.of(tensors[p.name]).shape != form.matrices[role] for role, p in weights.items()):
                continue  # raw weights of one kind lie in one way
            for biases in _biases(form, weights, vectors, tensors):
                named = {f"{role}.weight": p for role, p in weights.items()} | biases
                for learned in _scalars(form, scalars):
                    yield Layout(replace(form, bias=bool(biases)), named | learned)


def _turns(module: nn.Module, name: str) -> tuple[bool, ...]:
    """Whether its rows are inputs; both where its module's class does not tell."""
    kind = type(module.get_submodule(name.rpartition(".")[0]))
    if issubclass(kind, nn.Linear):
        return (False,)
    return (TURNED[kind.__name__],) if kind.__name__ in TURNED else (False, True)


def _vectors(name: str, shape: tuple[int, ...]) -> list[Piece]:
    """The biases that a parameter can be."""
    if len(shape) == 1 and shape != (1,):
        return [Piece(name)]
    return [Piece(name, (0, i)) for i in range(shape[0])] if len(shape) == 2 and shape[0] <= 3 and is_bias(name) else []


def _readings(name: str, shape: tuple[int, ...], turns: tuple[bool, ...]) -> Iterator[list[Piece]]:
    """Every way to see matrices in a parameter: one; two, their rows in halves or in turns; a stack of two or three."""
    for dim in (dim for dim, size in enumerate(shape) if len(shape) == 3 and size in (2, 3)):
        for each in product(turns, repeat=shape[dim]):
            yield [Piece(name, (dim, i), turned) for i, turned in enumerate(each)]
    for turned in turns if len(shape) == 2 else ():
        yield [Piece(name, turned=turned)]
        half = shape[turned] // 2
        yield [Piece(name, turned=turned, rows=rows) for rows in (slice(0, half), slice(half, None))]
        yield [Piece(name, turned=turned, rows=rows) for rows in (slice(0, None, 2), slice(1, None, 2))]


def _biases(form: FFNSpec, weights: Pieces, vectors: list[Piece], tensors: Mapping[str, Tensor]) -> Iterator[Pieces]:
    """Every way to give the vectors to the weights as their biases: by name, and by size where names don't tell."""
    sharing: dict[tuple[str, int | None], list[str]] = {}  # weights that are rows of one matrix have one bias
    for role, weight in weights.items():
        sharing.setdefault(weight.key, []).append(role)
    known = {vector.key: vector for vector in vectors if vector.key in sharing}
    rest = [vector for vector in vectors if vector not in known.values()]
    free = [key for key in sharing if key not in known]
    for keys in permutations(free, len(rest)):
        given = known | dict(zip(keys, rest, strict=True))
        if all(
            len(vector.of(tensors[vector.name])) == sum(form.matrices[role][0] for role in sharing[key])
            for key, vector in given.items()
        ):
            yield {
                f"{role}.bias": replace(vector, rows=weights[role].rows)
                for key, vector in given.items()
                for role in sharing[key]
            }


def _scalars(form: FFNSpec, scalars: Sequence[str]) -> Iterator[Pieces]:
    """Every way to give the module's scalars to the activation's trained ones; one where the names are the same."""
    ours = [name for name, _ in form.row.learned]
    if len(ours) != len(scalars):
        return
    by_leaf = {name.rpartition(".")[2]: name for name in scalars}
    orders = [tuple(by_leaf[name] for name in ours)] if set(by_leaf) == set(ours) else permutations(scalars)
    for order in orders:
        yield {name: Piece(theirs, scalar=True) for name, theirs in zip(ours, order, strict=True)}


def _unlikely(layout: Layout) -> int:
    """The less, the more matrices have a name that is often their role's; nn.Linear's lie before turned ones."""
    likely = sum(_leaf(piece.name) in LIKELY.get(role, ()) for role, piece in layout.weights.items())
    return sum(piece.turned for piece in layout.weights.values()) - 4 * likely


def _leaf(name: str) -> str:
    owner, _, leaf = name.rpartition(".")
    return owner.rpartition(".")[2] if leaf == "weight" else leaf


def _as_named(layout: Layout) -> bool:
    """Whether no weight is another one than its name says in words. Of several in one parameter they say the order, if
    anything; nothing is said where two names say the same, as "gate" in the name of the whole may.
    """
    placed: dict[str, list[str]] = {}
    for role, piece in sorted(layout.weights.items(), key=lambda item: item[1].place):
        placed.setdefault(piece.name, []).append(role)
    words = {name: [role for role in said(name) if role in layout.form.matrices] for name in placed}
    every = [role for roles in words.values() for role in roles]
    if len(every) > len(set(every)):
        return True
    return all(
        "down" in roles if words[name] == ["down"] else words[name] == roles or len(words[name]) != len(roles)
        for name, roles in placed.items()
    )


def _misfit(module: nn.Module, form: FFNSpec) -> str:
    """What the module has, and what it should have."""
    theirs = ", ".join(f"{name} {tuple(p.shape)}" for name, p in module.named_parameters()) or "none"
    gate = f"({'d_ff' if form.gate is Gate.INNER else form.d_model}, {form.d_model})"
    shapes = {"gate": gate, "up": f"(d_ff, {form.d_model})", "down": f"({form.d_model}, d_ff)"}
    wanted = [f"{role} {shapes[role]}" for role in form.matrices] + [f"{name} ()" for name, _ in form.row.learned]
    return f"its parameters are {theirs}, where {form.form} has {', '.join(wanted)}, and biases of their rows"
