"""How a constructor's arguments are found by name. Signatures are those of the
ecosystem's modules.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from ffnbench.app.python import build
from ffnbench.common.errors import FfnbenchError
from ffnbench.common.targets import resolve
from ffnbench.ffn.imported import match_arguments
from ffnbench.ffn.spec import ImportedSpec


def spec(**arguments: object) -> ImportedSpec:
    return ImportedSpec(
        target="a.b:C", d_model=8, d_ff=24, arguments=tuple(arguments.items())
    )


def timm_mlp(in_features, hidden_features=None, out_features=None, bias=True): ...
def llama_feed_forward(dim, hidden_dim, multiple_of=256, ffn_dim_multiplier=None): ...
def torch_encoder_layer(d_model, nhead=8, dim_feedforward=2048, dropout=0.1): ...
def hf_gpt2_mlp(intermediate_size, config): ...
def hf_llama_mlp(config): ...
def opt_like(embed_dim, ffn_dim): ...
def strange(width, factor): ...


@pytest.mark.parametrize(
    ("factory", "expected"),
    [
        (timm_mlp, {"in_features": 8, "hidden_features": 24}),
        (llama_feed_forward, {"dim": 8, "hidden_dim": 24}),
        (torch_encoder_layer, {"d_model": 8, "dim_feedforward": 24}),
        (opt_like, {"embed_dim": 8, "ffn_dim": 24}),
    ],
)
def test_widths_go_where_the_names_say(factory, expected: dict) -> None:
    assert match_arguments(factory, spec()) == expected


def test_a_config_has_the_widths_and_the_keys_of_the_variant() -> None:
    config = match_arguments(hf_llama_mlp, spec(mlp_bias=False))["config"]
    assert (config.hidden_size, config.intermediate_size) == (8, 24)
    assert (config.hidden_act, config.mlp_bias) == ("silu", False)
    with pytest.raises(FfnbenchError, match="pretraining_tp") as refused:
        _ = config.pretraining_tp
    assert "@pretraining_tp=VALUE" in refused.value.hint
    assert "def make(d_model, d_ff)" in refused.value.hint
    assert getattr(config, "pretraining_tp", 1) == 1
    both = match_arguments(hf_gpt2_mlp, spec())
    assert (both["intermediate_size"], both["config"].hidden_size) == (24, 8)


def test_what_has_other_names_needs_a_factory_of_two_lines() -> None:
    with pytest.raises(FfnbenchError, match="needs 'width'") as refused:
        match_arguments(strange, spec())
    assert "def make(d_model, d_ff): return" in refused.value.hint


def test_two_checkouts_keep_their_own_neighbours(tmp_path) -> None:
    """v1/mlp.py and v2/mlp.py both import kern: each gets its own, and one file is run
    once.
    """
    for version in (1, 2):
        folder = tmp_path / f"v{version}"
        folder.mkdir()
        (folder / "kern.py").write_text(f"VERSION = {version}\n")
        (folder / "mlp.py").write_text(
            "import kern\ndef make(d_model, d_ff): return kern.VERSION\n"
        )
        (folder / "other.py").write_text(
            "import kern\ndef same(d_model, d_ff): return kern\n"
        )
    one, two = (resolve(f"{tmp_path}/v{version}/mlp.py:make") for version in (1, 2))
    assert (one(1, 1), two(1, 1)) == (1, 2)
    assert resolve(f"{tmp_path}/v1/mlp.py:make") is one
    assert resolve(f"{tmp_path}/v1/other.py:same")(1, 1).VERSION == 1


def test_weights_of_eight_bits_are_counted_as_what_they_are(tmp_path) -> None:
    """A module that declares its weights as integers is not held to reading them as
    float32.
    """
    from ffnbench.plan.plan import Workload
    from ffnbench.worker.probe_jobs import count

    (tmp_path / "q.py").write_text(
        "import torch\n"
        "from torch import nn\n"
        "class Q(nn.Module):\n"
        "    def __init__(self, d_model, d_ff):\n"
        "        super().__init__()\n"
        "        make = lambda *s: nn.Parameter(torch.ones(s, dtype=torch.int8), requires_grad=False)\n"
        "        self.up, self.down = make(d_ff, d_model), make(d_model, d_ff)\n"
        "        self.scale = nn.Parameter(torch.ones(d_model))\n"
        "    def forward(self, x):\n"
        "        return (x @ self.up.to(x.dtype).T @ self.down.to(x.dtype).T) * self.scale\n"
    )
    q = ImportedSpec(target=f"{tmp_path}/q.py:Q", d_model=8, d_ff=16)
    work = Workload(
        batch=1, seq_len=4, dtype="float32", device="cpu", mode="forward", threads=1
    )
    assert count(q, work).weight_bytes == 2 * 8 * 16 + 4 * 8


def test_code_that_wants_its_own_config_is_told_the_next_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And no name of a class that it never wrote."""
    (tmp_path / "mine.py").write_text(
        "import torch\n"
        "class M(torch.nn.Module):\n"
        "    def __init__(self, config):\n"
        "        self.width = config['hidden_size']\n"
    )
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FfnbenchError) as caught:
        build("mine.py:M", d_model=64)
    assert "StandIn" not in caught.value.message
    assert "def make(d_model, d_ff)" in caught.value.hint
