"""A whole model as ffnbench sees it: kinds of layers, how many of each, the FFN in it
and the attention beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ffnbench.common.errors import FfnbenchError
from ffnbench.ffn.spec import AttentionSpec, FFNSpec

# of a model's parameters, in the order in which a token meets them
PARTS = ("embeddings", "attention", "ffn", "norms", "head", "other")


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

    `params` are those of one layer's FFN, `params_active` those that a token meets,
    None where that is not known. `ffn` is None where it is none of ffnbench's forms.
    Where it was read off modules, `module` has the names of their classes, and
    `proven` says whether their outputs are those of the form.
    `attention` is None where it is not known or not there. `windows` says how far
    tokens see; it is empty where all layers see every token.
    """

    kind: str
    count: int
    params: int
    params_active: int | None
    ffn: FFNSpec | None
    module: str = ""
    proven: bool = True
    attention: AttentionSpec | None = None
    windows: tuple[AttentionWindow, ...] = ()

    @property
    def form(self) -> FFNSpec:
        """The FFN as one of ffnbench's forms; raises FfnbenchError where it is none."""
        if self.ffn is None:
            raise FfnbenchError(
                f"the FFN of these {self.count} layers, {self.module}, is none of ffnbench's forms",
                "`ffnbench inspect` counts it; its class is a variant, package.module:Class",
            )
        return self.ffn

    @property
    def is_causal(self) -> bool:
        """Whether a token sees no later ones."""
        return not self.kind.startswith(("encoder", "vision"))

    @property
    def all_windows(self) -> tuple[AttentionWindow, ...]:
        """The windows of all of its layers, also where these see every token."""
        return self.windows or (AttentionWindow(count=self.count),)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSpec:
    """A published or configured model. `source` is where its numbers were read.

    `other_parts` has the parameters besides those of FFNs, by part; `tied` are those of
    the embedding that are the output layer too. `note_on_parts` says what is odd in
    them. `counted_by` says whether the numbers follow from closed forms or were counted
    in built modules. `defaults` names the numbers that it has from its class, since its
    file does not set them.
    """

    key: str
    name: str
    groups: tuple[LayerGroup, ...]
    other_parts: dict[str, int]
    tied: int = 0
    source: str
    note: str = ""
    note_on_parts: str = ""
    counted_by: str = "closed form"
    defaults: str = ""

    @property
    def parts(self) -> dict[str, int]:
        """Name of a part -> its parameters. Routers are counted with the FFNs, norms
        inside FFNs with the norms.
        """
        ffns = sum(group.count * group.params for group in self.groups)
        counts = {**self.other_parts, "ffn": ffns}
        return {part: counts.get(part, 0) for part in PARTS}

    @property
    def params(self) -> int:
        """All parameters, each once."""
        return sum(self.parts.values())

    @property
    def params_active(self) -> int | None:
        """Those that a token meets: all but the experts that it does not go to; None
        where that is not known.
        """
        active = self.params
        for group in self.groups:
            if group.params_active is None:
                return None
            active -= group.count * (group.params - group.params_active)
        return active

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


def crosses(groups: Sequence[LayerGroup], group: LayerGroup) -> bool:
    """Whether one of a model's kinds of layer has a second attention, to the encoder's
    tokens.
    """
    return group.kind == "decoder" and any(other.kind == "encoder" for other in groups)
