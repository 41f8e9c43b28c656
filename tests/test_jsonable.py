from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Generic, TypeVar

import pytest

from ffnbench import jsonable
from ffnbench.plan import Plan
from ffnbench.planning.compare import plan_compare
from ffnbench.request import CompareRequest
from ffnbench.result import Estimate, Failure, FailureKind

T = TypeVar("T")


@dataclass(frozen=True)
class Box(Generic[T]):
    content: T


@dataclass(frozen=True)
class Shelf:
    box: int | Box[bool]
    kind: FailureKind = FailureKind.OOM


def test_a_plan_survives_the_journey_through_text() -> None:
    plan = plan_compare(
        CompareRequest(variants="relu,swiglu@d_ff=96@bias=true,silu@gate=output", d_model=48, match="none")
    )
    assert jsonable.decode(Plan, json.loads(json.dumps(jsonable.encode(plan)))) == plan


def test_enums_and_optionals_survive() -> None:
    failure = Failure(case="a", kind=FailureKind.OOM, message="m")
    assert jsonable.decode(Failure, jsonable.encode(failure)) == failure
    assert jsonable.decode(Estimate, {"value": 1, "low": None}) == Estimate(value=1.0)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        ({"value": "1"}, "Estimate.value"),
        ({"value": 1.0, "hihg": 2}, "unknown field 'hihg'"),
        ({}, "value"),
        ([], "expected an object"),
        ({"value": 1.0, "workers": True}, "workers"),
    ],
)
def test_what_does_not_fit_is_named(data: object, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        jsonable.decode(Estimate, data)


def test_a_generic_dataclass_is_read_by_its_argument() -> None:
    assert jsonable.decode(Shelf, {"box": {"content": True}}) == Shelf(box=Box(True))


@pytest.mark.parametrize(
    ("data", "says"),
    [
        ({"box": {"content": 1}}, "Shelf.box.content: expected bool, found 1"),
        ({"box": "1"}, "Shelf.box: expected int or Box, found '1'"),
        ({"box": 1, "kind": "omo"}, "Shelf.kind: expected one of .*oom.*, found 'omo'"),
    ],
)
def test_of_several_kinds_all_are_named(data: object, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        jsonable.decode(Shelf, data)
