from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ffnbench.common.errors import FfnbenchError
from ffnbench.ffn.spec import Gate
from ffnbench.plan.plan import Probe
from ffnbench.plan.variants import Variant, typed_variants


def variant_of(text: str) -> Variant:
    [typed] = typed_variants(text)
    return typed.at({}, Probe())


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
    form = variant_of(text).form
    assert form is not None
    assert (form.activation, form.gate) == (activation, gate)


WORDS = st.text("abcxyz_09", min_size=1, max_size=8)
OF_SPEC = {
    "d_ff": st.integers(1, 9999),
    "bias": st.booleans(),
    "multiple_of": st.integers(1, 64),
}
OF_WORKLOAD = {
    "dtype": st.sampled_from(("bfloat16", "float32")),
    "batch": st.integers(1, 99),
    "seq_len": st.integers(1, 99),
}
NAMES = st.sampled_from(
    (
        "relu",
        "swiglu",
        "gelu_tanh",
        "llama3-8b",
        "path/to/file.py:Outer.Mlp",
        "pkg.mod:f",
    )
)


@st.composite
def written(draw) -> tuple[str, str, dict, dict]:
    """A variant as it is typed, its name, and what it says of the form and of the
    workload.
    """
    name = draw(NAMES)
    both = draw(st.fixed_dictionaries({}, optional=OF_SPEC | OF_WORKLOAD))
    keys = [f"@{key}={str(value).lower()}" for key, value in both.items()]
    text = name + "".join(draw(st.permutations(keys)))
    return (
        text,
        name,
        {key: v for key, v in both.items() if key in OF_SPEC},
        {k: v for k, v in both.items() if k in OF_WORKLOAD},
    )


@given(written(), WORDS | st.none())
def test_label_name_and_keys_are_told_apart(
    typed: tuple[str, str, dict, dict], label: str | None
) -> None:
    """Code of the user's keeps its own keys; the size is that of every form."""
    text, name, of_spec, of_workload = typed
    [variant] = typed_variants(text if label is None else f"{label}={text}")
    assert (variant.text, variant.name) == (text, name)
    assert variant.keys == {key: (one,) for key, one in (of_spec | of_workload).items()}
    assert variant.is_target == (":" in name)
    assert (
        variant.row
        == (label or text.replace("path/to/file.py:", "").replace("pkg.mod:", ""))
        or name == "llama3-8b"
    )


@given(st.lists(written(), min_size=1, max_size=5))
def test_a_list_of_variants_has_each_of_them(
    typed: list[tuple[str, str, dict, dict]],
) -> None:
    texts = [f"v{number}={text}" for number, (text, *_) in enumerate(typed)]
    variants = typed_variants(" , ".join(texts))
    assert [variant.label for variant in variants] == [
        f"v{number}" for number in range(len(texts))
    ]
    assert [variant.text for variant in variants] == [text for text, *_ in typed]


@given(st.text("relugs,@=.:0-9 /_(&é", max_size=30))
def test_any_other_text_is_a_mistake_with_a_way_out(text: str) -> None:
    try:
        typed_variants(text)
    except FfnbenchError as caught:
        problem = caught
    else:
        return
    assert problem.hint
    assert problem.exit_code == 2
