from __future__ import annotations

import math

import pytest

from ffnbench.common.errors import FfnbenchError
from ffnbench.ffn.spec import Gate
from ffnbench.planning.keys import parse_scalar
from ffnbench.planning.variant_text import parse_variant, parse_variants


@pytest.mark.parametrize(
    ("text", "activation", "gate"),
    [
        ("relu", "relu", Gate.NONE),
        ("gelu_new", "gelu_tanh", Gate.NONE),
        ("swiglu", "silu", Gate.INNER),
        ("glu", "sigmoid", Gate.INNER),
        ("bilinear", "identity", Gate.INNER),
        ("mish_glu", "mish", Gate.INNER),
        ("gelu_new_glu", "gelu_tanh", Gate.INNER),
        ("silu@gate=output", "silu", Gate.OUTPUT),
        ("swiglu@gate=output", "silu", Gate.OUTPUT),
        ("swiglu@gate=none", "silu", Gate.NONE),
        ("relu@gate=inner", "relu", Gate.INNER),
        ("swish", "silu", Gate.NONE),
        ("swish@beta=1", "silu", Gate.NONE),
        ("swish@beta=0.5", "swish", Gate.NONE),
        ("swiglu@beta=2", "swish", Gate.INNER),
        ("SwiGLU", "silu", Gate.INNER),
        ("hard-swish", "hardswish", Gate.NONE),
    ],
)
def test_names_mean_forms(text: str, activation: str, gate: Gate) -> None:
    variant = parse_variant(text)
    assert (variant.activation, variant.gate) == (activation, gate)


def test_label_and_keys_are_told_apart() -> None:
    variant = parse_variant("mine=swiglu@d_ff=2048@bias=true@dtype=bf16")
    assert (variant.label, variant.text) == ("mine", "swiglu@d_ff=2048@bias=true@dtype=bf16")
    assert variant.spec_keys == {"d_ff": 2048, "bias": True}
    assert variant.workload_keys == {"dtype": "bf16"}


def test_user_code_keeps_its_own_keys() -> None:
    variant = parse_variant("path/to/file.py:Outer.Mlp@d_ff=64@bias=false@batch=2")
    assert (variant.label, variant.target) == ("Outer.Mlp@d_ff=64@bias=false@batch=2", "path/to/file.py:Outer.Mlp")
    assert variant.arguments == (("bias", False),)
    assert variant.spec_keys == {"d_ff": 64}
    assert variant.workload_keys == {"batch": 2}


@pytest.mark.parametrize(
    ("text", "error", "hint"),
    [
        ("swigul", "unknown variant 'swigul'", "did you mean 'swiglu'"),
        ("gleu", "unknown variant 'gleu'", "did you mean"),
        ("foo_glu", "unknown variant 'foo_glu'", "list variants"),
        ("swiglu@dff=1024", "unknown key 'dff'", "did you mean 'd_ff'"),
        ("swiglu@d_ff", "cannot read '@d_ff'", "@KEY=VALUE"),
        ("swiglu@", "cannot read '@'", "@KEY=VALUE"),
        ("swiglu@d_ff=1@d_ff=2", "stands twice", "once"),
        ("relu@beta=2", "relu has no beta", "swish@beta"),
        ("swish@beta=x", "beta must be a number", "swish@beta"),
        ("silu@gate=ouput", "unknown gate 'ouput'", "did you mean 'output'"),
        ("", "has an empty value", "for example"),
        (" , ", "has an empty value", "for example"),
    ],
)
def test_mistakes_are_named_with_a_way_out(text: str, error: str, hint: str) -> None:
    with pytest.raises(FfnbenchError, match=error) as caught:
        parse_variants(text)
    assert hint in caught.value.hint


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("true", True),
        ("No", False),
        ("none", None),
        ("8", 8),
        ("0.5", 0.5),
        ("1e-3", 1e-3),
        ("silu", "silu"),
        ("1" + "0" * 400, math.inf),
    ],
)
def test_scalars(text: str, value: object) -> None:
    assert parse_scalar(text) == value
    assert type(parse_scalar(text)) is type(value)
