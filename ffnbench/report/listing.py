"""The tables of `list` and `env`: what there is to choose from, and what this machine
is and can do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ffnbench.common.errors import FfnbenchError
from ffnbench.common.jsonable import encode
from ffnbench.common.names import hint_for
from ffnbench.common.units import IEC, quantity
from ffnbench.ffn.activations import ACTIVATIONS
from ffnbench.ffn.cost import FORMULA, params
from ffnbench.ffn.spec import (
    GATED,
    GATED_BY_ACTIVATION,
    Gate,
    GatedName,
)
from ffnbench.models.presets import PRESETS
from ffnbench.plan.keys import KEYS
from ffnbench.record.hardware import hardware_records
from ffnbench.record.messages import DeviceFacts
from ffnbench.record.result import Environment
from ffnbench.report.table import Column, Row, Table

# the units of an environment's fields by the end of their names; bytes get a prefix
# columns of prose, which may be wrapped
WRAPPED_COLUMNS = (
    "aliases",
    "source",
    "value",
    "note",
    "what it sets",
)
# what stands below a list
LIST_NOTES = {
    "variants": (
        "up is W_up x, gate is W_gate x; keys change a form (swiglu@bias=true): `ffnbench list keys`",
        *(row.note for row in GATED if not row.is_plain),
        "experts have keys of their own: @shared=512 @shared_gate=true @router_bias=true @scores=sigmoid "
        "@normalised=false @routed_scale=2.5 @groups=8x4 @experts=grouped @routing=skewed",
    ),
    "keys": (
        "a flag of the same name (--dtype) sets it for all variants; a key (swiglu@dtype=bf16) overrides it",
        "any other key is passed to the constructor of your own code",
        "d_model is no key: --d-model 512,1024 applies to all variants",
    ),
    "presets": (
        "the FFN of the commonest kind of layer; params of one layer, with all experts",
    ),
    "hardware": (
        "TFLOP/s of dense products, float32 without TF32, at that clock",
        "rows of your own: `--hardware mine.toml` with [mine], tflops_float32 = 20, gb_per_s = 300",
        "addresses and notes: `ffnbench list hardware --json`",
    ),
}


def variants() -> list[Row]:
    """Every name of a form, classic and gated."""
    classic, gated = FORMULA[Gate.NONE], FORMULA[Gate.INNER]
    rows = [
        (each.name, f"down({each.name}(up))", classic, ", ".join(each.aliases))
        for each in ACTIVATIONS
    ]
    rows += [
        (each.name, _gated_form(each), gated, ", ".join(_gated_aliases(each)))
        for each in GATED
    ]
    rows += [
        (f"{each.name}_glu", f"down({each.name}(gate) * up)", gated, "")
        for each in ACTIVATIONS
        if each.name not in GATED_BY_ACTIVATION and f"{each.name}_glu" not in GATED
    ]
    rows += [
        ("X@gate=output", "down(act(up)) * gate", FORMULA[Gate.OUTPUT], ""),
        ("X@moe=8x2", "2 of 8 experts, each an X", "8*X + 8*d", ""),
        ("pkg.mod:Class", "your own class or factory", "counted", "file.py:factory"),
        ("file.py:M@like=X", "your own, compared with X", "counted", ""),
    ]
    keys = ("name", "form", "params", "aliases")
    return [dict(zip(keys, row, strict=True)) for row in rows]


def _gated_aliases(row: GatedName) -> list[str]:
    aliases = list(row.aliases)
    if row.is_plain:
        aliases.insert(0, f"{row.activation.activation}_glu")
    return aliases


def _gated_form(row: GatedName) -> str:
    up = "up" if row.up is None else f"{row.up.activation}(up)"
    hidden = f"{row.activation.activation}(gate) * {up}"
    if row.subnorm is not None:
        hidden = f"{row.subnorm}({hidden})"
    return f"down({hidden})"


def presets() -> list[Row]:
    """Every published model: the FFN of its commonest kind of layer, the number of its
    layers, and the source of these numbers.
    """
    rows = []
    for model in PRESETS:
        ffn = model.main.form
        row: Row = {
            "name": model.key,
            "FFN": ffn.form_name,
            "d_model": ffn.d_model,
            "d_ff": ffn.d_ff,
            "params": params(ffn),
            "experts": f"{ffn.moe.experts}x{ffn.moe.top_k}" if ffn.moe else "",
            "layers": sum(group.count for group in model.groups),
            "source": model.source,
            "note": model.note,
        }
        rows.append(row)
    return rows


def keys() -> list[Row]:
    """Every key of a variant."""
    return [
        {
            "name": key.name,
            "default": key.default,
            "what it sets": key.meaning,
            "example": f"@{key.name}={key.value}",
            "of": key.of,
        }
        for key in KEYS
    ]


LISTINGS: dict[str, Callable[[], list[Row]]] = {
    "variants": variants,
    "keys": keys,
    "presets": presets,
    "hardware": hardware_records,
}


def environment_rows(environment: Environment) -> list[Row]:
    """One record for each known fact of the environment, with its unit."""
    return [
        _fact(name, value)
        for name, value in encode(environment).items()
        if value is not None
    ]


def _fact(name: str, value: object) -> Row:
    """The record of a field: of `memory_bytes` the fact `memory`, `16.0 GiB`."""
    text = str(value)
    if name.endswith("_bytes") and isinstance(value, int):
        text = quantity(value, IEC)
    return {"fact": name.removesuffix("_bytes").replace("_", " "), "value": text}


def device_records(devices: str, gpu: DeviceFacts) -> list[Row]:
    """The devices, the free memory of the GPU, and why NVML can't be read, if so."""
    free = gpu.gpu_free_bytes
    shown = {
        "devices": devices,
        "gpu memory free": quantity(free, IEC) if free else None,
        "NVML": gpu.nvml_missing,
    }
    return [
        {"fact": name, "value": str(value)}
        for name, value in shown.items()
        if value not in ("", None)
    ]


def workers_record(forks: bool) -> Row:
    """The record that says how workers are started here."""
    value = "one interpreter each: torch can't be forked here"
    if forks:
        value = "forked"
    return {"fact": "workers", "value": value}


def listing(what: str) -> Table:
    """The list that is called `what`; raises FfnbenchError where there is none."""
    if what not in LISTINGS:
        raise FfnbenchError(
            f"there is no list {what!r}",
            hint_for(what, LISTINGS, "lists: " + ", ".join(LISTINGS)),
        )
    return table_of_facts(LISTINGS[what](), LIST_NOTES.get(what, ()))


def table_of_facts(rows: Sequence[Row], below: Sequence[str] = ()) -> Table:
    """The table of rows whose prose may be wrapped, with these lines below it. The
    columns are left out from the last one on where the width is short.
    """
    columns = [
        Column(
            key,
            left=not isinstance(value, int),
            priority=rank,
            prose=key in WRAPPED_COLUMNS,
        )
        for rank, (key, value) in enumerate(rows[0].items())
    ]
    return Table(columns=tuple(columns), rows=rows, summary=below)
