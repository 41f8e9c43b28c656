"""Widths: the published rules by name, and the width at which two forms cost the same.

Every rule returns the final d_ff per branch. Each was checked against the code that it is named after.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from ffnbench.errors import FfnbenchError
from ffnbench.names import Registry

DEFAULT_RATIO = 4.0
DEFAULT_MULTIPLE = 8


class Match(Enum):
    """What is made equal to the reference: parameters, forward matmul FLOPs, or nothing (all get one width)."""

    PARAMS = "params"
    FLOPS = "flops"
    NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleInput:
    """What a width rule may use: the model's width, the expansion ratio, the rounding, Llama's multiplier."""

    d_model: int
    ratio: float
    multiple_of: int
    multiplier: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A published width rule. `multiple_of` and `ratio` are its defaults, used where none is given.

    `reads` names what it can be told; anything else given to it is a mistake, not to be ignored.
    """

    name: str
    formula: str
    source: str
    apply: Callable[[RuleInput], int]
    multiple_of: int = 1
    ratio: float = DEFAULT_RATIO
    reads: tuple[str, ...] = ("ratio", "multiple_of")


def round_up(width: int, multiple: int) -> int:
    """The next multiple at or above width."""
    return -(-width // multiple) * multiple


def round_nearest(width: float, multiple: int) -> int:
    """The nearest multiple, at least one of it; a tie goes down, so that nothing costs more than asked."""
    below = int(width // multiple) * multiple
    return max(multiple, below if width - below <= multiple / 2 else below + multiple)


def _ratio(r: RuleInput) -> int:
    width = r.ratio * r.d_model
    if width != int(width):
        raise FfnbenchError(
            f"{r.ratio:g} * d_model is not whole for d_model {r.d_model}", "give --d-ff, or another ratio"
        )
    return round_up(int(width), r.multiple_of)


def _two_thirds(r: RuleInput) -> int:
    twice = 2 * r.ratio * r.d_model
    if twice % 3 and r.multiple_of == 1:
        raise FfnbenchError(
            f"the two_thirds rule needs 2 * {r.ratio:g} * d_model divisible by 3, and d_model is {r.d_model}",
            "round it with --multiple-of 8, or use --rule llama",
        )
    return round_up(int(twice // 3), r.multiple_of)


def _llama(r: RuleInput) -> int:
    width = int(2 * int(r.ratio * r.d_model) / 3)
    if r.multiplier is not None:
        width = int(r.multiplier * width)
    return round_up(width, r.multiple_of)


def _lfm2(r: RuleInput) -> int:
    return _llama(r) if r.multiplier is not None else int(2 * int(r.ratio * r.d_model) / 3)


def _torchtune(r: RuleInput) -> int:
    return round_up(4 * int(2 * r.d_model / 3), r.multiple_of)


def _dinov2(r: RuleInput) -> int:
    return (int(int(r.d_model * r.ratio) * 2 / 3) + 7) // 8 * 8


def _flash_attn(r: RuleInput) -> int:
    return round_up(int(2 * r.ratio * r.d_model / 3), r.multiple_of)


def _grok(r: RuleInput) -> int:
    width = int(r.ratio * r.d_model) * 2 // 3
    return width + (8 - width) % 8


def _notes(r: RuleInput) -> int:
    return round_up(2 * int(r.ratio * r.d_model) // 3, r.multiple_of)


_T5_V1_1 = {512: 1024, 768: 2048, 1024: 2816, 2048: 5120, 4096: 10240}


def _t5(r: RuleInput) -> int:
    if r.d_model not in _T5_V1_1:
        known = ", ".join(map(str, _T5_V1_1))
        raise FfnbenchError(f"T5 v1.1 has no model of d_model {r.d_model}", f"its d_model are {known}")
    return _T5_V1_1[r.d_model]


# fmt: off
_ROWS = (
    Rule(name="classic", formula="ratio * d_model", source="Vaswani et al. 2017", apply=_ratio),
    Rule(name="palm", formula="ratio * d_model, with three matrices", source="Chowdhery et al. 2022", apply=_ratio),
    Rule(name="two_thirds", formula="2/3 * ratio * d_model", source="Shazeer 2020", apply=_two_thirds),
    Rule(
        name="llama", formula="int(2 * int(ratio * d_model) / 3), * ffn_dim_multiplier, up to multiple_of",
        source="meta-llama/llama", apply=_llama, multiple_of=256,
        reads=("ratio", "multiple_of", "ffn_dim_multiplier"),
    ),
    Rule(
        name="lfm2", formula="as llama; rounded only where ffn_dim_multiplier is given",
        source="Hugging Face Lfm2MLP", apply=_lfm2, multiple_of=256,
        reads=("ratio", "multiple_of", "ffn_dim_multiplier"),
    ),
    Rule(
        name="torchtune", formula="4 * int(2 * d_model / 3), up to multiple_of", source="torchtune",
        apply=_torchtune, multiple_of=256, reads=("multiple_of",),
    ),
    Rule(name="dinov2", formula="(int(int(ratio * d_model) * 2 / 3) + 7) // 8 * 8", source="DINOv2", apply=_dinov2,
         reads=("ratio",)),
    Rule(
        name="flash_attn", formula="int(2 * ratio * d_model / 3), up to multiple_of", source="flash-attn GatedMlp",
        apply=_flash_attn, multiple_of=128,
    ),
    Rule(name="grok", formula="int(ratio * d_model) * 2 // 3, up to 8", source="grok-1", apply=_grok, ratio=8.0,
         reads=("ratio",)),
    Rule(
        name="notes", formula="2 * int(ratio * d_model) // 3, up to multiple_of", source="docs/forms.md",
        apply=_notes, multiple_of=8,
    ),
    Rule(name="t5_v1_1", formula="a table: 512, 768, 1024, 2048, 4096", source="T5 v1.1 checkpoints", apply=_t5,
         reads=()),
    Rule(
        name="timm", formula="ratio * d_model, up to multiple_of", source="timm SwiGLU(align_to)", apply=_ratio,
    ),
)
# fmt: on

RULES: Registry[Rule] = Registry("width rule", "`ffnbench list rules` shows all")
for _row in _ROWS:
    RULES.add(_row.name, _row)


def width_by_rule(
    name: str,
    d_model: int,
    *,
    ratio: float | None = None,
    multiple_of: int | None = None,
    multiplier: float | None = None,
) -> int:
    """d_ff per branch by a named rule; raises FfnbenchError where the rule cannot serve that d_model."""
    rule = RULES.get(name)
    given = {"ratio": ratio, "multiple_of": multiple_of, "ffn_dim_multiplier": multiplier}
    for key, value in given.items():
        if value is not None and key not in rule.reads:
            reads = ", ".join(rule.reads) or "nothing but d_model"
            raise FfnbenchError(f"the width rule {rule.name} does not read {key}", f"it reads {reads}")
    return rule.apply(
        RuleInput(
            d_model=d_model,
            ratio=rule.ratio if ratio is None else ratio,
            multiple_of=rule.multiple_of if multiple_of is None else multiple_of,
            multiplier=multiplier,
        )
    )


def width_for(cost: Callable[[int], int], target: int, multiple_of: int) -> int:
    """The multiple of `multiple_of` whose cost comes nearest to `target`.

    `cost` must be affine in d_ff, as parameters and FLOPs of every form here are: two values fix the line.
    """
    at_one, at_two = cost(1), cost(2)
    return round_nearest(1 + (target - at_one) / (at_two - at_one), multiple_of)
