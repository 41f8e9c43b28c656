"""How far the tokens of each layer see: windows of attention, by the keys of
config.json. Held to transformers.

A class decides by `sliding_window` and by `layer_types`, a list with one word for each
layer, or by a rule where that list is left out. Attention that is neither to all tokens
nor to the last ones keeps its word, and is not counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from ffnbench.common.errors import FfnbenchError
from ffnbench.models.model import AttentionWindow

Config = Mapping[str, Any]


class LayerWindow(NamedTuple):
    """How far the tokens of one layer see, as AttentionWindow has it."""

    tokens: int | None = None
    other: str = ""


ALL_TOKENS = LayerWindow()
FULL = "full_attention"
SLIDING = "sliding_attention"
CHUNKED = "chunked_attention"
LINEAR = "linear_attention"
OLD_WORDS = {"attention": FULL, "mamba": LINEAR}


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowRule:
    """How a class reads its keys. Layers to which the rule `applies`, by config and
    number of the layer, have the attention `word`; the others see all tokens.

    `window` is the class's default of sliding_window. Where it `reads_layer_types`,
    that list comes before the rule. Where it `needs_switch`, there is a window only if
    use_sliding_window is true.
    """

    applies: Callable[[Config, int], bool]
    word: str = SLIDING
    window: int | None = None
    reads_layer_types: bool = True
    needs_switch: bool = False


def _number(config: Config, key: str, default: object) -> int:
    """The value of a key, a whole number of at least 1; raises FfnbenchError."""
    value = config.get(key, default)
    if type(value) is not int or value < 1:  # nor a bool
        raise FfnbenchError(
            f"{key} is {value!r}", "it must be a whole number of at least 1"
        )
    return value


def _to_all(config: Config, layer: int) -> bool:
    return True


def _to_all_but_each(n: int, key: str = "") -> Callable[[Config, int], bool]:
    """A rule for all but each n-th layer, where the key, if the class has one, gives
    another n.
    """

    def applies(config: Config, layer: int) -> bool:
        return (layer + 1) % _number(config, key, n) != 0

    return applies


def _to_none(config: Config, layer: int) -> bool:
    return False


def _to_late(config: Config, layer: int) -> bool:
    return layer >= _number(config, "max_window_layers", 28)


def _to_every_second_early(config: Config, layer: int) -> bool:
    return layer % 2 == 0 and layer < _number(config, "max_window_layers", 28)


def _has_rotary(config: Config, layer: int) -> bool:
    """Whether a layer has rotary positions: all have but each n-th, unless a list says
    it for each layer.
    """
    by_layer = config.get("no_rope_layers")
    if by_layer:
        return bool(by_layer[layer])
    return (layer + 1) % _number(config, "no_rope_layer_interval", 4) != 0


def _to_those_without_rotary(config: Config, layer: int) -> bool:
    is_switched_on = config.get("use_sliding_window", False)
    has_window = config.get("sliding_window") is not None
    return is_switched_on and has_window and not _has_rotary(config, layer)


_ALL = WindowRule(applies=_to_all, reads_layer_types=False)
_QWEN = WindowRule(applies=_to_late, window=4096, needs_switch=True)
_INTERVAL = WindowRule(
    applies=_to_all_but_each(4, "full_attention_interval"), word=LINEAR
)
WINDOW_RULES = {
    "mistral": WindowRule(applies=_to_all, reads_layer_types=False, window=4096),
    **dict.fromkeys(("ministral3", "mixtral", "phi3", "starcoder2"), _ALL),
    "qwen2": _QWEN,
    "qwen3": _QWEN,
    "qwen2_moe": WindowRule(
        applies=_to_every_second_early, window=4096, needs_switch=True
    ),
    "qwen3_moe": WindowRule(
        applies=_to_all, reads_layer_types=False, window=4096, needs_switch=True
    ),
    "gemma2": WindowRule(applies=_to_all_but_each(2), window=4096),
    "gemma3_text": WindowRule(
        applies=_to_all_but_each(6, "sliding_window_pattern"), window=4096
    ),
    "gpt_oss": WindowRule(applies=_to_all_but_each(2), window=128),
    "olmo3": WindowRule(applies=_to_all_but_each(4), window=4096),
    "smollm3": WindowRule(applies=_to_those_without_rotary),
    "llama4_text": WindowRule(applies=_has_rotary, word=CHUNKED),
    **dict.fromkeys(("qwen3_next", "qwen3_5_text", "qwen3_5_moe_text"), _INTERVAL),
}
# of a model type whose attention is known, and has no window
NO_WINDOW = WindowRule(applies=_to_none, reads_layer_types=False)
# of a model type whose attention is not known
LAYER_TYPES_ALONE = WindowRule(applies=_to_none)


def layer_windows(
    config: Config, model_type: str, layers: int, *, attention_known: bool
) -> list[LayerWindow]:
    """How far the tokens of each layer see; raises FfnbenchError where the keys don't
    say it. `attention_known` says whether the table has the attention of the model
    type.
    """
    if config.get("use_bidirectional_attention"):
        raise FfnbenchError(
            "its attention goes in both directions", "that is not known"
        )
    default_rule = NO_WINDOW if attention_known else LAYER_TYPES_ALONE
    rule = WINDOW_RULES.get(model_type, default_rule)
    window = config.get("sliding_window", rule.window)
    if rule.needs_switch and not config.get("use_sliding_window", False):
        window = None
    words = config.get("layer_types") if rule.reads_layer_types else None
    if words is None:
        words = _words_by_rule(rule, config, window, layers)
    if (
        not isinstance(words, list)
        or len(words) != layers
        or not all(isinstance(word, str) for word in words)
    ):
        raise FfnbenchError(
            "layer_types does not fit its layers", "it needs one word for each layer"
        )
    return [_layer_window(word, window) for word in words]


def _words_by_rule(
    rule: WindowRule, config: Config, window: Any, layers: int
) -> list[str]:
    """The word of each layer by the rule, where no layer_types says it."""
    may_lack_window = rule.needs_switch or not rule.reads_layer_types
    if window is None and rule.word == SLIDING and may_lack_window:
        return [FULL] * layers
    words = []
    for layer in range(layers):
        words.append(rule.word if rule.applies(config, layer) else FULL)
    return words


def _layer_window(word: str, window: Any) -> LayerWindow:
    """How far a layer of that word sees; raises FfnbenchError where it needs a window,
    and `window` is none.
    """
    word = OLD_WORDS.get(word, word)
    if word == SLIDING:
        return LayerWindow(_number({}, "sliding_window", window))
    if word == FULL:
        return ALL_TOKENS
    return LayerWindow(other=word)


def grouped(windows: Iterable[LayerWindow]) -> tuple[AttentionWindow, ...]:
    """Equal windows of layers in one, those that see all tokens first; empty where all
    layers see them.
    """
    counts = Counter(windows)
    if set(counts) <= {ALL_TOKENS}:
        return ()
    in_order = sorted(counts, key=lambda window: (window.other, window.tokens or 0))
    return tuple(
        AttentionWindow(count=counts[window], tokens=window.tokens, other=window.other)
        for window in in_order
    )
