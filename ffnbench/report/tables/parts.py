"""All parameters of a model by part: embeddings, attention, FFN, router, norms, head, and their sum."""

from __future__ import annotations

from ffnbench.jsonable import text_of
from ffnbench.models.model import WholeModel
from ffnbench.report.formats import View, view_of
from ffnbench.report.records import Record
from ffnbench.report.tables.table import UNKNOWN, Cell, Column, TextTable, percentage
from ffnbench.units import SI, quantity

SHOWN = {"ffn": "FFN"}  # where a part's name is written otherwise
ALWAYS = ("embeddings", "attention", "ffn", "norms", "head")  # the others are shown where a model has them


def parts_view(model: WholeModel) -> View:
    """The answer of `inspect --whole-model`."""
    return view_of(parts_table(model), lambda: parts_records(model), json=lambda: _json(model))


def parts_records(model: WholeModel) -> list[Record]:
    """One flat record a part, their sum last."""
    rows = [*model.parts.items(), ("all", model.params)]
    return [{"model": model.name, "part": name, "params": number, "share": _share(model, number),
             "params_active": _active(model, name, number), "counted_by": model.counted_by}
            for name, number in rows]  # fmt: skip


def parts_table(model: WholeModel, header: tuple[str, ...] = ()) -> TextTable:
    """One row a part; what is not known is a dash, and has no share in a sum that is not known either."""
    columns = [
        Column(title="part", left=True),
        Column(title="params", priority=1),
        Column(title="share", unit="of params", priority=0),
    ]
    if model.idle:
        columns.append(Column(title="active", unit="params/tok", priority=2))
    rows = [row for row in parts_records(model) if row["part"] in (*ALWAYS, "all") or row["params"] != 0]
    return TextTable(
        columns=tuple(columns),
        rows=tuple(_row(row)[: len(columns)] for row in rows),
        header=header or (f"Whole model: {model.name}, every parameter once",),
        footnotes=tuple(_notes(model)),
        summary=(in_words(model),),
    )


def _row(row: Record) -> tuple[Cell, ...]:
    name = row["part"]
    return (
        Cell(text=str(SHOWN.get(name, name)), value=name),
        _number(row["params"]),
        percentage(row["share"]),
        _number(row["params_active"]),
    )


def _number(value: int | None) -> Cell:
    return Cell(text=UNKNOWN if value is None else f"{value:,}", value=value)


def _share(model: WholeModel, number: int | None) -> float | None:
    return None if number is None or not model.params else number / model.params


def _active(model: WholeModel, name: str, number: int | None) -> int | None:
    """A token meets all of a part but the experts that it does not go to, which are the FFN's."""
    if number is None or model.idle is None:
        return None
    return number - model.idle if name in ("ffn", "all") else number


def _notes(model: WholeModel) -> list[str]:
    notes = [model.note] if model.note else []
    if model.head == 0 and model.embeddings:
        notes.append("the head has no matrix of its own")
    if model.router:
        notes.append("router: that of all layers with experts, which FFN leaves out here")
    if model.untold:
        notes.append(
            f"other: {model.untold:,} of them stand in layers under names that tell no part, and may be an FFN's"
        )
    if unknown := _unknown(model):
        notes.append(f"{', '.join(unknown)}: not known for this model; with transformers installed `inspect` counts it")
    return [*notes, f"counted by {model.counted_by}", f"source: {model.source}"]


def _unknown(model: WholeModel) -> list[str]:
    return [SHOWN.get(name, name) for name, number in model.parts.items() if number is None]


def in_words(model: WholeModel) -> str:
    """`FFNs hold 81% of 8.03 G parameters`."""
    if model.params is None:
        return f"FFNs hold {quantity(model.ffn, SI)} parameters; those of the whole model are not known"
    active = f", {quantity(model.active, SI)} of them active for a token" if model.idle and model.active else ""
    share = f"{100 * model.ffn / model.params:.1f}%"
    if model.untold:
        share += f" to {100 * (model.ffn + model.untold) / model.params:.1f}%"
    return f"FFNs hold {share} of {quantity(model.params, SI)} parameters{active}"


def _json(model: WholeModel) -> str:
    data = {
        "model": model.name,
        "source": model.source,
        "counted_by": model.counted_by,
        "params": model.params,
        "params_active": model.active,
        "ffn_share": _share(model, model.ffn),
        "untold": model.untold,
        "parts": model.parts,
    }
    return text_of(data, 1) + "\n"
