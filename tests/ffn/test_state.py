"""Weights of published checkpoints: found by the names that they have there, in the
shapes that they have there.
"""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from safetensors.torch import save_file

from ffnbench.common.errors import FfnbenchError
from ffnbench.ffn.spec import FFNSpec, Gate
from ffnbench.ffn.state import tensors_of

SWIGLU = FFNSpec(d_model=4, d_ff=6, activation="silu", gate=Gate.INNER)
GELU = FFNSpec(d_model=4, d_ff=6, activation="gelu")
GATE, UP = torch.arange(24.0).view(6, 4), -torch.arange(24.0).view(6, 4)
DOWN = torch.arange(24.0).view(4, 6) / 7

# as Llama, Mixtral's experts, T5 1.1, Phi-3, GPT-2 and OPT name them
LAYOUTS = {
    "model.layers.3.mlp.": (
        SWIGLU,
        {"gate_proj": GATE, "up_proj": UP, "down_proj": DOWN},
    ),
    "layers.0.feed_forward.": (SWIGLU, {"w1": GATE, "w3": UP, "w2": DOWN}),
    "encoder.block.0.layer.1.DenseReluDense.": (
        SWIGLU,
        {"wi_0": GATE, "wi_1": UP, "wo": DOWN},
    ),
    "model.layers.0.mlp.": (
        SWIGLU,
        {"gate_up_proj": torch.cat([GATE, UP]), "down_proj": DOWN},
    ),
    "h.0.mlp.": (GELU, {"c_fc": UP.T, "c_proj": DOWN.T}),
    "model.decoder.layers.0.": (
        GELU,
        {"fc1": UP, "fc2": DOWN, "self_attn.q_proj": torch.zeros(4, 4)},
    ),
    "transformer.": (GELU, {"w1": UP, "w2": DOWN}),
}


@pytest.mark.parametrize("prefix", LAYOUTS)
def test_the_matrices_of_a_checkpoint_are_found(tmp_path, prefix: str) -> None:
    spec, stored = LAYOUTS[prefix]
    path = tmp_path / "model.safetensors"
    other = {"lm_head.weight": torch.zeros(2, 2)}
    save_file(
        {f"{prefix}{name}.weight": value.contiguous() for name, value in stored.items()}
        | other,
        path,
    )
    found = tensors_of(str(path), spec, prefix)
    expected = {"up": UP, "down": DOWN} | ({"gate": GATE} if spec.gated else {})
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], expected[name]) for name in expected)


def test_names_and_shapes_are_read_without_torch(tmp_path) -> None:
    path = tmp_path / "model.safetensors"
    save_file(
        {
            "a": torch.zeros(2, 3, dtype=torch.bfloat16),
            "whole": torch.zeros(2, 2, dtype=torch.int8),
        },
        path,
    )
    code = "import sys; from ffnbench.ffn.state import shapes_in; print(shapes_in(sys.argv[1]), 'torch' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "{'a': (2, 3)} False"


def test_what_is_not_there_or_has_another_shape_is_told(tmp_path) -> None:
    path = tmp_path / "model.safetensors"
    save_file(
        {
            "a.mlp.up_proj.weight": torch.zeros(8, 4),
            "a.mlp.down_proj.weight": torch.zeros(4, 8),
        },
        path,
    )
    with pytest.raises(FfnbenchError, match=r"no tensor's name begins with 'b\.'"):
        tensors_of(str(path), GELU, "b.")
    with pytest.raises(
        FfnbenchError,
        match=r"(?s)no tensor is called a.mlp.gate_proj.weight, .* it has .*up_proj.weight",
    ):
        tensors_of(str(path), SWIGLU, "a.mlp.")
    with pytest.raises(FfnbenchError) as problem:
        tensors_of(str(path), GELU, "a.mlp.")
    assert problem.value.message == "a.mlp.up_proj.weight is 8 x 4, and up is 6 x 4"
    assert problem.value.hint == "give --d-model 4 --d-ff 8"
    path.write_bytes(b"no such format")
    with pytest.raises(FfnbenchError, match="cannot read"):
        tensors_of(str(path), GELU, "")


@pytest.mark.parametrize(
    ("prefix", "hint"),
    [
        ("", "for example --prefix h.0.mlp.; there are 1 more"),
        ("h.1.mlp", "with a dot at its end: --prefix h.1.mlp."),
        ("model.", "for example --prefix h.0.mlp.; there are 1 more"),
    ],
)
def test_a_prefix_that_is_none_leads_to_those_that_are(
    tmp_path, prefix: str, hint: str
) -> None:
    path = tmp_path / "model.safetensors"
    tensors = {"wte.weight": torch.zeros(2, 2)}
    for layer in range(2):
        tensors[f"h.{layer}.mlp.c_fc.weight"] = UP.T.contiguous()
        tensors[f"h.{layer}.mlp.c_proj.weight"] = DOWN.T.contiguous()
    save_file(tensors, path)
    with pytest.raises(FfnbenchError) as problem:
        tensors_of(str(path), GELU, prefix)
    assert problem.value.hint == hint


def test_a_file_without_a_layer_of_its_own_says_so(tmp_path) -> None:
    path = tmp_path / "model.safetensors"
    save_file({"up.weight": UP, "down.weight": DOWN.contiguous()}, path)
    with pytest.raises(FfnbenchError) as problem:
        tensors_of(str(path), GELU, "model.")
    assert problem.value.hint == "leave --prefix out"
    save_file({"ids": torch.zeros(2, dtype=torch.int64)}, path)
    with pytest.raises(FfnbenchError, match="no tensor of floating-point numbers"):
        tensors_of(str(path), GELU, "")


def test_a_row_of_another_size_is_named_and_how_all_get_the_same(
    tmp_path, on_fakes
) -> None:
    path = tmp_path / "model.safetensors"
    save_file({n: torch.zeros(6, 4) for n in ("gate.weight", "up.weight")}
              | {"down.weight": torch.zeros(4, 6)}, path)  # fmt: skip
    asked = "relu swiglu --d-model 4 --d-ff 6 --metrics error"
    code, _, err = on_fakes(f"compare {asked} --state", path)
    assert code == 2
    assert "error: 'swiglu': gate.weight is 6 x 4, and gate is" in err
    hint = err.partition("hint: give ")[2].strip()
    assert on_fakes(f"compare {asked} {hint} --state", path)[0] == 0
