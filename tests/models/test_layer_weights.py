"""`--preset FOLDER --layer N`: the FFN of a layer with its own weights, from folders as
save_pretrained writes them.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from shell import ffnbench as shell

transformers = pytest.importorskip("transformers")
safetensors = pytest.importorskip("safetensors.torch")

WIDTHS = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
LLAMA = WIDTHS | {"intermediate_size": 96, "vocab_size": 50, "num_key_value_heads": 2}
EXPERTS = LLAMA | {"num_local_experts": 4, "num_experts_per_tok": 2}
# type: its class, its config, and the modules that are the FFN of layer 1
MODELS: dict[str, tuple[str, dict[str, Any], list[str]]] = {
    "llama": ("LlamaForCausalLM", LLAMA, ["model.layers.1.mlp"]),
    "gpt2": ("GPT2LMHeadModel", {"n_embd": 64, "n_layer": 2, "n_head": 4, "vocab_size": 50}, ["transformer.h.1.mlp"]),
    "bert": ("BertModel", WIDTHS | {"intermediate_size": 128, "vocab_size": 50}, ["encoder.layer.1.intermediate", "encoder.layer.1.output.dense"]),
    "mixtral": ("MixtralForCausalLM", EXPERTS, ["model.layers.1.mlp"]),
    "gpt_oss": ("GptOssForCausalLM", EXPERTS | {"head_dim": 16}, ["model.layers.1.mlp"]),
    "dinov3_vit": ("DINOv3ViTModel", WIDTHS | {"intermediate_size": 96, "use_gated_mlp": True, "hidden_act": "silu"}, ["model.layer.1.mlp"]),
}  # fmt: skip


def saved(kind: str, folder: Path) -> torch.nn.Module:
    """A model of random weights, which are in the folder."""
    class_name, sizes, _ = MODELS[kind]
    config = transformers.AutoConfig.for_model(kind, **sizes)
    torch.manual_seed(0)
    model = getattr(transformers, class_name)(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():  # biases are zero as drawn
            parameter.normal_(std=0.1)
    model.save_pretrained(folder)
    return model


@pytest.mark.parametrize("kind", MODELS)
def test_the_weights_of_a_layer_compute_what_the_layer_computes(
    kind: str, tmp_path: Path
) -> None:
    """Whatever its tensors are called and however they lie: those of Mixtral's experts
    are stored one by one.
    """
    from ffnbench.models.read import read_model
    from ffnbench.models.weights import layer_weights
    from ffnbench.worker.backends.building import build_module

    theirs = saved(kind, tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    ours = build_module(read_model(config, "config.json").main.ffn)
    ours.load_state_dict(layer_weights(str(tmp_path), 1))
    x = torch.randn(2, 16, 64, generator=torch.Generator().manual_seed(1))
    with torch.inference_mode():
        y, expected = ours(x), x
        for name in MODELS[kind][2]:
            found = theirs.get_submodule(name)(expected)
            expected = found[0] if isinstance(found, tuple) else found
    assert float((y - expected).norm() / expected.norm()) < 1e-5


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("llama")
    saved("llama", made)
    return made


def cost(folder: Path, *more: str) -> str:
    done = shell("compare", "--preset", str(folder), "--quick", *more)
    assert done.returncode == 2, done.stderr
    assert "hint:" in done.stderr
    return done.stderr


@pytest.mark.slow
def test_what_can_not_be_taken_is_one_line(folder: Path, tmp_path) -> None:
    llama = folder
    assert "has no layer 9" in cost(llama, "--layer", "9", "--variants", "preset")
    assert "no weights for 'relu'" in cost(
        llama, "--layer", "0", "--variants", "preset,relu"
    )
    assert "needs the folder of a model" in cost(Path("gpt2"), "--layer", "0")
    (tmp_path / "config.json").write_bytes((llama / "config.json").read_bytes())
    assert "holds no safetensors" in cost(
        tmp_path, "--layer", "0", "--variants", "preset"
    )
    torn = tmp_path / "model.safetensors"
    torn.write_bytes((llama / "model.safetensors").read_bytes()[:1000])
    assert "cannot read" in cost(tmp_path, "--layer", "0", "--variants", "preset")


@pytest.mark.slow
def test_a_baseline_of_a_layer_is_checked_where_its_weights_are_not_kept_yet(
    folder: Path, tmp_path: Path
) -> None:
    """The cache of another machine is empty, and is filled again from the folder."""
    run = ("--seq-len", "16", "--workers", "5", "--rounds", "4", "-o", "a.json", "-q")
    variants = ("--layer", "1", "--variants", "preset,again=preset")
    done = shell("compare", "--preset", str(folder), *variants, *run, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    elsewhere = {"XDG_CACHE_HOME": str(tmp_path / "elsewhere")}
    done = shell(
        "check", "a.json", "--budget", "6s", "--tolerance", "500%",
        cwd=tmp_path, env=elsewhere,
    )  # fmt: skip
    assert "could not measure" not in done.stdout + done.stderr
    assert done.returncode == 0, done.stdout
