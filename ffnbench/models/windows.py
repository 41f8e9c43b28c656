"""How far the tokens of each layer see: windows of attention, by the keys of
config.json. Held to transformers.

A class decides by `sliding_window` and by `layer_types`, a list with one word a layer,
or by a rule where that is left out. What is neither attention to all tokens nor to the
last of them keeps its word: it is not counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ffnbench.common.errors import FfnbenchError
from ffnbench.models.model import AttentionWindow

Config = Mapping[str, Any]
# of one layer: its window, None for all tokens; what it is where that is not counted
LayerWindow = tuple[int | None, str]
ALL_TOKENS: LayerWindow = (None, "")
FULL = "full_attention"
SLIDING = "sliding_attention"
CHUNKED = "chunked_attention"
LINEAR = "linear_attention"
OLD_WORDS = {"attention": FULL, "mamba": LINEAR}


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowRule:
    """How a class reads its keys: which layers have `word`, by their number, and the
    others see all.

    `window` is what it has where sliding_window is left out. `typed`: layer_types comes
    before the rule. `switched`: use_sliding_window must be true.
    """

    has: Callable[[Config, int], bool]
    word: str = SLIDING
    window: int | None = None
    typed: bool = True
    switched: bool = False


def _number(config: Config, key: str, default: int) -> int:
    value = config.get(key, default)
    if type(value) is not int or value < 1:  # nor a bool
        raise FfnbenchError(
            f"{key} is {value!r}", "it must be a whole number of at least 1"
        )
    return value


def _always(config: Config, layer: int) -> bool:
    return True


def _but_every(n: int, key: str = "") -> Callable[[Config, int], bool]:
    """All but each n-th layer, n by its key where it has one."""

    def has(config: Config, layer: int) -> bool:
        return (layer + 1) % _number(config, key, n) != 0

    return has


def _never(config: Config, layer: int) -> bool:
    return False


def _from_layer_on(config: Config, layer: int) -> bool:
    return layer >= _number(config, "max_window_layers", 28)


def _early_odd(config: Config, layer: int) -> bool:
    return layer % 2 == 0 and layer < _number(config, "max_window_layers", 28)


def _has_rotary(config: Config, layer: int) -> bool:
    """Whether a layer has rotary positions: all but each n-th, or as listed."""
    by_layer = config.get("no_rope_layers")
    if by_layer:
        return bool(by_layer[layer])
    return (layer + 1) % _number(config, "no_rope_layer_interval", 4) != 0


def _switched_on(config: Config, layer: int) -> bool:
    switched = (
        config.get("use_sliding_window", False)
        and config.get("sliding_window") is not None
    )
    return switched and not _has_rotary(config, layer)


_ALL = WindowRule(has=_always, typed=False)
_QWEN = WindowRule(has=_from_layer_on, window=4096, switched=True)
_INTERVAL = WindowRule(has=_but_every(4, "full_attention_interval"), word=LINEAR)
WINDOW_RULES = {
    "mistral": WindowRule(has=_always, typed=False, window=4096),
    **dict.fromkeys(("ministral3", "mixtral", "phi3", "starcoder2"), _ALL),
    "qwen2": _QWEN,
    "qwen3": _QWEN,
    "qwen2_moe": WindowRule(has=_early_odd, window=4096, switched=True),
    "qwen3_moe": WindowRule(has=_always, typed=False, window=4096, switched=True),
    "gemma2": WindowRule(has=_but_every(2), window=4096),
    "gemma3_text": WindowRule(has=_but_every(6, "sliding_window_pattern"), window=4096),
    "gpt_oss": WindowRule(has=_but_every(2), window=128),
    "olmo3": WindowRule(has=_but_every(4), window=4096),
    "smollm3": WindowRule(has=_switched_on),
    "llama4_text": WindowRule(has=_has_rotary, word=CHUNKED),
    **dict.fromkeys(("qwen3_next", "qwen3_5_text", "qwen3_5_moe_text"), _INTERVAL),
}
# its attention is known to have no window
FULL_ALONE = WindowRule(has=_never, typed=False)
BY_WORDS = WindowRule(has=_never)


def layer_windows(
    config: Config, model_type: str, layers: int, *, attention_known: bool
) -> list[LayerWindow]:
    """How far each layer sees; raises FfnbenchError where the keys don't say it.
    `attention_known`: whether that of its model type is.
    """
    if config.get("use_bidirectional_attention"):
        raise FfnbenchError(
            "its attention goes in both directions", "that is not known"
        )
    rule = WINDOW_RULES.get(model_type, FULL_ALONE if attention_known else BY_WORDS)
    window = config.get("sliding_window", rule.window)
    if rule.switched and not config.get("use_sliding_window", False):
        window = None
    words = config.get("layer_types") if rule.typed else None
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
    return [_window(word, window) for word in words]


def _words_by_rule(
    rule: WindowRule, config: Config, window: Any, layers: int
) -> list[str]:
    """What each layer has, where layer_types does not say it."""
    may_lack_window = rule.switched or not rule.typed
    if window is None and rule.word == SLIDING and may_lack_window:
        return [FULL] * layers
    return [rule.word if rule.has(config, layer) else FULL for layer in range(layers)]


def _window(word: str, window: Any) -> LayerWindow:
    word = OLD_WORDS.get(word, word)
    if word == SLIDING:
        return _number({"sliding_window": window}, "sliding_window", 0), ""
    if word == FULL:
        return ALL_TOKENS
    return None, word


def grouped(windows: Iterable[LayerWindow]) -> tuple[AttentionWindow, ...]:
    """Equal layers together, those that see all first; nothing where these are all."""
    counts = Counter(windows)
    if set(counts) <= {ALL_TOKENS}:
        return ()

    def place(window: LayerWindow) -> tuple[str, int]:
        tokens, other = window
        return other, tokens or 0

    rows = []
    for window in sorted(counts, key=place):
        tokens, other = window
        rows.append(AttentionWindow(count=counts[window], tokens=tokens, other=other))
    return tuple(rows)
