"""Files of older versions as those of today: schema 1, notes without a kind, a method beside the plan."""

from __future__ import annotations

import re
from typing import Any

from ffnbench.plan import Kind, NoteKind
from ffnbench.result import SCHEMA

NAMELESS = 2  # the method of files whose protocol names none; method 1 is known by the lack of a seal
KINDS = {  # of notes by how they begin, in files from before notes had a kind
    r"ge(g)?lu is the exact erf form": NoteKind.NAME,
    r"the FFN of ": NoteKind.MODEL,
    r"the CPU's clock fell|another run of ffnbench|\d+ threads on \d+ real CPU": NoteKind.SEEN,
    r"one call is only|a sample lasts less than": NoteKind.SHORT,
    r"busy: ": NoteKind.BUSY,
    r"its workers disagree on the seconds": NoteKind.NOISE,
    r"the hypervisor gave|the clock of|the first round of a worker|within a worker everything": NoteKind.MOVES,
    r"[\d,]+ of [\d,]+ samples are left out|\d+ other process|this machine can't be trusted": NoteKind.NOISE,
}


def as_todays(data: Any) -> Any:
    """The data of a file of schema 1 or 2, as this version writes it. What does not fit raises KeyError or the like."""
    data = _from_schema_1(data) if data["schema"] == 1 else data
    beside = data.pop("method", NAMELESS)  # it stood beside the plan once, and nowhere before that
    data["plan"]["protocol"] = {"method": beside} | data["plan"]["protocol"]
    for run in (data, *(data.get("repeats") or ())):
        # until method 5 a worker moved its tensors now and then, and said so; until 6 a check measured suspects again
        run.pop("placed_once", None)
        (run.get("plan") or run)["protocol"].pop("reversed", None)
        for sample in run.get("samples") or ():
            sample.pop("placement", None)
    for note in (*(data["plan"].get("notes") or ()), *(data.get("warnings") or ())):
        kinds = (kind.value for start, kind in KINDS.items() if re.match(start, str(note.get("text"))))
        note.setdefault("kind", next(kinds, NoteKind.GENERAL.value))
    return data


def _from_schema_1(data: Any) -> Any:
    """Widths had their origin as a sentence, and a plan had no kind."""
    plan = data["plan"]
    block = any("heads" in case["ffn"] for case in plan["cases"])
    cases = [case | {"sizing": _sizing(case["sizing"], block)} for case in plan["cases"]]
    kind = Kind.BLOCK if block else Kind.COMPARE
    method = NAMELESS if data.get("seal") else 1  # the first method made files without a seal
    sides = [{"differing" if name == "facts" else name: value for name, value in side.items()}
             for side in data.get("sides", [])]  # fmt: skip
    new = {"schema": SCHEMA, "method": method, "sides": sides, "plan": plan | {"cases": cases, "kind": kind.value}}
    return data | new


def _sizing(text: str, block: bool) -> dict[str, Any]:
    """The origin of a width, from schema 1's words for it."""
    if text == "given":
        return {"how": "given"}
    if text == "given, and not read by the module":
        return {"how": "unread"}
    for how, before in (("matched", "matched on "), ("rule", "rule ")):
        if text.startswith(before):
            return {"how": how, "what": text.removeprefix(before)}
    if found := re.fullmatch(r"(\S+) \* d_model(?:, up to a multiple of (\d+))?", text):
        multiple = int(found[2]) if found[2] else None
        return {"how": "ratio", "ratio": float(found[1]), "multiple_of": multiple}
    if block:
        return {"how": "model", "what": text}
    raise ValueError(f"nobody knows where a width comes from that is {text!r}")
