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
    """`count` layers in which a token attends to the last `tokens` ones; None stands
    for all tokens.

    `other` names what such layers have in place of that and what is not counted:
    chunked attention, linear attention.
    """

    count: int
    tokens: int | None = None
    other: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerGroup:
    """`count` equal layers of one `kind`: dense, moe, encoder, decoder, vision ...

    `attention` is None where it is not known or not there. `windows` says how far
    tokens see; it is empty where all layers see every token.
    """

    kind: str
    count: int
    ffn: FFNSpec
    attention: AttentionSpec | None = None
    windows: tuple[AttentionWindow, ...] = ()

    @property
    def all_windows(self) -> tuple[AttentionWindow, ...]:
        """The windows of all of its layers, also where these see every token."""
        return self.windows or (AttentionWindow(count=self.count),)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSpec:
    """A published or configured model. `source` is where its numbers were read.

    `config` is the content of its config.json, if it has one. `defaults` names the
    numbers that it has from its class, since its file does not set them.
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
        """The kind of layer by which the model is known: the one with the most layers,
        of two equal ones the later. Those of a vision encoder count only where there
        are no others.
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
