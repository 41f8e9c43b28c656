"""A whole model as ffnbench sees it: kinds of layers, how many of each, the FFN in it
and the attention beside it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ffnbench.ffn.spec import AttentionSpec, FFNSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionWindow:
    """`count` layers in which a token attends to the last `tokens` ones, None for all.

    `other` names what they have in place of that, which is not counted: chunked
    attention, linear attention.
    """

    count: int
    tokens: int | None = None
    other: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerGroup:
    """`count` equal layers: dense, moe, encoder, decoder, vision ... `attention` None
    is not known or not there.

    `windows` are how far their tokens see, where not all of them see every token.
    """

    kind: str
    count: int
    ffn: FFNSpec
    attention: AttentionSpec | None = None
    windows: tuple[AttentionWindow, ...] = ()

    @property
    def all_windows(self) -> tuple[AttentionWindow, ...]:
        """All of its layers, by how far a token sees."""
        return self.windows or (AttentionWindow(count=self.count),)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSpec:
    """A published or configured model. `source` is where its numbers were read.

    `config` is what its config.json says, where it has one. `defaults` names the
    numbers that are its class's, since its file does not set them.
    """

    key: str
    name: str
    groups: tuple[LayerGroup, ...]
    source: str
    note: str = ""
    config: Mapping[str, Any] | None = None
    defaults: str = ""

    @property
    def main(self) -> LayerGroup:
        """The kind of layer that the model is known by: the one with the most layers,
        the later of equals; of the language model where there is one beside a tower
        that sees.
        """
        return max(
            reversed(self.groups),
            key=lambda group: (not group.kind.startswith("vision"), group.count),
        )


def crosses(model: ModelSpec, group: LayerGroup) -> bool:
    """Whether a kind of layer has a second attention, to the encoder's tokens."""
    return group.kind == "decoder" and any(
        other.kind == "encoder" for other in model.groups
    )
