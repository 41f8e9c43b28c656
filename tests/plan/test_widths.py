"""Width rules against the widths of the models that they come from."""

from __future__ import annotations

from pathlib import Path

import pytest
from fake_machine import planned

from ffnbench.ffn.width_rules import (
    round_nearest,
    round_up,
    width_by_rule,
)
from ffnbench.worker.probe_jobs import InProcess

VECTORS = [
    ("classic", 768, {}, 3072),
    ("palm", 18432, {}, 73728),
    ("two_thirds", 768, {}, 2048),
    ("llama", 512, {}, 1536),
    ("llama", 2048, {}, 5632),
    ("llama", 4096, {}, 11008),  # LLaMA 7B
    ("llama", 5120, {}, 13824),  # LLaMA 13B
    ("llama", 6656, {}, 17920),  # LLaMA 33B
    ("llama", 8192, {}, 22016),  # LLaMA 65B
    ("llama", 8192, {"multiplier": 1.3, "multiple_of": 4096}, 28672),  # Llama 2 70B
    ("llama", 4096, {"multiplier": 1.3, "multiple_of": 1024}, 14336),  # Llama 3 8B
    ("llama", 8192, {"multiplier": 1.3, "multiple_of": 1024}, 28672),  # Llama 3 70B
    ("llama", 16384, {"multiplier": 1.2, "multiple_of": 4096}, 53248),  # Llama 3.1 405B
    ("llama", 16384, {"multiplier": 1.2, "multiple_of": 1024}, 53248),
    ("llama", 2048, {"multiplier": 1.5, "multiple_of": 256}, 8192),  # Llama 3.2 1B
    ("llama", 3072, {"multiplier": 1.0, "multiple_of": 256}, 8192),  # Llama 3.2 3B
    ("torchtune", 4096, {}, 11008),
    ("torchtune", 4096, {"multiple_of": 1}, 10920),
    ("llama", 4096, {"multiple_of": 1}, 10922),
    (
        "llama",
        5,
        {"ratio": 2.7, "multiple_of": 1},
        8,
    ),  # int(2 * int(13.5) / 3): each step is cut off
    ("dinov2", 1536, {}, 4096),
    ("dinov2", 1024, {}, 2736),
    ("dinov2", 768, {}, 2048),
    ("flash_attn", 4096, {}, 11008),
    ("flash_attn", 5120, {}, 13696),
    ("flash_attn", 8192, {}, 21888),
    ("grok", 6144, {}, 32768),
    ("megatron", 5120, {}, 13632),
    ("two_thirds", 5120, {"multiple_of": 64}, 13696),
    ("two_thirds", 64, {"ratio": 1, "multiple_of": 8}, 48),
    ("two_thirds", 128, {"ratio": 2, "multiple_of": 16}, 176),
    ("two_thirds", 512, {"ratio": 4, "multiple_of": 8}, 1368),
    ("t5_v1_1", 512, {}, 1024),
    ("t5_v1_1", 768, {}, 2048),
    ("t5_v1_1", 1024, {}, 2816),
    ("t5_v1_1", 2048, {}, 5120),
    ("t5_v1_1", 4096, {}, 10240),
    ("lfm2", 1024, {}, 2730),  # no multiplier: not rounded
    ("lfm2", 1024, {"multiplier": 1.0}, 2816),
    ("lfm2", 1024, {"multiple_of": 64}, 2752),
    ("classic", 100, {"ratio": 1, "multiple_of": 64}, 128),
]


@pytest.mark.parametrize(("rule", "d_model", "options", "d_ff"), VECTORS)
def test_published_widths(rule: str, d_model: int, options: dict, d_ff: int) -> None:
    assert width_by_rule(rule, d_model, **options) == d_ff


def test_rounding() -> None:
    assert [round_up(w, 8) for w in (1, 8, 9)] == [8, 8, 16]
    assert [round_nearest(w, 8) for w in (0.1, 11.9, 12, 12.1)] == [
        8,
        8,
        8,
        16,
    ]  # a tie goes down


OWN = """
from torch import nn


class FFN(nn.Module):
    def __init__(self, d_model, d_ff):
        super().__init__()
        self.gate, self.up, self.down = (
            nn.Linear(*size) for size in ((d_model, d_ff), (d_model, d_ff), (d_ff, d_model))
        )

    def forward(self, x):
        return self.down(nn.functional.silu(self.gate(x)) * self.up(x))
"""


@pytest.mark.parametrize(
    ("like", "d_ff"), [("swiglu", 2048), ("geglu_tanh", 2048), ("relu", 3072)]
)
def test_code_of_the_users_has_the_default_width_of_its_form(
    tmp_path: Path, like: str, d_ff: int
) -> None:
    (tmp_path / "own.py").write_text(OWN)
    own = f"{tmp_path}/own.py:FFN@like={like}"
    request = dict(variants=own, d_model=768)
    assert planned(**request, probe=InProcess()).cases[0].ffn.d_ff == d_ff


@pytest.mark.parametrize(
    ("variants", "d_ff", "found"),
    [
        ("relu,swiglu@multiple_of=16", 256, [256, 176]),  # 2/3 of 256, up to 16s
        ("relu,again=relu@multiple_of=64", 100, [100, 128]),  # nearer than 64
        ("relu,again=relu", 100, [100, 100]),
    ],
)
def test_a_width_is_rounded_to_the_multiple_of_its_variant(
    variants: str, d_ff: int, found: list[int]
) -> None:
    request = dict(variants=variants, d_model=128, d_ff=d_ff)
    assert [case.ffn.d_ff for case in planned(**request).cases] == found
