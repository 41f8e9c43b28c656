"""Published models: the rows of presets.json, each as `inspect` would read it off its
config.json, with where its numbers were read.

d_ff is the width per branch (papers and packed weights may print twice of it).
Attention is one self-attention; the decoder layers of T5 and of the original
Transformer carry a second one, of the same size, to the encoder. `other_names` are
names of exactly the same sizes, spelled as `plain_name` gives them; a later version
with other sizes is not among them.
"""

from __future__ import annotations

import re
from pathlib import Path

from ffnbench.common import jsonable
from ffnbench.common.names import Registry
from ffnbench.models.model import ModelSpec

FILE = Path(__file__).with_name("presets.json")
PUBLISHERS = (
    "meta-llama", "huggyllama", "mistralai", "openai", "openai-community", "google", "google-bert", "google-t5",
    "tiiuae", "microsoft", "qwen", "nvidia", "answerdotai", "deepseek-ai", "swiss-ai",
)  # fmt: skip
_TUNED = re.compile(r"[-_ ]?(?<![a-z])(instruct|chat|hf|it)\b")
_NOT_BETWEEN_DIGITS = re.compile(r"(?<!\d)-|-(?!\d)")


def plain_name(name: str) -> str:
    """One spelling for the names of one model: `llama3.1-8b` for `llama 3.1 8b` and for
    `meta-llama/Llama-3.1-8B-Instruct`. Dots, and a dash between two digits, tell models
    apart and are kept; a word for tuning does not.
    """
    publisher, _, model = name.strip().lower().rpartition("/")
    if publisher and publisher not in PUBLISHERS:
        return name
    joined = re.sub("[-_ ]+", "-", _TUNED.sub("", model))
    return _NOT_BETWEEN_DIGITS.sub("", joined)


PRESETS: Registry[ModelSpec] = Registry(
    "preset", "`ffnbench list presets` shows all", plain_name
)
for _row in jsonable.parse(FILE.read_text(encoding="utf-8")):
    _other_names = _row.pop("other_names", ())
    _model = jsonable.decode(ModelSpec, _row)
    PRESETS.add(_model.key, _model, _other_names)
