"""A model in numbers: its FFNs by kind of layer, and all its parameters by part."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from ffnbench.extras.models.rest import note_on, rest_of
from ffnbench.ffn.cost import params, params_active
from ffnbench.ffn.spec import FFNSpec
from ffnbench.models.model import ModelSpec, crosses


def sum_of(numbers: Iterable[int | None]) -> int | None:
    """The sum; None where one of them is not known."""
    total = 0
    for number in numbers:
        if number is None:
            return None
        total += number
    return total


@dataclass(frozen=True, slots=True, kw_only=True)
class CountedLayers:
    """`count` equal layers, and the parameters of the FFN of one of them.

    `params_active` is None where it is not known. Of an FFN that transformers built
    there is no `spec`, and `name` is the name of its class.
    """

    kind: str
    count: int
    params: int
    params_active: int | None
    spec: FFNSpec | None = None
    name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CountedModel:
    """The FFNs of a model in numbers. `counted_by` says in words whether they follow
    from closed forms or were counted in built modules.
    """

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

    `ffn` are the FFNs of all layers without their routers, which are `router`, and
    without norms inside them, which are under `norms`. `idle` are the experts that a
    token does not go to.
    """

    name: str
    source: str
    counted_by: str
    note: str = ""
    defaults: str = ""
    embeddings: int | None = None
    attention: int | None = None
    ffn: int
    router: int
    norms: int | None = None
    head: int | None = None
    other: int = 0
    idle: int | None

    @property
    def parts(self) -> dict[str, int | None]:
        """Name -> parameters, in the order in which a token meets them."""
        names = ("embeddings", "attention", "ffn", "router", "norms", "head", "other")
        return {name: getattr(self, name) for name in names}

    @property
    def params(self) -> int | None:
        """The sum; None where a part is not known."""
        return sum_of(self.parts.values())

    @property
    def active(self) -> int | None:
        """The parameters that a token meets; None where that is not known."""
        if self.params is None or self.idle is None:
            return None
        return self.params - self.idle


def count_whole_model(model: ModelSpec) -> WholeModel:
    """Count all parameters of a model in closed form; those of its FFNs alone where the
    others are not known.
    """
    router = ffn = idle = attention = 0
    for group in model.groups:
        router_params = 0
        if group.ffn.moe:
            router_params = group.ffn.moe.router_params(group.ffn.d_model)
        router += group.count * router_params
        ffn += group.count * (params(group.ffn) - router_params)
        idle += group.count * (params(group.ffn) - params_active(group.ffn))
        if group.attention is not None:
            attentions = 2 if crosses(model, group) else 1
            attention += group.count * attentions * group.attention.params
    without_rest = WholeModel(
        name=model.name,
        source=model.source,
        counted_by="closed form",
        note="; ".join(filter(None, (model.note, note_on(model)))),
        defaults=model.defaults,
        ffn=ffn,
        router=router,
        idle=idle,
    )
    rests = rest_of(model)
    if rests is None:
        return without_rest
    return replace(
        without_rest,
        embeddings=sum(rest.embeddings for rest in rests),
        attention=attention + sum(rest.attention for rest in rests),
        norms=sum(rest.norms for rest in rests),
        head=sum(rest.head for rest in rests),
    )
