"""The runner on scripted workers: order, failures, losses, interruption, without a
process or a clock.
"""

from __future__ import annotations

from collections import Counter

import pytest
from fake_machine import FakeLaunch, lost, planned, run

from ffnbench.common.errors import Unfinished
from ffnbench.record.messages import Failed
from ffnbench.record.result import FailureKind
from ffnbench.stats.verdict import summarise


def plan_of(**options: object):
    return planned(
        **{
            "variants": "relu,gelu,swiglu",
            "d_model": 64,
            "workers": 3,
            "rounds": 4,
            **options,
        }
    )


def latencies(result) -> list:
    return [s for s in result.samples if s.metric == "latency"]


def test_every_round_measures_every_case_once_in_a_shuffled_order() -> None:
    launch = FakeLaunch()
    result = run(plan_of(), launch=launch)
    counts = Counter((s.case, s.worker, s.round) for s in latencies(result))
    assert len(counts) == 3 * 3 * 4
    assert set(counts.values()) == {1}
    orders = {
        tuple(s.case for s in sorted(group, key=lambda s: s.order))
        for w in range(3) for r in range(4)
        if (group := [s for s in latencies(result) if (s.worker, s.round) == (w, r)])
    }  # fmt: skip
    assert len(orders) > 2
    assert all(worker.closed for worker in launch.workers)


@pytest.mark.parametrize("kind", ["timeout", "oom", "crash"])
def test_a_lost_worker_is_replaced_without_the_case_that_it_died_of(kind: str) -> None:
    launch = FakeLaunch(trouble={("sample", "gelu"): lost(kind)})
    result = run(plan_of(), launch=launch)
    assert [(f.case, f.kind.value, f.message) for f in result.failures] == [
        ("gelu", kind, "gone")
    ]
    assert len(launch.workers) == (
        4 if kind == "timeout" else 5
    )  # a hang is not tried twice
    for label in ("relu", "swiglu"):
        counts = Counter(
            (s.worker, s.round) for s in latencies(result) if s.case == label
        )
        assert len(counts) == 12
        assert set(counts.values()) == {1}
    assert all(worker.closed for worker in launch.workers)


def dying(*deaths: tuple[str, int, int]):
    """Seconds of a fake worker that dies, once each, at (case, worker started,
    round).
    """
    left = set(deaths)

    def seconds(label: str, worker: int, number: int) -> float:
        if (label, worker, number) in left:
            left.remove((label, worker, number))
            raise lost("oom")
        return 0.01

    return seconds


def test_a_case_that_ran_through_before_is_not_blamed_for_one_lost_worker() -> None:
    launch = FakeLaunch(dying(("gelu", 1, 2)))
    result = run(plan_of(), launch=launch)
    assert result.failures == ()
    assert len(launch.workers) >= 4
    assert ["was lost: gone" in note.text for note in result.warnings] == [True]
    assert (
        len(latencies(result)) > 3 * 3 * 4
    )  # three whole workers, and what the lost one had measured
    ratios = {c.case: c.ratio for c in summarise(result)[1]}
    assert (ratios["gelu"].workers, ratios["gelu"].samples) in ((3, 12), (4, 14))
    again = run(
        plan_of(),
        launch=FakeLaunch(dying(("gelu", 1, 2), ("gelu", 2, 2), ("gelu", 3, 2))),
    )
    assert [f.case for f in again.failures] == ["gelu"]


def test_a_worker_that_dies_of_nothing_ends_the_run() -> None:
    with pytest.raises(Unfinished, match="too many processes were lost"):
        run(plan_of(), launch=FakeLaunch(trouble={("begin", None): lost("crash")}))


BROKEN = Failed(
    kind=FailureKind.CRASH,
    message="CUDA error: an illegal memory access was encountered",
    ends_process=True,
)


def test_a_broken_device_ends_its_worker_and_fails_the_case_that_broke_it_alone() -> (
    None
):
    """At once: the worker has said whose fault it is. What was measured by then
    stays.
    """
    launch = FakeLaunch(
        trouble={
            ("sample", "gelu"): lambda worker: (
                BROKEN if worker.rounds.get("gelu") == 1 else None
            )
        }
    )
    result = run(plan_of(), launch=launch)
    assert [(f.case, f.kind.value, f.message) for f in result.failures] == [
        ("gelu", "crash", BROKEN.message)
    ]
    assert result.warnings == ()
    assert {(s.worker, s.round) for s in latencies(result) if s.case == "gelu"} == {
        (0, 0),
        (0, 1),
    }
    assert not any(
        asked[1:] == ("sample", "gelu") for asked in launch.log if asked[0] > 0
    )
    for label in ("relu", "swiglu"):
        made = Counter(s.worker for s in latencies(result) if s.case == label)
        assert (made[1], made[2], made[3]) == (
            4,
            4,
            4,
        )  # three whole workers, and what the first had made
        assert made[0] in (2, 3)
    assert all(worker.closed for worker in launch.workers)
