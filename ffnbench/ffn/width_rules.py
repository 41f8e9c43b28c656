"""Widths: the published rules, by name.

Every rule returns the final d_ff per branch. Each was checked against the code that it
is named after.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ffnbench.common.errors import FfnbenchError
from ffnbench.common.names import Registry

DEFAULT_RATIO = 4.0
DEFAULT_MULTIPLE = 8  # of widths that follow from no rule (plan/widths.py)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A published width rule: `apply(d_model, ratio, multiple_of, multiplier)` is its
    d_ff, where the multiplier is Llama's ffn_dim_multiplier.

    `multiple_of` and `ratio` are used where none is given. `reads` are the keys that
    may be given; any other is a mistake of the user. docs/forms.md has the formulas and
    their sources.
    """

    name: str
    apply: Callable[[int, float, int, float | None], int]
    multiple_of: int = 1
    ratio: float = DEFAULT_RATIO
    reads: tuple[str, ...] = ("ratio", "multiple_of")


def round_up(width: int, multiple: int) -> int:
    """The smallest multiple that is not below width."""
    return -(-width // multiple) * multiple


def round_nearest(width: float, multiple: int) -> int:
    """The nearest multiple, at least the first; a tie goes down, so that nothing costs
    more than was asked for.
    """
    nearest = int(width // multiple) * multiple
    if width - nearest > multiple / 2:
        nearest += multiple
    return max(multiple, nearest)


def _ratio(d: int, ratio: float, multiple: int, _: float | None) -> int:
    width = ratio * d
    if width != int(width):
        raise FfnbenchError(
            f"{ratio:g} * d_model is not whole for d_model {d}",
            "give --d-ff, or another ratio",
        )
    return round_up(int(width), multiple)


def _two_thirds(d: int, ratio: float, multiple: int, _: float | None) -> int:
    if 2 * ratio * d % 3 and multiple == 1:
        raise FfnbenchError(
            f"the two_thirds rule needs 2 * {ratio:g} * d_model divisible by 3, and d_model is {d}",
            "round it with @multiple_of=8, or use @rule=llama",
        )
    return round_up(int(2 * ratio * d // 3), multiple)


def _llama(d: int, ratio: float, multiple: int, multiplier: float | None) -> int:
    width = int(2 * int(ratio * d) / 3)
    if multiplier is not None:
        width = int(multiplier * width)
    return round_up(width, multiple)


def _lfm2(d: int, ratio: float, multiple: int, multiplier: float | None) -> int:
    if multiplier is not None:
        multiple = multiple or 256
    return _llama(d, ratio, multiple or 1, multiplier)


def _megatron(d: int, ratio: float, multiple: int, _: float | None) -> int:
    return int(2 * ratio * d / 3) // multiple * multiple


_T5_V1_1 = {512: 1024, 768: 2048, 1024: 2816, 2048: 5120, 4096: 10240}


def _t5(d: int, *_: object) -> int:
    if d not in _T5_V1_1:
        widths = ", ".join(map(str, _T5_V1_1))
        raise FfnbenchError(
            f"T5 v1.1 has no model of d_model {d}", f"its d_model are {widths}"
        )
    return _T5_V1_1[d]


OF_LLAMA = ("ratio", "multiple_of", "ffn_dim_multiplier")
_ROWS = (
    Rule(name="classic", apply=_ratio),
    Rule(name="palm", apply=_ratio),
    Rule(name="two_thirds", apply=_two_thirds),
    Rule(name="llama", apply=_llama, multiple_of=256, reads=OF_LLAMA),
    Rule(name="lfm2", apply=_lfm2, multiple_of=0, reads=OF_LLAMA),
    Rule(
        name="torchtune",
        apply=lambda d, ratio, multiple, _: round_up(4 * int(2 * d / 3), multiple),
        multiple_of=256,
        reads=("multiple_of",),
    ),
    Rule(
        name="dinov2",
        apply=lambda d, ratio, multiple, _: (int(int(d * ratio) * 2 / 3) + 7) // 8 * 8,
        reads=("ratio",),
    ),
    Rule(
        name="flash_attn",
        apply=lambda d, ratio, multiple, _: round_up(int(2 * ratio * d / 3), multiple),
        multiple_of=128,
    ),
    Rule(
        name="grok",
        apply=lambda d, ratio, multiple, _: round_up(int(ratio * d) * 2 // 3, 8),
        ratio=8.0,
        reads=("ratio",),
    ),
    Rule(name="megatron", apply=_megatron, multiple_of=64),
    Rule(name="t5_v1_1", apply=_t5, reads=()),
)

WIDTH_RULES: Registry[Rule] = Registry(
    "width rule", f"rules: {', '.join(row.name for row in _ROWS)}"
)
for _row in _ROWS:
    WIDTH_RULES.add(_row.name, _row)


def width_by_rule(
    name: str,
    d_model: int,
    *,
    ratio: float | None = None,
    multiple_of: int | None = None,
    multiplier: float | None = None,
) -> int:
    """d_ff per branch by a named rule; raises FfnbenchError where the rule cannot serve
    that d_model.
    """
    rule = WIDTH_RULES.get(name)
    given = {
        "ratio": ratio,
        "multiple_of": multiple_of,
        "ffn_dim_multiplier": multiplier,
    }
    for key, value in given.items():
        if value is not None and key not in rule.reads:
            reads = ", ".join(rule.reads) or "nothing but d_model"
            raise FfnbenchError(
                f"the width rule {rule.name} does not read {key}", f"it reads {reads}"
            )
    return rule.apply(
        d_model,
        rule.ratio if ratio is None else ratio,
        rule.multiple_of if multiple_of is None else multiple_of,
        multiplier,
    )
