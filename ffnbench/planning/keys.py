"""What the keys of a variant say of its spec, `@bias=true@moe=8x2`: read, checked, as the types that a spec is made of.

Which keys there are, and how the text is cut, is the business of planning/variant_text.py.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from ffnbench.errors import FfnbenchError
from ffnbench.ffn.moe import Dispatch, MoESpec, Scores
from ffnbench.ffn.spec import LARGEST, Scalar
from ffnbench.planning.variant_text import MOE_KEYS, choose

Keys = Mapping[str, Scalar]
_EXPERTS = re.compile(r"^(?P<experts>\d{1,9})[xX](?P<top_k>\d{1,9})$")


def flag(keys: Keys, name: str, default: bool) -> bool:
    """A key that is true or false."""
    value = keys.get(name, default)
    if not isinstance(value, bool):
        raise FfnbenchError(f"{name} must be true or false, not {value!r}", f"for example swiglu@{name}=true")
    return value


def number(keys: Keys, name: str, default: float, hint: str) -> float:
    """A key that is a number."""
    value = keys.get(name, default)
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise FfnbenchError(f"{name} must be a number, not {value!r}", hint)
    return float(value)


def limit_of(keys: Keys) -> float | None:
    """The limit of a clamped gate; `none` takes away what a name brings along."""
    return None if keys.get("limit") is None else number(keys, "limit", 0, "gpt-oss has swiglu_oai@limit=7")


def moe_of(keys: Keys, text: str) -> MoESpec | None:
    """The experts that a variant asks for; `text` is the variant as it was typed."""
    if (shape := keys.get("moe")) is None:
        if lonely := [key for key in keys if key in MOE_KEYS and key != "moe"]:
            raise FfnbenchError(f"{lonely[0]!r} belongs to experts, in {text!r}", "add @moe=8x2: 8 experts, 2 a token")
        return None
    found = _EXPERTS.match(str(shape))
    if not found:
        raise FfnbenchError(f"cannot read moe={shape!s}, in {text!r}", "moe=8x2 is 8 experts, 2 of them for each token")
    groups = _EXPERTS.match(str(keys.get("groups", "1x1")))
    if not groups:
        raise FfnbenchError(
            f"cannot read groups={keys['groups']!s}, in {text!r}", "groups=8x4 is 4 of 8 groups a token"
        )
    return MoESpec(
        experts=int(found["experts"]),
        top_k=int(found["top_k"]),
        shared_d_ff=_shared(keys),
        shared_gate=flag(keys, "shared_gate", False),
        router_bias=flag(keys, "router_bias", False),
        scores=choose(Scores, "scores", keys.get("scores", Scores.SOFTMAX.value)),
        normalised=flag(keys, "normalised", True),
        routed_scale=number(keys, "routed_scale", 1.0, "DeepSeek-V3 has @routed_scale=2.5"),
        groups=int(groups["experts"]),
        top_groups=int(groups["top_k"]),
        dispatch=choose(Dispatch, "experts", keys.get("experts", Dispatch.EAGER.value)),
    )


def _shared(keys: Keys) -> int:
    """The width of the shared experts; 0 without any."""
    width = keys.get("shared")
    if width is None:
        return 0
    if not isinstance(width, int) or isinstance(width, bool) or not 0 <= width <= LARGEST:
        raise FfnbenchError(
            f"shared must be the width of the shared experts, not {width!r}", "for example @shared=2048"
        )
    return width
