"""What a preset, or a config.json, has beside its FFNs and the matrices of its attentions, by the table beside.toml."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from ffnbench.extras.models.beside import Beside, HeadNorms, Rest
from ffnbench.models.configs import nested_of, readers, times_of, type_of
from ffnbench.models.family_reader import Config, Reader, Row, by_stack, by_type, families
from ffnbench.models.model import ModelSpec

FILE = Path(__file__).with_name("beside.toml")


@dataclass(frozen=True, slots=True, kw_only=True)
class BesideTable:
    """The rows, one a stack of layers: by model type, and by the key of a preset. `notes` are on presets."""

    types: Mapping[str, tuple[Row, ...]]
    presets: Mapping[str, tuple[Row, ...]]
    notes: Mapping[str, str]


@cache
def table() -> BesideTable:
    """The table, read at the first call."""
    import tomllib  # not before it is needed

    data = tomllib.loads(FILE.read_text(encoding="utf-8"))
    return BesideTable(
        types=by_type("rest", data["rest"], data),
        presets={key: by_stack("rest", row, data) for key, row in data["preset"].items()},
        notes=data["note"],
    )


def note_on(model: ModelSpec) -> str:
    """What is odd in what a preset has beside its layers; or nothing."""
    return "" if model.config is not None else table().notes.get(model.key, "")


def layers_beside(model: ModelSpec) -> list[Beside | None]:
    """What a layer of each kind has, in the order of the kinds; None where it is not known."""
    if model.config is not None:
        return _layers_of(dict(model.config))
    found = [_layer(reader, row) for reader, row in _stacks_of(model)]
    return found * len(model.groups) if len(found) == 1 else found


def rest_beside(model: ModelSpec) -> tuple[Rest, ...] | None:
    """What the stacks of a model have beside their layers; None where it is not known."""
    if model.config is not None:
        return _rest_of(dict(model.config))
    return _all_known([_rest(reader, row) for reader, row in _stacks_of(model)])


def _stacks_of(preset: ModelSpec) -> list[tuple[Reader, Row | None]]:
    """A preset's rows, whose values are numbers or keys of the row's own `config`."""
    width = {"d_model": preset.main.ffn.d_model}
    rows: tuple[Row | None, ...] = table().presets.get(preset.key, (None,))
    return [(Reader(config=(row or {}).get("config", {}), model_type=preset.key, stack=width), row) for row in rows]


def _of_type(config: Config, model_type: str) -> list[tuple[Reader, Row | None]]:
    """A reader for each stack of a model type that is no composite, with its row of the table."""
    stacks = readers(config, model_type)
    rows = table().types.get(model_type) or (None,) * len(stacks)
    return list(zip(stacks, rows, strict=True))


def _layers_of(config: Config) -> list[Beside | None]:
    """In the order of `configs.read_groups`."""
    model_type = type_of(config)
    if model_type in families().composites:
        return [layer for part in nested_of(config, model_type).values() for layer in _layers_of(part)]
    stacks = _of_type(config, model_type)
    times = times_of(config, model_type) or (1,) * len(stacks)
    found: list[Beside | None] = []
    for (reader, row), count in zip(stacks, times, strict=True):
        if count:
            found += [_layer(reader, row)] * len(reader.groups())
    return found


def _rest_of(config: Config) -> tuple[Rest, ...] | None:
    model_type = type_of(config)
    if model_type in families().composites:
        return _rest_of_parts(config, model_type)
    found = [_rest(reader, row) for reader, row in _of_type(config, model_type)]
    return None if times_of(config, model_type) else _all_known(found)


def _all_known(found: list[Rest | None]) -> tuple[Rest, ...] | None:
    return None if None in found else tuple(filter(None, found))


def _layer(reader: Reader, row: Row | None) -> Beside | None:
    """What each layer of a stack has; None where there is no row, or the config does not tell it."""

    def read(keys: Row) -> Beside:
        return Beside(
            norms=keys["norms"],
            norm_bias=keys["norm_bias"],
            head_norms=HeadNorms(keys["head_norms"] if reader.switch(keys["head_normed"]) else "none"),
            sinks=keys["sinks"],
            buckets=reader.count(keys["buckets"], least=0),
            buckets_in_each=keys["buckets_in_each"],
        )

    return reader.known(row, read)


def _rest(reader: Reader, row: Row | None) -> Rest | None:
    """What a stack has outside its layers; None where there is no row, or the config does not tell it."""

    def read(keys: Row) -> Rest | None:
        width = reader.count(reader.stack["d_model"])
        if any(reader.get(key) not in (None, width) for key in keys.get("equal", ())):
            return None
        positions, rows = reader.count(keys["positions"], least=0), reader.count(keys["token_types"], least=0)
        patch = reader.count("patch_size") if keys["patches"] else 0
        squares = (reader.count("image_size") // patch) ** 2 if patch else 0
        return Rest(
            width=width,
            vocab=reader.count(keys["vocab"], least=0),
            rows=squares + positions + keys["more_positions"] + rows + 2 * keys["tokens"],
            patches=(reader.count("num_channels") * patch**2 + keys["patch_bias"]) * width if patch else 0,
            norms=keys["outer_norms"],
            norm_bias=keys["norm_bias"],
            output=keys["head"] == "output" and not reader.switch(keys["tied"]),
            pooler=keys["head"] == "pooler",
        )

    return reader.known(row, read)


def _rest_of_parts(config: Config, model_type: str) -> tuple[Rest, ...] | None:
    """What the parts of a composite have beside their layers, and what stands between them."""
    if model_type not in BETWEEN:
        return None
    text, vision = (_rest_of(part) for part in nested_of(config, model_type).values())
    if text is None or vision is None or config.get("tie_word_embeddings", not text[0].output) == text[0].output:
        return None
    more = BETWEEN[model_type](config, text[0].width, vision[0].width)
    return None if more is None else (*text, *vision, Rest(width=0, norms=0, other=more))


def _projections(config: Config, text: int, vision: int) -> int | None:
    """CLIP: each part's vector to a common width, and the scale of their likeness."""
    width = config.get("projection_dim", 512)
    return width * (text + vision) + 1 if isinstance(width, int) else None


def _two_layers(config: Config, text: int, vision: int) -> int | None:
    """LLaVA: from the image's width to the text's, with biases."""
    plain = config.get("multimodal_projector_bias", True) is True and isinstance(
        config.get("vision_feature_layer", -2), int
    )
    return (vision + 1) * text + (text + 1) * text if plain else None


# parameters between the parts of a composite, by the widths of text and vision; None is not known
BETWEEN: dict[str, Callable[[Config, int, int], int | None]] = {
    "clip": _projections,
    "gemma3": lambda config, text, vision: vision * (text + 1),  # a matrix, and a norm before it
    "llava": _two_layers,
}
