"""`--preset FOLDER --layer N`: the FFN of a layer with its own weights, from folders as
save_pretrained writes them.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from processor import HAS_8_BIT_PRODUCTS
from shell import ffnbench as shell

transformers = pytest.importorskip("transformers")
safetensors = pytest.importorskip("safetensors.torch")
WIDTHS = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
# type: its class, its config, and by the names of its tensors the form by hand
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("LlamaForCausalLM", WIDTHS | {"intermediate_size": 96, "vocab_size": 50, "num_key_value_heads": 2}),
    "gpt2": ("GPT2LMHeadModel", {"n_embd": 64, "n_layer": 2, "n_head": 4, "vocab_size": 50}),
    "bert": ("BertModel", WIDTHS | {"intermediate_size": 128, "vocab_size": 50}),
    "mixtral": ("MixtralForCausalLM", WIDTHS | {"intermediate_size": 96, "vocab_size": 50, "num_key_value_heads": 2, "num_local_experts": 4}),
    "gpt_oss": ("GptOssForCausalLM", WIDTHS | {"intermediate_size": 96, "vocab_size": 50, "num_key_value_heads": 2, "head_dim": 16, "num_local_experts": 4, "num_experts_per_tok": 2}),
    "dinov3_vit": ("DINOv3ViTModel", WIDTHS | {"intermediate_size": 96, "use_gated_mlp": True, "hidden_act": "silu"}),
}  # fmt: skip


def as_is(values: torch.Tensor) -> torch.Tensor:
    return values


def in_8_bits(weight: torch.Tensor) -> torch.Tensor:
    """Rows rounded to 8 bits, each with the scale of its largest element."""
    scale = weight.abs().amax(1, keepdim=True) / 127
    return (weight / scale).round().clamp(-128, 127) * scale


def in_4_bits(weight: torch.Tensor) -> torch.Tensor:
    """Every 32 columns of a row rounded to the 16 values of their range."""
    parts = []
    for part in weight.split(32, dim=1):
        low = part.amin(1, keepdim=True)
        step = (part.amax(1, keepdim=True) - low) / 15
        parts.append(((part - low) / step).round() * step + low)
    return torch.cat(parts, dim=1)


def input_in_8_bits(x: torch.Tensor) -> torch.Tensor:
    """All of an input rounded to 256 values, of which one is 0."""
    step = (x.amax() - x.amin()) / 255
    zero = (-x.amin() / step).round()
    return ((x / step).round() + zero).clamp(0, 255).sub(zero) * step


# what each format rounds: matrices, and their inputs; how far its error may be off for
# the input that was drawn: one scale for a whole input follows its largest value
FORMATS: dict[str, tuple[Any, Any, float]] = {
    "int8": (in_8_bits, as_is, 0.15),
    "int8-dynamic": (in_8_bits, input_in_8_bits, 0.3),
    "int4": (in_4_bits, as_is, 0.15),
}
if not HAS_8_BIT_PRODUCTS:
    del FORMATS["int8-dynamic"]


def by_hand(
    kind: str,
    w: dict[str, torch.Tensor],
    x: torch.Tensor,
    cut: Any = as_is,
    cut_input: Any = as_is,
) -> torch.Tensor:
    """The FFN of layer 1 in float64, with `cut` on its matrices and `cut_input` on what
    they are multiplied by.
    """

    def get(end: str) -> torch.Tensor:
        (found,) = [t for n, t in w.items() if n.endswith(f".1.{end}")]
        return found.double()

    def linear(
        v: torch.Tensor, name: str, transposed: bool = False, bias: bool = True
    ) -> torch.Tensor:
        weight = get(f"{name}.weight")
        weight = cut(weight.T if transposed else weight)
        y = cut_input(v) @ weight.T
        return y + get(f"{name}.bias") if bias else y

    match kind:
        case "llama":
            hidden = F.silu(linear(x, "mlp.gate_proj", bias=False)) * linear(
                x, "mlp.up_proj", bias=False
            )
            return linear(hidden, "mlp.down_proj", bias=False)
        case "gpt2":
            hidden = F.gelu(linear(x, "mlp.c_fc", transposed=True), approximate="tanh")
            return linear(hidden, "mlp.c_proj", transposed=True)
        case "bert":
            hidden = F.gelu(linear(x, "intermediate.dense"))
            return linear(hidden, "output.dense")
        case "gpt_oss":
            best, chosen = (
                x @ get("mlp.router.weight").T + get("mlp.router.bias")
            ).topk(2)
            shares = (
                torch.zeros(len(x), 4).double().scatter(1, chosen, best.softmax(-1))
            )
            y = torch.zeros_like(x)
            for expert in range(4):
                tokens = shares[:, expert] > 0
                of_both = get("mlp.experts.gate_up_proj")[expert].T
                bias = get("mlp.experts.gate_up_proj_bias")[expert]
                v = cut_input(x[tokens])
                gate = (v @ cut(of_both[::2]).T + bias[::2]).clamp(max=7)
                up = (v @ cut(of_both[1::2]).T + bias[1::2]).clamp(-7, 7)
                hidden = cut_input(gate * torch.sigmoid(1.702 * gate) * (up + 1))
                down = cut(get("mlp.experts.down_proj")[expert].T)
                y_here = hidden @ down.T + get("mlp.experts.down_proj_bias")[expert]
                y[tokens] += shares[tokens, expert, None] * y_here
            return y
        case _:
            hidden = F.silu(linear(x, "mlp.gate_proj")) * linear(x, "mlp.up_proj")
            return linear(hidden, "mlp.down_proj")


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    torch.manual_seed(0)
    made = {}
    for kind, (class_name, sizes) in MODELS.items():
        config = transformers.AutoConfig.for_model(kind, **sizes)
        model = getattr(transformers, class_name)(config)
        with torch.no_grad():
            for parameter in model.parameters():  # biases are zero as drawn
                parameter.normal_(std=0.1)
        made[kind] = tmp_path_factory.mktemp(kind)
        model.save_pretrained(made[kind])
    return made


@pytest.mark.parametrize(
    "kind",
    [
        "gpt2",
        pytest.param("llama", marks=pytest.mark.slow),
        pytest.param("bert", marks=pytest.mark.slow),
        pytest.param("gpt_oss", marks=pytest.mark.slow),
        pytest.param("dinov3_vit", marks=pytest.mark.slow),
    ],
)
def test_the_error_of_a_format_is_that_of_the_layer(
    folders: dict[str, Path], kind: str
) -> None:
    """Beside float64 on the tensors of the file."""
    done = shell(
        "compare", "--preset", str(folders[kind]), "--layer", "1", "--variants", "preset@group=32",
        "--weights", ",".join(["none", *FORMATS]), "--seq-len", "16", "--metrics", "error",
        "--quick", "--device", "cpu", "-f", "json",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    errors = {
        sample["case"].rpartition("@weights=")[2]: sample["value"]
        for sample in json.loads(done.stdout)["samples"]
        if sample["metric"] == "error"
    }
    weights = safetensors.load_file(folders[kind] / "model.safetensors")
    torch.manual_seed(1)
    inputs = torch.randn(100, 16, 64, dtype=torch.float64)
    for name, (cut, cut_input, apart) in FORMATS.items():
        expected = 0.0
        for x in inputs:
            right = by_hand(kind, weights, x)
            rounded = by_hand(kind, weights, x, cut, cut_input)
            expected += float((rounded - right).norm() / right.norm()) / len(inputs)
        assert errors.pop(name) == pytest.approx(expected, rel=apart), name
    (exact,) = errors.values()
    assert exact < 1e-5


def test_experts_that_are_stored_one_by_one_are_joined(
    folders: dict[str, Path],
) -> None:
    """Mixtral's w1, w3 and w2 are gate, up and down of each expert."""
    from ffnbench.models.weights import layer_weights

    stored = safetensors.load_file(folders["mixtral"] / "model.safetensors")
    begin = "model.layers.1.block_sparse_moe"
    state = layer_weights(str(folders["mixtral"]), 1)
    assert torch.equal(state["router.weight"], stored[f"{begin}.gate.weight"])
    for ours, theirs in {"gate": "w1", "up": "w3", "down": "w2"}.items():
        experts = [stored[f"{begin}.experts.{n}.{theirs}.weight"] for n in range(4)]
        assert torch.equal(state[f"experts.{ours}.weight"], torch.stack(experts))


def cost(folder: Path, *more: str) -> str:
    done = shell("compare", "--preset", str(folder), "--quick", *more)
    assert done.returncode == 2, done.stderr
    assert "hint:" in done.stderr
    return done.stderr


@pytest.mark.slow
def test_what_can_not_be_taken_is_one_line(folders: dict[str, Path], tmp_path) -> None:
    llama = folders["llama"]
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
    weights = safetensors.load_file(llama / "model.safetensors")
    name = "model.layers.0.mlp.up_proj.weight"
    safetensors.save_file(weights | {name: weights[name].to(torch.float8_e4m3fn)}, torn)
    assert f"{name} holds F8_E4M3" in cost(
        tmp_path, "--layer", "0", "--variants", "preset"
    )


@pytest.mark.slow
def test_a_baseline_of_a_layer_is_checked_where_its_weights_are_not_kept_yet(
    folders: dict[str, Path], tmp_path: Path
) -> None:
    """The cache of another machine is empty, and is filled again from the folder."""
    run = ("--seq-len", "16", "--workers", "5", "--rounds", "4", "-o", "a.json", "-q")
    variants = ("--layer", "1", "--variants", "preset,again=preset")
    done = shell(
        "compare", "--preset", str(folders["llama"]), *variants, *run, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    elsewhere = {"XDG_CACHE_HOME": str(tmp_path / "elsewhere")}
    done = shell(
        "check", "a.json", "--budget", "6s", "--tolerance", "500%",
        cwd=tmp_path, env=elsewhere,
    )  # fmt: skip
    assert "could not measure" not in done.stdout + done.stderr
    assert done.returncode == 0, done.stdout
