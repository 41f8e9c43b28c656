"""A module of somebody else's as the form that it is said to be, on its very weights. Needs torch.

Its parameters are told by shape, and by name where a name says a role in words (gate, up, down, and what T5 and timm
have for them). Where that leaves several layouts, as with w1 and w2, packed rows or square matrices, all are tried and
the one is taken whose float64 output is nearest to the module's own. Norms, experts and activations with trained
scalars are not covered.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import permutations, product

import torch
from torch import Tensor, nn

from ffnbench.common.errors import FfnbenchError
from ffnbench.ffn.cost import matrix_params
from ffnbench.ffn.modules import OwnForm, build_dense, reference_output
from ffnbench.ffn.spec import DTYPES, FFNSpec, Gate, ImportedSpec, tolerance

CLEAR = 0.2  # of the tolerance: an output nearer than that is the form's own, and no other layout need be tried
SAID = {"wi_0": ["gate"], "wi_1": ["up"], "fc1_g": ["gate"], "fc1_x": ["up"]}  # T5; timm
ROLE = re.compile(r"(?<![a-vx-z])(?:gate|up|down)(?![a-z])")
# what tells a weight from its bias: fc1.weight and fc1.bias, w_gate and b_gate, w1 and b1 have the rest in common
KIND = re.compile(r"(?<![a-z])(?:weights?|bias|kernel|[wb](?=gate|up|down)|[wb](?![a-z]))")


@dataclass(frozen=True, slots=True)
class Piece:
    """The parameter of that name, or some of its `rows`, taken after turning: as one of ours has rows and columns."""

    name: str
    turned: bool = False
    rows: slice | None = None

    def of(self, tensor: Tensor) -> Tensor:
        """The view of the parameter, or of anything of its shape, such as its gradient."""
        tensor = tensor.mT if self.turned else tensor
        return tensor if self.rows is None else tensor[self.rows]


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


def as_own(module: nn.Module, spec: ImportedSpec, x: Tensor) -> OwnForm:
    """A module of somebody else's as the form that it is said to be, on its own weights.

    x (..., d_model) is what it is called with where its weights can be read in several ways. Raises FfnbenchError where
    the weights are no such form's.
    """
    assert spec.like is not None
    try:
        return as_form(module, spec.like, x)
    except FfnbenchError as problem:
        raise FfnbenchError(f"{spec.target} is not like {spec.like.name}: {problem.message}") from problem


def on_weights(layout: Layout, tensors: Mapping[str, Tensor]) -> OwnForm:
    """Our module of a layout's form on weights that have the names and the shapes of theirs; a bias that only the
    others have is zero.
    """
    ours = build_dense(layout.form, device="meta")
    found = layout.of({name: tensor.detach() for name, tensor in tensors.items()})
    for role in layout.form.matrices if layout.form.bias else ():
        weight = found[f"{role}.weight"]
        found.setdefault(f"{role}.bias", weight.new_zeros(len(weight)))
    ours.load_state_dict(found, assign=True)
    return ours.requires_grad_(False)


def layout_of(module: nn.Module, form: FFNSpec, x: Tensor) -> Layout:
    """How the module's parameters are those of the form; x and errors as for `as_form`."""
    x = x.detach().clone()  # at an address of its own: the module may have seen the old one
    theirs = output_of(module, x)  # first of all: a lazy module makes its weights now
    every = sorted(_layouts(module, form), key=lambda layout: sum(piece.turned for piece in layout.weights.values()))
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
            swapped = [role for role, piece in other.weights.items() if piece != best.weights[role]]
            told = f"{' and '.join(swapped)} look swapped: its output is that of {form.form} with each in the place of"
            raise FfnbenchError(f"{told} the other, against what their names say")
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
    """The layout whose reference is nearest, and its relative error."""
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


def _layouts(module: nn.Module, form: FFNSpec) -> Iterator[Layout]:
    """Every layout that the shapes allow."""
    tensors = dict(module.named_parameters())
    vectors = [name for name, tensor in tensors.items() if tensor.ndim == 1]
    matrices = [name for name, tensor in tensors.items() if tensor.ndim > 1]
    one, two = (matrix_params(replace(form, d_ff=width)) for width in (1, 2))
    more, rest = divmod(sum(tensors[name].numel() for name in matrices) - one, two - one)
    plain = all(tensor.is_floating_point() and tensor.ndim in (1, 2) for tensor in tensors.values())
    covered = plain and form.moe is None and not form.row.learned
    if not covered or rest or more < 0 or len(matrices) > len(form.matrices):
        return
    form = replace(form, d_ff=1 + more)
    for readings in product(*(list(_readings(name, module, tensors[name])) for name in matrices)):
        pieces = [piece for reading in readings for piece in reading]
        for roles in permutations(form.matrices) if len(pieces) == len(form.matrices) else ():
            weights = dict(zip(roles, pieces, strict=True))
            if any(piece.of(tensors[piece.name]).shape != form.matrices[role] for role, piece in weights.items()):
                continue
            if (biases := _biases(form, weights, vectors, tensors)) is not None:
                named = {f"{role}.weight": piece for role, piece in weights.items()}
                yield Layout(replace(form, bias=bool(biases)), named | biases)


def _readings(name: str, module: nn.Module, tensor: Tensor) -> Iterator[list[Piece]]:
    """Every way to see matrices in a parameter: one, or two, whose rows are its halves or in turns. Where its module's
    class does not tell, its rows may be outputs or inputs, as those of transformers' Conv1D are.
    """
    kind = type(module.get_submodule(name.rpartition(".")[0]))
    turns = (False,) if issubclass(kind, nn.Linear) else (True,) if kind.__name__ == "Conv1D" else (False, True)
    for turned in turns:
        yield [Piece(name, turned)]
        half = tensor.shape[turned] // 2
        yield [Piece(name, turned, rows) for rows in (slice(0, half), slice(half, None))]
        yield [Piece(name, turned, rows) for rows in (slice(0, None, 2), slice(1, None, 2))]


def _biases(form: FFNSpec, weights: Pieces, vectors: list[str], tensors: Mapping[str, Tensor]) -> Pieces | None:
    """The vectors as biases of the weights of their names; None where one is none. Rows of one matrix share a bias."""
    found: Pieces = {}
    for name in vectors:
        roles = [role for role, weight in weights.items() if _stem(weight.name) == _stem(name)]
        if not roles or len(tensors[name]) != sum(form.matrices[role][0] for role in roles):
            return None
        found |= {f"{role}.bias": Piece(name, rows=weights[role].rows) for role in roles}
    return found


def _stem(name: str) -> str:
    """What a weight's name has in common with its bias's."""
    return "".join(re.findall(r"[a-z0-9]+", KIND.sub("", name.lower())))


def _as_named(layout: Layout) -> bool:
    """Whether no weight is another one than its name says in words. Nothing is said where two names say the same, as
    "gate" in the name of the whole may, nor by one word for two packed matrices.
    """
    placed: dict[str, list[str]] = {}
    for role, piece in sorted(layout.weights.items(), key=lambda item: (item[1].rows and item[1].rows.start) or 0):
        placed.setdefault(piece.name, []).append(role)
    words = {name: _said(name) for name in placed}
    every = [role for roles in words.values() for role in roles]
    doubled = len(every) > len(set(every))
    return doubled or all(words[name] == roles or len(words[name]) != len(roles) for name, roles in placed.items())


def _said(name: str) -> list[str]:
    """The roles that a parameter's name says in words, in their order: gate, up of gate_up_proj. The innermost part of
    the path that says something decides.
    """
    for part in reversed(name.split(".")):
        words = ROLE.findall(part.lower().replace("gateup", "gate_up").replace("upgate", "up_gate"))
        if found := SAID.get(part) or list(dict.fromkeys(words)):
            return found
    return []


def _misfit(module: nn.Module, form: FFNSpec) -> str:
    """What the module has, and what it should have."""
    theirs = ", ".join(f"{name} {tuple(p.shape)}" for name, p in module.named_parameters()) or "none"
    gate = f"({'d_ff' if form.gate is Gate.INNER else form.d_model}, {form.d_model})"
    shapes = {"gate": gate, "up": f"(d_ff, {form.d_model})", "down": f"({form.d_model}, d_ff)"}
    wanted = [f"{role} {shapes[role]}" for role in form.matrices] + [f"{name} ()" for name, _ in form.row.learned]
    return f"its parameters are {theirs}, where {form.form} has {', '.join(wanted)}, and biases of their rows"
