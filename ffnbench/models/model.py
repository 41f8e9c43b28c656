"""A whole model as ffnbench sees it: kinds of layers, how many of each, the FFN in it
and the attention beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ffnbench.common.errors import FfnbenchError
from ffnbench.ffn.cost import params, params_active
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
class ReadFFN:
    """What was counted in the modules of one layer's FFN: all parameters, and those
    that a token meets, None where that is not known.

    `name` is that of their classes. `proven`: their outputs are those of the form.
    """

    params: int
    params_active: int | None
    name: str
    proven: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Rest:
    """Parameters of a whole model besides its FFNs; `attention` besides the matrices
    and biases of its AttentionSpecs, such as sinks. `tied` are those of the embedding
    that are the output layer too. `note` says what is odd in them.
    """

    embeddings: int
    attention: int = 0
    norms: int
    head: int
    tied: int = 0
    other: int = 0
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerGroup:
    """`count` equal layers of one `kind`: dense, moe, encoder, decoder, vision ...

    `ffn` is None where it is none of ffnbench's forms; `read` is there where it was
    read off a model's modules. `attention` is None where it is not known or not there.
    `windows` says how far tokens see; it is empty where all layers see every token.
    """

    kind: str
    count: int
    ffn: FFNSpec | None
    attention: AttentionSpec | None = None
    read: ReadFFN | None = None
    windows: tuple[AttentionWindow, ...] = ()

    @property
    def form(self) -> FFNSpec:
        """The FFN as one of ffnbench's forms; raises FfnbenchError where it is none."""
        if self.ffn is None:
            assert self.read is not None
            raise FfnbenchError(
                f"the FFN of these {self.count} layers, {self.read.name}, is none of ffnbench's forms",
                "`ffnbench inspect` counts it; its class is a variant, package.module:Class",
            )
        return self.ffn

    @property
    def ffn_params(self) -> int:
        """The parameters of one layer's FFN."""
        return self.read.params if self.read else params(self.form)

    @property
    def ffn_params_active(self) -> int | None:
        """Those that a token meets; None where that is not known."""
        return self.read.params_active if self.read else params_active(self.form)

    @property
    def all_windows(self) -> tuple[AttentionWindow, ...]:
        """The windows of all of its layers, also where these see every token."""
        return self.windows or (AttentionWindow(count=self.count),)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSpec:
    """A published or configured model. `source` is where its numbers were read.

    `counted_by` says in words whether its numbers follow from closed forms or were
    counted in built modules. `defaults` names the numbers that it has from its class,
    since its file does not set them.
    """

    key: str
    name: str
    groups: tuple[LayerGroup, ...]
    source: str
    note: str = ""
    rest: Rest
    counted_by: str = "closed form"
    defaults: str = ""

    @property
    def parts(self) -> dict[str, int]:
        """Name of a part -> its parameters, in the order in which a token meets them.
        Routers are counted with the FFNs, norms inside FFNs with the norms.
        """
        rest = self.rest
        return {
            "embeddings": rest.embeddings,
            "attention": rest.attention + attention_params(self.groups),
            "ffn": sum(group.count * group.ffn_params for group in self.groups),
            "norms": rest.norms,
            "head": rest.head,
            "other": rest.other,
        }

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
            if group.ffn_params_active is None:
                return None
            active -= group.count * (group.ffn_params - group.ffn_params_active)
        return active

    @property
    def main_is_proven(self) -> bool:
        """Whether the main FFN is of its form for certain: by its row or a proof."""
        return self.main.read is None or self.main.read.proven

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


def attention_params(groups: Sequence[LayerGroup]) -> int:
    """The parameters of all attentions whose specs are known."""
    total = 0
    for group in groups:
        if group.attention is not None:
            attentions = 2 if crosses(groups, group) else 1
            total += group.count * attentions * group.attention.params
    return total
