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
    build_empty,
    group_of,
    language_part,
    layers_of,
    load_config,
    module_of,
    prove_part,
    read_layer,
    widths,
)


def layer_weights(folder: str, number: int) -> dict[str, Tensor]:
    """The tensors of the FFN in the layer of that number, counted from 0, by the names
    of the form's module; raises FfnbenchError where the folder does not hold them, and
    for a form that is not proven.
    """
    data = json.loads(Path(folder, "config.json").read_text(encoding="utf-8"))
    config = load_config(data)
    whole = build_empty(config)
    text, model, model_path = language_part(config, whole)
    layers = []
    for path, layer in layers_of(model):
        ffn = read_layer(layer, widths(text, layer))
        if ffn.parts:
            layers.append((path, layer, ffn))
    if not 0 <= number < len(layers):
        raise FfnbenchError(
            f"{folder!r} has no layer {number}",
            f"its layers with an FFN are 0 to {len(layers) - 1}",
        )
    path, layer, ffn = layers[number]
    group = group_of(path, layer, ffn, None, text)
    if group.ffn is None or group.read is None or not group.read.proven:
        raise FfnbenchError(
            f"the form of {type(layer).__name__}'s FFN is not proven",
            "its class is a variant: package.module:Class",
        )
    prefix = ".".join(filter(None, (model_path, path)))
    stored = _Stored(folder, whole.base_model_prefix)
    names_in_layer = {id(p): name for name, p in layer.named_parameters()}
    state: dict[str, Tensor] = {}
    for part in ffn.parts:
        proof = prove_part(layer, part, text)
        assert proof is not None
        tensors = {}
        for name, parameter in module_of(layer, part).named_parameters():
            tensors[name] = stored.get(f"{prefix}.{names_in_layer[id(parameter)]}")
        begin = ""
        if group.ffn.moe is not None:
            begin = "experts." if part.experts else "shared."
        for name, tensor in proof.of(tensors).items():
            state[begin + name] = tensor.float().contiguous()
    if group.ffn.moe is not None:
        for name, shape in ffn.loose.items():
            rows = "router" if shape[0] == group.ffn.moe.experts else "shared_gate"
            kind = "bias" if len(shape) == 1 else "weight"
            state[f"{rows}.{kind}"] = stored.get(f"{prefix}.{name}").float()
    return state


class _Stored:
    """The tensors of all safetensors files of a folder, by their names in the model or
    without the prefix of the bare one.
    """

    def __init__(self, folder: str, base_prefix: str) -> None:
        from safetensors import SafetensorError, safe_open

        self.folder, self.base_prefix = folder, base_prefix
        self._file_of: dict[str, Any] = {}
        for file in sorted(Path(folder).glob("*.safetensors")):
            try:
                opened = safe_open(file, framework="pt")
            except (OSError, SafetensorError) as problem:
                raise FfnbenchError(
                    f"cannot read {str(file)!r}: {problem}",
                    "download it again",
                ) from problem
            for name in opened.offset_keys():
                self._file_of[name] = opened
        if not self._file_of:
            raise FfnbenchError(
                f"{folder!r} holds no safetensors",
                "give the folder of a model, with its weights",
            )

    def get(self, name: str) -> Tensor:
        """The tensor of a parameter; raises FfnbenchError where it is not there or is
        of integers or float8, which mean nothing without their scales.
        """
        base = f"{self.base_prefix}."
        for spelling in (name, name.removeprefix(base), base + name):
            if spelling in self._file_of:
                tensor: Tensor = self._file_of[spelling].get_tensor(spelling)
                break
        else:
            raise FfnbenchError(
                f"{self.folder!r} holds no tensor {name}",
                "it must be a model as save_pretrained writes it",
            )
        if not tensor.is_floating_point() or tensor.dtype.itemsize < 2:
            dtype = str(tensor.dtype).removeprefix("torch.")
            raise FfnbenchError(
                f"{name} holds {dtype}, which means nothing without its scales",
                "give the model as it was before it was quantised",
            )
        return tensor


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
