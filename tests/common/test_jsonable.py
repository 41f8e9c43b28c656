from __future__ import annotations

import json
import math
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ffnbench.common import jsonable
from ffnbench.record.result import Estimate, Failure, FailureKind


@dataclass(frozen=True)
class Box:
    content: bool


@dataclass(frozen=True)
class Shelf:
    box: int | Box
    kind: FailureKind = FailureKind.OOM


FINITE = st.floats(-9e18, 9e18)
WHOLE = st.integers(-(2**62), 2**62)
JSON = st.recursive(
    st.none() | st.booleans() | WHOLE | FINITE | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=15,
)
OURS = (
    st.builds(
        Failure, case=st.text(), kind=st.sampled_from(FailureKind), message=st.text()
    )
    | st.builds(
        Estimate,
        value=FINITE,
        low=FINITE | st.none(),
        high=FINITE | st.none(),
        workers=st.integers(0, 99),
    )
    | st.builds(
        Shelf,
        box=WHOLE | st.builds(Box, st.booleans()),
        kind=st.sampled_from(FailureKind),
    )
)


@given(JSON)
def test_what_is_written_is_read_as_it_was(value: object) -> None:
    assert (
        jsonable.parse(jsonable.json_text(value))
        == json.loads(json.dumps(value))
        == value
    )


@given(OURS)
def test_what_is_encoded_is_decoded_as_it_was(
    value: Failure | Estimate | Shelf,
) -> None:
    assert (
        jsonable.decode(
            type(value), jsonable.parse(jsonable.json_text(jsonable.encode(value)))
        )
        == value
    )


@pytest.mark.parametrize(
    ("kind", "data", "says"),
    [
        (Estimate, {"value": "1"}, "Estimate.value"),
        (Estimate, {"value": 1.0, "hihg": 2}, "unknown field 'hihg'"),
        (Estimate, {}, "value"),
        (Estimate, [], "expected an object"),
        (Estimate, {"value": 1.0, "workers": True}, "workers"),
        (Box, {"content": 1}, "Box.content: expected bool, found 1"),
        (Shelf, {"box": "1"}, "Shelf.box: expected int, found '1'"),
        (
            Shelf,
            {"box": 1, "kind": "omo"},
            "Shelf.kind: expected one of .*oom.*, found 'omo'",
        ),
    ],
)
def test_what_does_not_fit_is_named(kind: type, data: object, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        jsonable.decode(kind, data)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"a": 1, "b": 2, "a": 3}', "'a' is given twice"),
        ("[" * 100_000 + "]" * 100_000, "nested too deep"),
        ('{"x": ' * 100_000 + "1" + "}" * 100_000, "nested too deep"),
        ("1" + "0" * 400, "too large a number"),
        ("9223372036854775808", "too large a number"),
        ("1e999", "too large a number"),
        ("[NaN]", "NaN is no number"),
        ("-Infinity", "-Infinity is no number"),
        ('{"a": ', "Expecting value"),
        (b"\xff\xfe", "codec can't decode"),
    ],
)
def test_json_from_elsewhere_is_read_strictly(text: str | bytes, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        jsonable.parse(text)


def test_what_configs_of_models_have_is_read() -> None:
    assert jsonable.parse("\ufeff[1, 2.5]") == [1, 2.5]
    assert jsonable.parse(
        b'\xef\xbb\xbf{"a": [0.0, Infinity], "b": 1000000000000000019884624838656}',
        ours=False,
    ) == {
        "a": [0.0, math.inf],
        "b": 1000000000000000019884624838656,
    }
    with pytest.raises(ValueError, match="given twice"):
        jsonable.parse('{"a": 1, "a": 2}', ours=False)
