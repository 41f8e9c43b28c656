"""The proof that a module computes a form: which of its parameters are the form's gate,
up and down, and how they lie in it. Needs torch.

A layout gives each matrix of the form a piece of a parameter. All layouts that the
shapes allow are tried, and the one is the proof whose float64 output is the module's
own. A small copy of the module, with other weights of small sizes, serves as well as
the module itself; activations with trained scalars are not covered.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import chain, permutations, product
from math import inf

import torch
from torch import Tensor, nn

from ffnbench.common.errors import FfnbenchError
from ffnbench.ffn.experts import MixtureOfExperts
from ffnbench.ffn.modules import OwnForm, build_dense, reference_output
from ffnbench.ffn.spec import (
    DTYPES,
    FFNSpec,
    Gate,
    ImportedSpec,
    MoESpec,
    Norm,
    tolerance,
)

Tensors = Mapping[str, Tensor]
# rows of the input of a proof: small and large, so that clamps and kinks take part
SCALES = (0.3, 1.0, 1.0, 3.0, 10.0, 30.0)
SMALL_D_MODEL, SMALL_D_FF = 16, 24
# A layout whose output is off by no more than this share of the tolerance is the right
# one, and no other need be tried.
CLEAR_SHARE = 0.2
# of the norm before down
NORM_PARAMETERS: dict[Norm | None, tuple[str, ...]] = {
    None: (),
    Norm.RMS: ("norm.weight",),
    Norm.LAYER: ("norm.weight", "norm.bias"),
}
# the number of an expert in the name of a parameter: experts.3.w1, expert_3.wi.weight
EXPERT = re.compile(r"(expert.*?[._])\d+(?=\.)")
# what the names of weights say of their roles; w1 and w3 are those of Llama's code
ROLE_IN_NAME = re.compile(r"(?<![a-z0-9])(gate|up|w1|w3)(?![a-z0-9])")
ROLES = {"gate": "gate", "up": "up", "w1": "gate", "w3": "up"}


class Part(StrEnum):
    """Which rows of a parameter a piece is."""

    ALL = "all"
    FIRST = "the first half"
    SECOND = "the second half"
    EVEN = "every other row from the first"
    ODD = "every other row from the second"


def rows_of(part: Part, count: int) -> slice:
    """Those of `count` rows."""
    half = count // 2
    match part:
        case Part.ALL:
            return slice(None)
        case Part.FIRST:
            return slice(0, half)
        case Part.SECOND:
            return slice(half, None)
        case Part.EVEN:
            return slice(0, None, 2)
        case Part.ODD:
            return slice(1, None, 2)


@dataclass(frozen=True, slots=True)
class Piece:
    """A parameter of a module, or some rows of it, that is one parameter of a form.

    `name` has `*` where the parameters of several experts are one of ours, stacked.
    `transposed`: its rows are our columns. `bias`: it has rows alone.
    """

    name: str
    transposed: bool = False
    part: Part = Part.ALL
    bias: bool = False

    def of(self, tensor: Tensor) -> Tensor:
        """The piece of the whole parameter, or of anything of its shape such as its
        gradient.
        """
        if self.bias:
            return tensor[..., rows_of(self.part, tensor.shape[-1])]
        if self.transposed:
            tensor = tensor.mT
        return tensor[..., rows_of(self.part, tensor.shape[-2]), :]


# by the name of a parameter of ours, such as gate.weight
Pieces = dict[str, Piece]


@dataclass(frozen=True, slots=True)
class Proof:
    """A module computes `form`, whose parameters are these pieces of the module's."""

    form: FFNSpec
    pieces: Pieces

    def of(self, tensors: Tensors) -> dict[str, Tensor]:
        """The tensors by the names of ours. `tensors` are the parameters of the module,
        or whatever has their names and shapes, such as their gradients.
        """
        stacked = stack_experts(tensors)
        return {
            name: piece.of(stacked[piece.name]) for name, piece in self.pieces.items()
        }

    def form_on(self, tensors: Tensors) -> OwnForm:
        """The module of the form on the weights of the proven module. Where only some
        of them have a bias, the others' is zero.
        """
        weights = self.of(tensors)
        ours = without_data(self.form)
        for name, parameter in ours.named_parameters():
            if name not in weights:
                like = next(iter(weights.values()))
                weights[name] = like.new_zeros(parameter.shape)
        ours.load_state_dict(weights, assign=True)
        for parameter in ours.parameters():
            parameter.requires_grad_(False)
        return ours

    @property
    def contradiction(self) -> str:
        """What a name says against the proof: the activation is on `up_proj`, which
        `gate` is; "" for nothing.
        """
        if self.form.gate is not Gate.INNER:
            return ""
        prefix = "experts." if self.form.moe is not None else ""
        gate = self.pieces[f"{prefix}gate.weight"]
        up = self.pieces[f"{prefix}up.weight"]
        gate_name = gate.name.removesuffix(".weight")
        up_name = up.name.removesuffix(".weight")
        if gate.name == up.name:
            gate_is_second = gate.part in (Part.SECOND, Part.ODD)
            if gate_is_second and roles_in(gate_name) == ["gate", "up"]:
                return f"the activation is on {gate.part} of {gate_name}, where its name puts up"
        elif roles_in(gate_name)[-1:] == ["up"] or roles_in(up_name)[-1:] == ["gate"]:
            return (
                f"the activation is on {gate_name}, where the form puts it on {up_name}"
            )
        return ""


def roles_in(name: str) -> list[str]:
    """The roles that the name of a weight has in it, in their order."""
    return [ROLES[word] for word in ROLE_IN_NAME.findall(name)]


def without_data(form: FFNSpec) -> OwnForm:
    """Our module of a form on the meta device."""
    if form.moe is not None:
        return MixtureOfExperts(form, device="meta")
    return build_dense(form, device="meta")


def stack_experts(tensors: Tensors) -> dict[str, Tensor]:
    """Tensors by name, where those whose names differ by the number of an expert alone
    (experts.0.w1, experts.1.w1) are one, stacked, with `*` for the number.
    """
    by_name: dict[str, list[Tensor]] = {}
    for name, tensor in tensors.items():
        by_name.setdefault(EXPERT.sub(r"\1*", name, count=1), []).append(tensor)
    return {
        name: torch.stack(each) if "*" in name else each[0]
        for name, each in by_name.items()
    }


def of_first_expert(tensors: Tensors) -> Tensors:
    """The weights of the first of several experts, whose weights are 3-D tensors;
    the same tensors where there are none.
    """
    counts = {tensor.shape[0] for tensor in tensors.values() if tensor.ndim == 3}
    if not counts:
        return tensors
    return {n: t[0] for n, t in tensors.items() if t.ndim > 1 and t.shape[0] in counts}


def nearest_proof(
    module: nn.Module,
    forms: Iterable[FFNSpec],
    call: Callable[[nn.Module, Tensor], Tensor] | None = None,
) -> tuple[Proof | None, float]:
    """The form and the layout whose output is nearest to the module's, and the largest
    relative error of a row; the first whose error rounding explains. None where the
    module's weights are of none of the forms.

    The module is called in eval mode on rows of d_model, by `call` where it takes more
    than an input. What it raises is raised on.
    """
    forms = list(forms)
    weight = next((p for p in module.parameters() if p.is_floating_point()), None)
    if weight is None or not forms:
        return None, inf
    generator = torch.Generator().manual_seed(0)
    scales = torch.tensor(SCALES, dtype=torch.float64)[:, None]
    x = scales * torch.randn(
        len(SCALES), forms[0].d_model, generator=generator, dtype=torch.float64
    )
    x = x.to(weight.device, weight.dtype)
    y = output_of(module, x, call)
    tensors: Tensors = {n: p.detach() for n, p in module.named_parameters()}
    if forms[0].moe is None:
        tensors = of_first_expert(tensors)
    nearest, least_error = None, inf
    for form in forms:
        for proof in layouts(tensors, form):
            expected = reference_output(proof.form_on(tensors), x)
            error = _largest_row_error(y, expected)
            if nearest is None or error < least_error:
                nearest, least_error = proof, error
            if error <= proven_error(weight.dtype):
                return proof, error
    return nearest, least_error


def proven_error(dtype: torch.dtype) -> float:
    """The largest error of a row of a module that computes a form."""
    if dtype is torch.float64:
        return 1e-6  # routers work in float32
    return CLEAR_SHARE * tolerance_of(dtype)


def prove(
    module: nn.Module,
    forms: Iterable[FFNSpec],
    call: Callable[[nn.Module, Tensor], Tensor] | None = None,
) -> Proof | None:
    """As `nearest_proof`, for a module in float64; None where the error is larger than
    rounding explains.
    """
    proof, error = nearest_proof(module, forms, call)
    if error > proven_error(torch.float64):
        return None
    return proof


def proof_of_like(module: nn.Module, spec: ImportedSpec) -> Proof:
    """How the weights of a user's module are those of the form that `@like` names: by a
    small copy of it, or by itself where that does not run as it does. Where it computes
    something else, the layout that is nearest.

    Raises FfnbenchError where its weights are no such form's.
    """
    form = spec.like
    assert form is not None
    fitting = list(layouts(dict(module.named_parameters()), form))
    if not fitting:
        raise FfnbenchError(
            f"{spec.target} is not like {form.name}: {_misfit_text(module, form)}"
        )
    sizes = small_sizes(spec.d_model, fitting[0].form.d_ff)
    small_form = replace(form, d_model=sizes[spec.d_model])
    try:
        proof = prove(small_copy(module, sizes), [small_form])
    except Exception:  # code of the user's
        proof = None
    for layout in fitting:
        if proof is not None and proof.pieces == layout.pieces:
            return layout
    nearest, _ = nearest_proof(module, [form])
    assert nearest is not None
    return nearest


def small_sizes(d_model: int, d_ff: int) -> dict[int, int]:
    """The widths of a module -> those of its small copy; equal ones stay equal."""
    small_d_ff = SMALL_D_FF
    if d_model in (d_ff, 2 * d_ff):
        small_d_ff = SMALL_D_MODEL * d_ff // d_model
    sizes = {d_ff: small_d_ff, 2 * d_ff: 2 * small_d_ff}
    sizes[d_model] = SMALL_D_MODEL
    return sizes


def output_of(
    module: nn.Module,
    x: Tensor,
    call: Callable[[nn.Module, Tensor], Tensor] | None = None,
) -> Tensor:
    """The module's own output for x, in eval mode and without a graph; raises
    FfnbenchError unless that is a tensor of x's shape.
    """
    training = module.training
    module.eval()
    try:
        with torch.no_grad():
            y = module(x.clone()) if call is None else call(module, x.clone())
    finally:
        module.train(training)  # by its own method, which may do more
    if not isinstance(y, Tensor) or y.shape != x.shape:
        raise FfnbenchError("it does not give a tensor of the shape of its input")
    return y


def layouts(tensors: Tensors, form: FFNSpec) -> Iterator[Proof]:
    """Every layout of a form that the shapes of a module's parameters allow, at the
    widths and with the biases that these have; those with fewer transposed matrices
    first.
    """
    tensors = stack_experts(tensors)
    if form.learned or not all(t.is_floating_point() for t in tensors.values()):
        return
    if form.moe is None:
        yield from _dense_layouts(tensors, form, ndim=2)
    else:
        yield from _mixture_layouts(tensors, form, form.moe)


def _mixture_layouts(tensors: Tensors, form: FFNSpec, moe: MoESpec) -> Iterator[Proof]:
    """The layouts of a form with experts: the router is the matrix with a row for each
    expert, two others lead to a latent width and back, a shared expert has the rest.
    """
    needed: dict[tuple[int, ...], str] = {(moe.outputs, form.d_model): "router.weight"}
    if moe.latent:
        needed[moe.latent, form.d_model] = "to_latent.weight"
        needed[form.d_model, moe.latent] = "from_latent.weight"
    roles = {
        (1, form.d_model): "shared_gate.weight",
        (moe.outputs,): "router.bias",
        **needed,
    }
    pieces: Pieces = {}
    experts, shared = {}, {}
    for name, tensor in tensors.items():
        role = roles.get(tuple(tensor.shape), "")
        if "expert" in name and tensor.shape[0] == moe.experts:
            experts[name] = tensor
        elif role and role not in pieces:
            pieces[role] = Piece(name, bias=tensor.ndim == 1)
        else:
            shared[name] = tensor
    if not pieces.keys() >= {*needed.values()}:
        return
    dense = replace(form, moe=None)
    of_shared: list[Proof | None] = [None]
    if shared:
        of_shared = list(_dense_layouts(shared, dense, ndim=2))
    dense = replace(dense, d_model=form.expert_width)
    of_experts = _dense_layouts(experts, dense, ndim=3)
    for expert, beside in product(of_experts, of_shared):
        all_pieces = dict(pieces)
        for name, piece in expert.pieces.items():
            all_pieces[f"experts.{name}"] = piece
        shared_d_ff = 0
        if beside is not None:
            if beside.form.bias != expert.form.bias:
                continue
            shared_d_ff = beside.form.d_ff
            for name, piece in beside.pieces.items():
                all_pieces[f"shared.{name}"] = piece
        as_laid_out = replace(
            moe,
            router_bias="router.bias" in pieces,
            shared_gate="shared_gate.weight" in pieces,
            shared_d_ff=shared_d_ff,
        )
        of_experts_form = replace(expert.form, d_model=form.d_model, moe=as_laid_out)
        yield Proof(of_experts_form, all_pieces)


def _dense_layouts(tensors: Tensors, form: FFNSpec, *, ndim: int) -> Iterator[Proof]:
    """The layouts of a form without experts, or of each of several experts (ndim 3)."""
    matrices = {n: t for n, t in tensors.items() if t.ndim == ndim}
    vectors = {n: t for n, t in tensors.items() if t.ndim == ndim - 1}
    if len(matrices) + len(vectors) < len(tensors):
        return
    for cut in _ways_to_cut(matrices, len(form.matrices)):
        shapes = {piece: piece.of(matrices[piece.name]).shape[-2:] for piece in cut}
        for order in permutations(cut):
            of_role = dict(zip(form.matrices, order, strict=True))
            sized = replace(form, d_ff=shapes[of_role["up"]][0])
            fits = [shapes[piece] for piece in order] == [*sized.matrices.values()]
            if not fits:
                continue
            weights = {f"{role}.weight": piece for role, piece in of_role.items()}
            of_norm = NORM_PARAMETERS[form.subnorm]
            for names in permutations(vectors, len(of_norm)):
                if any(vectors[name].shape[-1] != sized.d_ff for name in names):
                    continue
                pieces = [Piece(name, bias=True) for name in names]
                norm = dict(zip(of_norm, pieces, strict=True))
                others = {n: v for n, v in vectors.items() if n not in names}
                biased = replace(sized, bias=bool(others))
                for biases in _ways_to_add(others, of_role, matrices):
                    yield Proof(biased, weights | norm | biases)


def _ways_to_add(
    vectors: Tensors, of_role: Pieces, matrices: Tensors
) -> Iterator[Pieces]:
    """Every way to give each vector as a bias to a matrix with as many outputs."""
    outputs = {}
    for piece in of_role.values():
        outputs[piece.name] = matrices[piece.name].shape[-1 if piece.transposed else -2]
    for names in permutations(outputs, len(vectors)):
        bias_of = dict(zip(names, vectors, strict=True))
        if all(vectors[b].shape[-1] == outputs[name] for name, b in bias_of.items()):
            yield {
                f"{role}.bias": Piece(bias_of[piece.name], part=piece.part, bias=True)
                for role, piece in of_role.items()
                if piece.name in bias_of
            }


def _ways_to_cut(matrices: Tensors, count: int) -> list[list[Piece]]:
    """Every way to cut parameters into `count` matrices, those with fewer transposed
    ones first: each is one matrix, or two, whose rows are its halves or alternate.
    """
    cuts = ((Part.ALL,), (Part.FIRST, Part.SECOND), (Part.EVEN, Part.ODD))
    ways_for_each = []
    for name in matrices:
        ways = []
        for transposed, cut in product((False, True), cuts):
            ways.append([Piece(name, transposed, part) for part in cut])
        ways_for_each.append(ways)
    all_ways = [list(chain(*way)) for way in product(*ways_for_each)]
    return sorted(
        (pieces for pieces in all_ways if len(pieces) == count),
        key=lambda pieces: sum(piece.transposed for piece in pieces),
    )


def _misfit_text(module: nn.Module, form: FFNSpec) -> str:
    """Which parameters the module has, and which the form has, as the message of an
    error.
    """
    parameters = [f"{n} {tuple(p.shape)}" for n, p in module.named_parameters()]
    expected = [
        f"{role} ({' x '.join('d_ff' if n == form.d_ff else f'{n}' for n in shape)})"
        for role, shape in form.matrices.items()
    ]
    expected += [f"{name} (d_ff)" for name in NORM_PARAMETERS[form.subnorm]]
    return (
        f"its parameters are {', '.join(parameters) or 'none'}, "
        f"where {form.name} has {', '.join(expected)}, and biases of their rows"
    )


def small_copy(module: nn.Module, sizes: Mapping[int, int]) -> nn.Module:
    """A copy of a module in float64 on the CPU whose weights are drawn anew at other
    sizes: `sizes` has the small size of each of its widths. The number of experts
    stays.
    """
    generator = torch.Generator().manual_seed(0)
    replaced: dict[int, object] = {}
    for owner in module.modules():
        for parameter in owner.parameters(recurse=False):
            shape = [sizes.get(size, size) for size in parameter.shape]
            if parameter.ndim == 3:
                shape[0] = parameter.shape[0]  # experts
            drawn = torch.randn(shape, generator=generator, dtype=torch.float64)
            replaced[id(parameter)] = nn.Parameter(drawn / shape[-1] ** 0.5)
        for buffer in owner.buffers(recurse=False):
            if buffer.is_meta:
                replaced[id(buffer)] = torch.zeros(buffer.shape, dtype=buffer.dtype)
    copied = deepcopy(module, replaced)
    for owner in copied.modules():
        for name, value in vars(owner).items():
            if type(value) is int and value in sizes and "expert" not in name:
                setattr(owner, name, sizes[value])
    return copied.eval().double()


def relative_error(y: Tensor, expected: Tensor) -> float:
    """The norm of the difference over that of `expected`, in float64; where `expected`
    is zero, the norm of the difference. NaN where a number is not finite.
    """
    difference = (y.double() - expected.double()).norm()
    size = expected.double().norm()
    return float(difference / size) if size else float(difference)


def _largest_row_error(y: Tensor, expected: Tensor) -> float:
    """The largest relative error of a row; infinite where a number is not finite."""
    errors = (y.double() - expected).norm(dim=-1) / expected.norm(dim=-1)
    return float(errors.nan_to_num(float("inf")).max())


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
