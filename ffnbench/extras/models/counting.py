"""A model in numbers: its FFNs by kind of layer, and all its parameters by part."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ffnbench.extras.models.beside import Beside
from ffnbench.extras.models.beside_reader import layers_beside, note_on, rest_beside
from ffnbench.ffn.cost import params, params_active
from ffnbench.ffn.spec import FFNSpec
from ffnbench.models.model import LayerGroup, ModelSpec, crosses


@dataclass(frozen=True, slots=True, kw_only=True)
class CountedLayers:
    """`count` equal layers and the parameters of one of their FFNs. `spec` None is a form that nobody declared."""

    kind: str
    count: int
    params: int
    params_active: int | None
    spec: FFNSpec | None = None
    name: str = ""  # of the class, where there is no spec


@dataclass(frozen=True, slots=True, kw_only=True)
class CountedModel:
    """The FFNs of a model in numbers. `counted_by` tells a closed form from a count of built modules."""

    name: str
    source: str
    layers: tuple[CountedLayers, ...]
    counted_by: str
    note: str = ""
    defaults: str = ""


def count_model(model: ModelSpec) -> CountedModel:
    """The numbers of a model whose forms are known."""
    return CountedModel(
        name=model.name,
        source=model.source,
        counted_by="closed form",
        note=model.note,
        defaults=model.defaults,
        layers=tuple(
            CountedLayers(
                kind=group.kind,
                count=group.count,
                params=params(group.ffn),
                params_active=params_active(group.ffn),
                spec=group.ffn,
            )
            for group in model.groups
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class WholeModel:
    """All parameters of a model by part, each counted once; None is not known.

    `ffn` are the FFNs of all layers without `router`, which is theirs too, and without norms that stand inside of one:
    these are under `norms`. `active` are those of a token: all but the experts that it does not go to.
    """

    name: str
    source: str
    counted_by: str
    note: str = ""
    defaults: str = ""
    embeddings: int | None
    attention: int | None
    ffn: int
    router: int
    norms: int | None
    head: int | None
    other: int | None = 0
    idle: int | None  # parameters of experts that a token does not go to

    @property
    def parts(self) -> dict[str, int | None]:
        """Name -> parameters, in the order of a token's way."""
        names = ("embeddings", "attention", "ffn", "router", "norms", "head", "other")
        return {name: getattr(self, name) for name in names}

    @property
    def params(self) -> int | None:
        """The sum; None where a part is not known."""
        known = [part for part in self.parts.values() if part is not None]
        return sum(known) if len(known) == len(self.parts) else None

    @property
    def active(self) -> int | None:
        """Those that a token meets."""
        return None if self.params is None or self.idle is None else self.params - self.idle


def whole_model(model: ModelSpec) -> WholeModel:
    """All parameters of a model in closed form."""
    router = ffn = idle = 0
    for group in model.groups:
        routing = group.ffn.moe.router_params(group.ffn.d_model) if group.ffn.moe else 0
        router += group.count * routing
        ffn += group.count * (params(group.ffn) - routing)
        idle += group.count * (params(group.ffn) - params_active(group.ffn))
    layers = list(zip(model.groups, layers_beside(model), strict=True))
    rest = rest_beside(model)
    outer_norms = None if rest is None else sum(part.norm_params for part in rest)
    return WholeModel(
        name=model.name,
        source=model.source,
        counted_by="closed form",
        note="; ".join(filter(None, (model.note, note_on(model)))),
        defaults=model.defaults,
        embeddings=None if rest is None else sum(part.embedding_params for part in rest),
        attention=_sum(_attention(model, group, beside) for group, beside in layers),
        ffn=ffn,
        router=router,
        norms=_sum([*(_norms(group, beside) for group, beside in layers), outer_norms]),
        head=None if rest is None else sum(part.head_params for part in rest),
        other=sum(part.other for part in rest or ()),
        idle=idle,
    )


def _attention(model: ModelSpec, group: LayerGroup, beside: Beside | None) -> int | None:
    if group.attention is None or beside is None:
        return None
    each = group.attention.params * (2 if crosses(model, group) else 1)
    return group.count * each + beside.attention_params(group.count, group.attention)


def _norms(group: LayerGroup, beside: Beside | None) -> int | None:
    if group.attention is None or beside is None:
        return None
    return group.count * beside.norm_params(group.ffn.d_model, group.attention)


def _sum(numbers: Iterable[int | None]) -> int | None:
    found = list(numbers)
    return None if None in found else sum(number for number in found if number is not None)
