"""A whole model as ffnbench sees it: kinds of layers, how many of each, the FFN in it and the attention beside it."""

from __future__ import annotations

from dataclasses import dataclass

from ffnbench.ffn.attention import AttentionSpec
from ffnbench.ffn.cost import params, params_active
from ffnbench.ffn.spec import FFNSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerGroup:
    """`count` equal layers: dense, moe, encoder, decoder, vision ... `attention` None is not known or not there."""

    kind: str
    count: int
    ffn: FFNSpec
    attention: AttentionSpec | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSpec:
    """A published or configured model. `source` is where its numbers were read."""

    key: str
    name: str
    groups: tuple[LayerGroup, ...]
    source: str
    note: str = ""

    @property
    def main(self) -> LayerGroup:
        """The kind of layer that the model is known by: the one with the most layers, the later of equals."""
        return max(reversed(self.groups), key=lambda group: group.count)


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


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnMLP:
    """The MLP class of a model of transformers: its name, its widths, and the form of ours that it is, where known."""

    name: str
    d_model: int
    d_ff: int
    form: FFNSpec | None = None


def count_model(model: ModelSpec) -> CountedModel:
    """The numbers of a model whose forms are known."""
    return CountedModel(
        name=model.name,
        source=model.source,
        counted_by="closed form",
        note=model.note,
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
