"""Every type of the table beside transformers' own model of it: FFNs, attentions, all parameters."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterable

import hf
import pytest

from ffnbench.errors import FfnbenchError
from ffnbench.models.family_reader import families

ONE_OF_EACH_FAMILY = sorted({str(stacks): name for name, stacks in families().stacks.items()}.values())
COMPOSITES = ["clip", "gemma3", "llava", "qwen2_5_vl"]


def compared(types: Iterable[str], *, default_alone: bool) -> tuple[list[str], Counter[str]]:
    """What differs, and how many files were read, refused or such as no model can be built of."""
    pytest.importorskip("transformers").logging.set_verbosity(100)
    wrong, tally = [], Counter[str]()
    for model_type in types:
        for name, data in [("default", hf.default(model_type))] if default_alone else hf.varied(model_type):
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    said = hf.differences(name, data)
            except FfnbenchError:
                tally["refused"] += 1
                said = f"the default of {model_type} is refused" if name == "default" else ""
            except Exception:
                tally["unbuildable"] += 1
                said = f"the default of {model_type} can't be built" if name == "default" else ""
            else:
                tally["read"] += 1
            wrong += [said] if said else []
    return wrong, tally


def test_a_type_of_each_family_is_as_transformers_builds_it() -> None:
    wrong, tally = compared([*ONE_OF_EACH_FAMILY, *COMPOSITES], default_alone=True)
    assert wrong == []
    assert tally["read"] > 60


@pytest.mark.slow
def test_every_type_with_every_key_changed_turned_and_left_out() -> None:
    wrong, tally = compared(families().types, default_alone=False)
    assert wrong == []
    assert tally["read"] > 1500, tally


@pytest.mark.slow
def test_defaults_are_those_of_transformers() -> None:
    transformers = pytest.importorskip("transformers")
    for model_type, values in families().defaults.items():
        config = transformers.CONFIG_MAPPING[model_type]()
        assert {key: getattr(config, key, True) for key in values} == values, model_type


# in the tail, or with switches that the table leaves to it; worked out by hand from papers and classes
BUILT = [
    ({"model_type": "jetmoe", "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
      "num_local_experts": 6}, 2 * (6 * (3 * 32 * 48 + 32) + 32)),
    ({"model_type": "albert", "hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4}, 2 * 64 * 96 + 160),
    ({"model_type": "mobilebert", "num_hidden_layers": 3}, 3 * 4 * (2 * 128 * 512 + 640)),
    ({"model_type": "lxmert"}, (9 + 5 + 2 * 5) * (2 * 768 * 3072 + 3840)),
    ({"model_type": "wav2vec2-bert", "num_hidden_layers": 3}, 3 * 2 * (2 * 1024 * 4096 + 5120)),
    ({"model_type": "recurrent_gemma", "num_hidden_layers": 3, "hidden_size": 64, "intermediate_size": 192,
      "num_attention_heads": 4, "lru_width": 64}, 3 * (3 * 64 * 96 + 2 * 96 + 64)),
    ({"model_type": "qwen3_omni_moe_vision_encoder", "depth": 2}, 2 * (2 * 1152 * 4304 + 4304 + 1152)),
    ({"model_type": "swin", "embed_dim": 96, "depths": [2, 2, 6, 2]},  # twice as wide from stage to stage
     2 * 74_208 + 2 * 295_872 + 6 * 1_181_568 + 2 * 4_722_432),
    ({"model_type": "t5", "architectures": ["T5EncoderModel"], "num_layers": 3}, 3 * 2 * 512 * 2048),
]  # fmt: skip


@pytest.mark.parametrize(("config", "params"), BUILT, ids=[config["model_type"] for config, _ in BUILT])
def test_every_ffn_of_a_layer_is_counted_by_names_and_nothing_else(tmp_path, config: dict, params: int) -> None:
    pytest.importorskip("transformers")
    from ffnbench.models.transformers import count_layers

    assert sum(layers.count * layers.params for layers in count_layers(hf.written(tmp_path, config)).layers) == params


@pytest.mark.parametrize("kind", ["zamba", "sam2_hiera_det_model"])
def test_what_is_left_over_in_a_layer_refuses_the_model_by_name(kind: str) -> None:
    pytest.importorskip("transformers")
    from ffnbench.models.transformers import count_layers

    left = {"zamba": "linear", "sam2_hiera_det_model": "proj"}[kind]
    with pytest.raises(FfnbenchError, match=rf"under names that nobody declared: .*{left}"):
        count_layers(kind)


@pytest.mark.parametrize("model_type", ["mixtral", "qwen2_moe", "deepseek_v3", "gpt_oss", "jamba", "llama4_text"])
def test_the_router_tells_what_the_closed_form_does(model_type: str) -> None:
    pytest.importorskip("transformers")
    from transformers import CONFIG_MAPPING

    from ffnbench.ffn import cost
    from ffnbench.models.configs import read_groups
    from ffnbench.models.transformers import active_params, build_empty, feed_forwards

    config = CONFIG_MAPPING[model_type](num_hidden_layers=4)
    built = Counter((found.params, active_params(found)) for found in feed_forwards(build_empty(config)))
    read: Counter[tuple[int, int | None]] = Counter()
    for group in read_groups(config.to_dict()):
        read[cost.params(group.ffn), cost.params_active(group.ffn)] += group.count
    assert built == read
