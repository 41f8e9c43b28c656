"""A model in numbers: its FFNs by kind of layer, and all its parameters by part."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ffnbench.ffn.spec import FFNSpec
from ffnbench.models.model import ModelSpec, attention_params


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

    `params_active` is None where it is not known. `spec` is None where the FFN is none
    of ffnbench's forms; `name` is that of its class, where it was read off one, and
    `proven` says whether its output is the form's.
    """

    kind: str
    count: int
    params: int
    params_active: int | None
    spec: FFNSpec | None = None
    name: str = ""
    proven: bool = True


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
    """The FFNs of a model in numbers."""
    return CountedModel(
        name=model.name,
        source=model.source,
        counted_by=model.counted_by,
        note=model.note,
        defaults=model.defaults,
        layers=tuple(
            CountedLayers(
                kind=group.kind,
                count=group.count,
                params=group.ffn_params,
                params_active=group.ffn_params_active,
                spec=group.ffn,
                name=group.read.name if group.read else "",
                proven=group.read is None or group.read.proven,
            )
            for group in model.groups
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class WholeModel:
    """All parameters of a model by part, each counted once.

    `ffn` are the FFNs of all layers without their routers, which are `router`, and
    without norms inside them, which are under `norms`. `idle` are the experts that a
    token does not go to, None where that is not known.
    """

    name: str
    source: str
    counted_by: str
    note: str = ""
    defaults: str = ""
    embeddings: int
    attention: int
    ffn: int
    router: int
    norms: int
    head: int
    other: int
    idle: int | None

    @property
    def parts(self) -> dict[str, int]:
        """Name -> parameters, in the order in which a token meets them."""
        names = ("embeddings", "attention", "ffn", "router", "norms", "head", "other")
        return {name: getattr(self, name) for name in names}

    @property
    def params(self) -> int:
        """The sum of all parts."""
        return sum(self.parts.values())

    @property
    def active(self) -> int | None:
        """The parameters that a token meets; None where that is not known."""
        if self.idle is None:
            return None
        return self.params - self.idle


def count_whole_model(model: ModelSpec) -> WholeModel:
    """Count all parameters of a model by part.

    The router of an FFN that is no form of ffnbench's is counted with its FFN.
    """
    rest = model.rest
    router = ffn = 0
    idle: int | None = 0
    for group in model.groups:
        router_params = 0
        if group.ffn is not None and group.ffn.moe is not None:
            router_params = group.ffn.moe.router_params(group.ffn.d_model)
        router += group.count * router_params
        ffn += group.count * (group.ffn_params - router_params)
        active = group.ffn_params_active
        if idle is not None:
            unused = None if active is None else group.ffn_params - active
            idle = None if unused is None else idle + group.count * unused
    return WholeModel(
        name=model.name,
        source=model.source,
        counted_by=model.counted_by,
        note="; ".join(filter(None, (model.note, rest.note))),
        defaults=model.defaults,
        embeddings=rest.embeddings,
        attention=rest.attention + attention_params(model.groups),
        ffn=ffn,
        router=router,
        norms=rest.norms,
        head=rest.head,
        other=rest.other,
        idle=idle,
    )
