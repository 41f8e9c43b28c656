"""The weights of one layer of a published model, by the names of ffnbench's own form.
Needs torch, transformers and safetensors; the parent runs it as a process of its own.

Its class says how the tensors of a module are called, and the proof of its form
(ffn/proof.py) which of them are gate, up and down: no name is guessed.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ffnbench.common.errors import FfnbenchError
from ffnbench.models.read import (
    A_NUMBER,
    form_of,
    layers_of,
    module_of,
    open_model,
)

FLOATS = ("F64", "F32", "F16", "BF16")


def layer_weights(folder: str, number: int) -> dict[str, Tensor]:
    """The tensors of the FFN in the layer of that number, counted from 0, by the names
    of the form's module; raises FfnbenchError where the folder does not hold them, and
    for a form that is not proven.
    """
    data = json.loads(Path(folder, "config.json").read_text(encoding="utf-8"))
    opened = open_model(data)
    layers = layers_of(opened.model, opened.text)
    if not 0 <= number < len(layers):
        raise FfnbenchError(
            f"{folder!r} has no layer {number}",
            f"its layers with an FFN are 0 to {len(layers) - 1}",
        )
    load_numbered(opened.whole, folder, layers[number].number)
    layer = layers_of(opened.model, opened.text)[number]
    form, proofs = form_of(layer, opened.text)
    state = {}
    for part, proof in zip(layer.parts, proofs, strict=True):
        if form is None or proof is None:
            raise FfnbenchError(
                f"the form of {type(layer.module).__name__}'s FFN is not proven",
                "its class is a variant: package.module:Class",
            )
        tensors = dict(module_of(layer, part).named_parameters())
        if "*" in part.path:
            for name in part.shapes:
                of_all_experts = torch.stack(layer.parameters[name])
                tensors[name.removeprefix(f"{part.path}.")] = of_all_experts
        begin = ""
        if form.moe is not None:
            begin = "experts." if part.experts else "shared."
        for name, tensor in proof.of(tensors).items():
            state[begin + name] = tensor
    for name, shape in layer.loose.items():
        row = "shared_gate" if shape[0] == 1 else "router"
        kind = "bias" if len(shape) == 1 else "weight"
        state[f"{row}.{kind}"] = layer.parameters[name][0]
    for name, tensor in state.items():
        if tensor.is_meta:
            raise FfnbenchError(
                f"{folder!r} holds no {name} of layer {number}",
                "it must be a model as save_pretrained writes it",
            )
        state[name] = tensor.detach().float().contiguous()
    return state


def load_numbered(model: Any, folder: str, number: int) -> None:
    """Give the layers of that number their tensors from the safetensors of a folder, as
    from_pretrained does, which may join stored ones; all others stay empty.

    Raises FfnbenchError for a file that can't be read, and for matrices of integers or
    float8, which mean nothing without their scales.
    """
    from safetensors import SafetensorError, safe_open
    from transformers.conversion_mapping import get_model_conversion_mapping
    from transformers.core_model_loading import convert_and_load_state_dict_in_model
    from transformers.modeling_utils import LoadStateDictConfig

    files = sorted(Path(folder).glob("*.safetensors"))
    if not files:
        raise FfnbenchError(
            f"{folder!r} holds no safetensors",
            "give the folder of a model, with its weights",
        )
    stored = {}
    for file in files:
        try:
            opened = safe_open(file, framework="pt")
        except (OSError, SafetensorError) as problem:
            raise FfnbenchError(
                f"cannot read {str(file)!r}: {problem}", "download it again"
            ) from problem
        for name in opened.offset_keys():
            if A_NUMBER.findall(name)[:1] == [str(number)]:
                stored[name] = opened.get_slice(name)
    for name, part in stored.items():
        if part.get_dtype() not in FLOATS and len(part.get_shape()) > 1:
            raise FfnbenchError(
                f"{name} holds {part.get_dtype()}, which means nothing without its scales",
                "give the model as it was before it was quantised",
            )
    mapping = get_model_conversion_mapping(model)
    loading = LoadStateDictConfig(weight_mapping=mapping)
    convert_and_load_state_dict_in_model(model, stored, loading)


def write(folder: str, number: int, file: str) -> Mapping[str, str]:
    """Write the layer's weights to a file of torch's; say why not, for the parent."""
    try:
        state = layer_weights(folder, number)
    except FfnbenchError as problem:
        return {"error": problem.message, "hint": problem.hint}
    except ImportError:
        return {
            "error": "--layer needs safetensors, which is not installed",
            "hint": "pip install 'ffnbench[hf]'",
        }
    beside = f"{file}.{os.getpid()}"
    torch.save(state, beside)
    os.replace(beside, file)
    return {}


if __name__ == "__main__":
    print(json.dumps(write(sys.argv[1], int(sys.argv[2]), sys.argv[3])))
