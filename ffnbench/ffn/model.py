"""A whole model as ffnbench sees it: kinds of layers, how many of each, the FFN in it and the attention beside it."""

from __future__ import annotations

from dataclasses import dataclass

from ffnbench.ffn.attention import AttentionSpec
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
