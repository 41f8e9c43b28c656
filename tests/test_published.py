"""Models as variants: --preset, --config, a preset's name, hf:CONFIG, and whether there is room for them."""

from __future__ import annotations

import json

import pytest
from conftest import ffnbench
from hf import written

from ffnbench.errors import FfnbenchError
from ffnbench.ffn.spec import FFNSpec, Gate, HFSpec
from ffnbench.models.model import OwnMLP
from ffnbench.models.presets import PRESETS, as_text
from ffnbench.plan import NoProbe, cost_of
from ffnbench.planning.compare import plan_compare
from ffnbench.planning.variant_text import parse_variant
from ffnbench.request import CompareRequest
from ffnbench.run.what_fits import check_fits, memory_needed

GATED = FFNSpec(d_model=64, d_ff=96, activation="silu", gate=Gate.INNER)


class Probe(NoProbe):
    def own_mlp(self, target: str) -> OwnMLP:
        return OwnMLP(name="TinyMLP", d_model=64, d_ff=96, form=GATED)


def ffns(**options: object) -> dict[str, FFNSpec]:
    """By label, of a model's row without its form."""
    return {case.label.partition(" (")[0]: case.ffn for case in plan_compare(CompareRequest(**options)).cases}


def test_the_preset_is_the_reference_that_others_are_matched_to() -> None:
    found = ffns(preset="llama3-8b", variants="preset,geglu,relu2")
    assert found["llama3-8b"] == PRESETS.get("llama3-8b").main.ffn
    assert (found["geglu"].d_model, found["geglu"].d_ff, found["relu2"].d_ff) == (4096, 14336, 21504)


def test_the_preset_stands_first_where_nobody_names_it() -> None:
    plan = plan_compare(CompareRequest(preset="gpt2", variants="relu,swiglu"))
    assert [case.label for case in plan.cases] == ["gpt2 (gelu_tanh)", "relu", "swiglu"]
    assert plan.reference == "gpt2 (gelu_tanh)"
    assert all(case.ffn.bias for case in plan.cases)
    labelled = plan_compare(CompareRequest(preset="gpt2", variants="relu,theirs=preset@dtype=bf16"))
    assert [case.label for case in labelled.cases] == ["relu", "theirs"]


def test_a_name_is_a_variant_and_keys_go_on_top() -> None:
    assert ffns(variants="gpt2")["gpt2"].bias
    changed = ffns(variants="gpt2@bias=false@d_ff=1000")["gpt2@bias=false@d_ff=1000"]
    assert (changed.d_model, changed.d_ff, changed.bias, changed.activation) == (768, 1000, False, "gelu_tanh")
    assert ffns(variants="llama-7b@rule=classic", match="none")["llama-7b@rule=classic"].d_ff == 4 * 4096


@pytest.mark.parametrize("key", [k for k in PRESETS.names() if PRESETS.get(k).main.ffn.moe is None])
def test_a_preset_written_as_text_is_the_same_ffn(key: str) -> None:
    spec = PRESETS.get(key).main.ffn
    variant = parse_variant(key)
    text = as_text(spec, variant.spec_keys)
    assert ffns(variants=text, d_model=spec.d_model)[text] == ffns(variants=key)[key] == spec


def test_a_config_is_a_variant_that_can_be_typed_again(tmp_path) -> None:
    (tmp_path / "config.json").write_text(
        json.dumps({"model_type": "qwen2", "hidden_size": 512, "intermediate_size": 1408, "num_hidden_layers": 2}
                   | {"hidden_act": "silu"})
    )  # fmt: skip
    plan = plan_compare(CompareRequest(preset=str(tmp_path), variants="config,relu"))
    assert (plan.cases[0].ffn.d_model, plan.cases[0].ffn.d_ff, plan.cases[0].ffn.name) == (512, 1408, "swiglu")
    assert plan.cases[0].variant == "silu_glu@d_ff=1408@bias=false"


@pytest.mark.parametrize(
    ("options", "message", "hint"),
    [
        ({"preset": "gtp2"}, "'gtp2' is neither a preset nor a file", "did you mean 'gpt2'"),
        ({"variants": "gtp2"}, "unknown variant 'gtp2'", "did you mean 'gpt2'"),
        ({"variants": "gpt2,llama-7b"}, "different d_model: gpt2 768, llama-7b 4,096", "one width"),
        ({"preset": "gpt2", "d_model": 512}, "--d-model 512 is not the width of gpt2, 768", "leave"),
        ({"preset": "x.json"}, "cannot read 'x.json'", "config.json"),
        ({"variants": "preset,relu"}, "unknown variant 'preset'", "list variants"),
        ({"preset": "gpt2", "d_ff": 100}, "--d-ff sets the width of the reference", "another"),
        ({"variants": "gpt2@widht=3"}, "unknown key 'widht'", "keys"),
    ],
)
def test_mistakes_have_a_hint(options: dict, message: str, hint: str) -> None:
    with pytest.raises(FfnbenchError, match=message) as caught:
        plan_compare(CompareRequest(**options))
    assert hint in caught.value.hint


def test_hf_brings_its_widths_and_its_form() -> None:
    plan = plan_compare(CompareRequest(variants="hf:tiny,swiglu"), probe_that_counts())
    assert plan.cases[0].ffn == HFSpec(target="hf:tiny", d_model=64, d_ff=96, form=GATED)
    assert plan.cases[1].ffn.d_model == 64
    with pytest.raises(FfnbenchError, match="can't change it"):
        plan_compare(CompareRequest(variants="hf:tiny@d_ff=3"), Probe())


def probe_that_counts() -> Probe:
    from ffnbench.ffn.cost import cost

    probe = Probe()
    probe.count = lambda spec, workload: cost(GATED, tokens=1, dtype="float32", train=False, device="cpu")
    return probe


def test_room_is_the_weights_and_the_dearest_call() -> None:
    plan = plan_compare(CompareRequest(variants="a=relu,b=relu", d_model=64, d_ff=256, seq_len=8, device="cpu"))
    weights, inputs = 2 * 2 * 64 * 256 * 4, 2 * 2 * 8 * 64 * 4
    peak = cost_of(plan.cases[0], NoProbe()).peak_bytes
    assert memory_needed(list(plan.cases)) == weights + inputs + 8 * 64 * 256 + peak  # one matrix in float64
    check_fits(plan, 10**9)
    check_fits(plan, None)
    with pytest.raises(
        FfnbenchError, match=r"needs .* MiB|needs .* KiB of memory, and 256 KiB are available"
    ) as caught:
        check_fits(plan, 2**18)
    assert "--dtype bfloat16" in caught.value.hint


def test_models_of_transformers_have_a_form_of_ours() -> None:
    pytest.importorskip("transformers")
    from ffnbench.models.own_mlp import own_mlp

    for target in ("hf:gpt2", "hf:llama", "hf:t5", "hf:modernbert", "hf:clip_vision_model"):
        own = own_mlp(target)
        assert own.form is not None, target
        assert (own.d_model, own.d_ff) == (own.form.d_model, own.form.d_ff)
    with pytest.raises(FfnbenchError, match="'lama' is neither a preset nor a file"):
        own_mlp("hf:lama")
    with pytest.raises(FfnbenchError, match="BertLayer has its FFN without a class of its own"):
        own_mlp("hf:bert")


def test_an_mlp_of_transformers_is_built_with_its_own_shapes_and_is_ours_on_its_weights(tmp_path) -> None:
    """GPT-2's transposed weights, with another activation than its class's default."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("transformers")
    from ffnbench.models.own_mlp import as_ours, build_own, own_mlp

    config = {"model_type": "gpt2", "n_embd": 32, "n_head": 2, "n_layer": 2, "activation_function": "relu"}
    target = f"hf:{written(tmp_path, config)}"
    theirs, form = build_own(target).eval(), own_mlp(target).form
    assert (form.d_model, form.d_ff, form.activation, form.bias) == (32, 128, "relu", True)
    x = torch.randn(5, 32, generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        assert torch.allclose(as_ours(theirs, form, x)(x), theirs(x), atol=1e-6)


@pytest.mark.slow
def test_hf_runs_beside_ours_and_is_held_against_it(tmp_path) -> None:
    """GPT-2's transposed weights, with another activation than its class's default; a mixture's own routing."""
    pytest.importorskip("transformers")
    gpt2 = {"model_type": "gpt2", "n_embd": 32, "n_head": 2, "n_layer": 2, "activation_function": "relu"}
    qwen = {
        "model_type": "qwen2_moe", "hidden_size": 32, "intermediate_size": 64, "moe_intermediate_size": 16,
        "shared_expert_intermediate_size": 24, "num_experts": 8, "num_experts_per_tok": 2, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "hidden_act": "silu", "norm_topk_prob": False,
    }  # fmt: skip
    for name, config in (("gpt2", gpt2), ("qwen", qwen)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(json.dumps(config))
    done = ffnbench(
        "compare", "--variants", f"hf=hf:{tmp_path}/gpt2,moe=hf:{tmp_path}/qwen,relu@bias=true", "--seq-len", "16",
        "--workers", "3", "--rounds", "1", "--format", "json", "--metrics", "latency", "-q",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["failures"] == []
    first, second = (case["ffn"]["form"] for case in report["plan"]["cases"][:2])
    assert (first["activation"], second["moe"]["shared_gate"]) == ("relu", True)
    cost = next(each["cost"] for each in report["costs"] if each["case"] == "moe")
    experts, shared, router = 3 * 32 * 16, 3 * 32 * 24 + 32, 8 * 32
    assert (cost["params"], cost["params_active"]) == (8 * experts + shared + router, 2 * experts + shared + router)
