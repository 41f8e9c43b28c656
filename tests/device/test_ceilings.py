"""Ceilings: what a call needs, counted by hand; shares of scripted machines; what is
dropped, disturbed or hostile.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from fake_machine import FakeLaunch, FakeWorker, lost, run

from ffnbench.api.this_machine import environment
from ffnbench.device.ceilings import matrix_of, memory_of, roofs_for, roofs_of_machine
from ffnbench.device.environment import caches, level_of
from ffnbench.device.waiting import WaitMeter
from ffnbench.following import SILENT
from ffnbench.messages import (
    CacheLevel,
    ExploreRoofs,
    Failed,
    MeasureCeilings,
    ReachedRoof,
    ReachedRoofs,
    Sampled,
    WorkerRequest,
)
from ffnbench.plan import Probe, cost_of, needed_by
from ffnbench.planning.compare import plan_compare
from ffnbench.report.terminal import plain
from ffnbench.request import CompareRequest
from ffnbench.result import Bound, CaseCost, FailureKind, Roof
from ffnbench.run.world import World
from ffnbench.stats.ceilings import ceilings_of, shares_of
from ffnbench.worker import ceiling_calls

# swiglu at d_model 64, d_ff 172: three matrices of 64 x 172
WEIGHTS = 3 * 64 * 172
ASKED = {"variants": "swiglu", "d_model": 64, "d_ff": 172, "match": "none", "seq_len": 16, "threads": 2,
         "workers": 3, "rounds": 8, "device": "cpu"}  # fmt: skip
CACHES = (CacheLevel(level=1, bytes=1 << 15, instances=2), CacheLevel(level=2, bytes=1 << 19, instances=2),
          CacheLevel(level=3, bytes=1 << 25, instances=1))  # fmt: skip


def plan_of(**options: object):
    return plan_compare(CompareRequest(**{**ASKED, **options}), Probe())


def costs_of(plan) -> tuple[CaseCost, ...]:
    return tuple(
        CaseCost(case=case.label, cost=cost_of(case, Probe())) for case in plan.cases
    )


@pytest.mark.parametrize(
    ("options", "flops", "bytes_"),
    [
        ({}, 16 * 2 * WEIGHTS, 4 * WEIGHTS + 2 * 4 * 16 * 64),
        ({"mode": "train"}, 16 * 6 * WEIGHTS, 4 * WEIGHTS + 2 * 4 * 16 * 64),
        ({"mode": "backward"}, 16 * 4 * WEIGHTS, 4 * WEIGHTS + 2 * 4 * 16 * 64),
        (
            {"dtype": "bfloat16", "batch": 3},
            48 * 2 * WEIGHTS,
            2 * WEIGHTS + 2 * 2 * 48 * 64,
        ),
        # one token meets one expert of eight, and the router's 8 x 64
        (
            {"variants": "swiglu@moe=8x1", "seq_len": 1},
            2 * (WEIGHTS + 512),
            4 * (WEIGHTS + 512) + 2 * 4 * 64,
        ),
    ],
)
def test_what_a_call_needs_is_counted(options: dict, flops: int, bytes_: int) -> None:
    plan = plan_of(**options)
    needed = needed_by(plan.cases[0], costs_of(plan)[0].cost)
    assert (needed.flops, needed.bytes) == (flops, bytes_)


FLOPS, BYTES = 16 * 2 * WEIGHTS, 4 * WEIGHTS + 2 * 4 * 16 * 64


def found_of(roofs: list, chosen: dict[str, float]) -> list:
    """What exploring finds: the first candidate of each of these kinds, with its
    seconds.
    """
    found = []
    for words, seconds in chosen.items():
        roof = next(
            roof
            for roof in roofs
            if all(word in roof.name for word in words.split("+"))
        )
        found.append(ReachedRoof(roof=roof, seconds=seconds, calls=2))
    return found


# seconds of a call on a machine of 10 GFLOP/s by oneDNN and 8 by torch, of 20 GB/s,
# whose call takes a microsecond
SECONDS = {"torch.mm 512x512x512": 2 * 512**3 / 8e9, "oneDNN 256x256x256": 2 * 256**3 / 1e10,
           "(torch.sum 1": BYTES // 256 * 256 / 2e10, "call": 1e-6}  # fmt: skip


def machine(
    seconds: dict[str, float] = SECONDS,
    case_s: float = 2 * FLOPS / 1e10,
    noise: float = 1.0,
) -> FakeLaunch:
    """A machine of these roofs; `noise` is what each next worker's calls take more,
    those of roofs and cases alike.
    """

    def case(label: str, worker: int, number: int) -> float:
        launch.clock_s += (
            10.0  # so long a case takes that there is time for roofs in every round
        )
        return case_s * noise**worker

    launch = FakeLaunch(case)
    launch.waited, launch.clock_s = 0.0, 0.0
    launch.roofs = lambda roofs: found_of(roofs, seconds)

    def roof(asked: Roof, worker: int) -> Sampled:
        own = next(value for words, value in seconds.items() if words in asked.name)
        return Sampled(value=own * noise**worker, waited=0.0)

    launch.roof = roof
    return launch


def measured(launch: FakeLaunch, now=None, **options: object):
    plan = plan_of(**options)
    now = now or (lambda: getattr(launch, "clock_s", 0.0))
    return run(plan, launch=launch, costs=costs_of(plan), now=now), costs_of(plan)


def test_a_share_is_the_least_time_of_the_bound_that_binds() -> None:
    done, costs = measured(machine())
    [share] = shares_of(done, costs, ceilings_of(done, costs))
    assert (share.bound, share.roof) == (
        Bound.PRODUCTS,
        "(oneDNN 256x256x256 float32 cpu 2)",
    )
    assert share.share.value == pytest.approx(0.5, rel=1e-9)
    assert share.share.low == pytest.approx(0.5, rel=1e-9)
    assert (share.share.workers, share.share.samples) == (3, 24)
    # the same machine with products a thousand times as fast: now the bytes bind
    fast = {
        words: value / (1000 if "x" in words else 1) for words, value in SECONDS.items()
    }
    done, costs = measured(machine(fast, case_s=4 * BYTES / 2e10))
    [share] = shares_of(done, costs, ceilings_of(done, costs))
    assert share.bound is Bound.BYTES
    assert share.share.value == pytest.approx(0.25, rel=1e-3)
    done, costs = measured(machine({"call": 1e-3}, case_s=1.25e-3))
    [share] = shares_of(done, costs, ceilings_of(done, costs))
    assert (share.bound, share.share.value) == (Bound.CALL, pytest.approx(0.8))


def test_a_roof_that_fails_is_dropped_and_fails_no_case() -> None:
    launch = machine()
    calm = launch.roof
    launch.roof = lambda roof, worker: (
        Failed(kind=FailureKind.CRASH, message="no")
        if "oneDNN" in roof.name
        else calm(roof, worker)
    )
    done, costs = measured(launch)
    [share] = shares_of(done, costs, ceilings_of(done, costs))
    assert share.roof == "(torch.mm 512x512x512 float32 cpu 2)"
    assert share.share.value == pytest.approx(0.5 * 10 / 8)
    assert not done.failures
    assert sum("oneDNN" in sample.case for sample in done.samples) == 0


@pytest.mark.parametrize("trouble", ["unknown", "nothing", "lost"])
def test_a_worker_that_knows_no_ceilings_ends_nothing(trouble: str) -> None:
    launch = FakeLaunch(
        trouble={(ExploreRoofs, None): "crash"} if trouble == "unknown" else None
    )
    if trouble == "lost":
        launch.trouble[(ExploreRoofs, None)] = lost("crash", "it is gone")
    done, costs = measured(launch)
    assert shares_of(done, costs, ceilings_of(done, costs)) == () == done.roofs
    assert not done.failures
    assert {s.metric for s in done.samples} == {"latency", "peak_bytes"}
    assert len({s.worker for s in done.samples if s.metric == "latency"}) == 3
    assert [what for _, what, _ in launch.log].count(ExploreRoofs) == 1


class Clock:
    """A clock that only samples move."""

    def __init__(self) -> None:
        self.s = 0.0

    def __call__(self) -> float:
        return self.s


@pytest.mark.parametrize(("roof_s", "case_s"), [(0.2, 0.05), (3.0, 0.01)])
def test_ceilings_take_a_twentieth_of_the_time_and_a_round_of_each_worker_at_most(
    roof_s: float, case_s: float
) -> None:
    clock, launch = Clock(), machine()
    calm, spent = launch.roof, []

    def roof(asked: dict, worker: int) -> dict:
        clock.s += roof_s
        spent.append(roof_s)
        return calm(asked, worker)

    def seconds(label: str, worker: int, number: int) -> float:
        clock.s += case_s
        return 2 * FLOPS / 1e10

    launch.roof, launch.seconds = roof, seconds
    done, costs = measured(launch, now=clock, rounds=60)
    in_all = (
        3 * 4 * roof_s
    )  # the first round of each of the first three workers, which is always asked for
    assert sum(spent) <= max(0.05 * clock.s, in_all)
    [share] = shares_of(done, costs, ceilings_of(done, costs))
    assert share.share.workers == 3


# The machine


def test_the_level_is_the_smallest_cache_that_holds_it() -> None:
    told = [level_of(size << 10, threads, CACHES) for size, threads in
            ((32, 1), (33, 1), (64, 2), (65, 2), (512, 1), (1024, 2), (1025, 2), (32768, 2), (32769, 2))]  # fmt: skip
    assert told == ["L1", "L2", "L1", "L2", "L2", "L2", "L3", "L3", "memory"]
    assert level_of(1, 1, ()) == ""


def test_caches_are_read_as_the_kernel_tells_them(tmp_path: Path) -> None:
    for cpu in range(4):
        for index, (level, kind, size, shared) in enumerate(
            [(1, "Data", "32K", f"{cpu}"), (1, "Instruction", "32K", f"{cpu}"), (2, "Unified", "512K", f"{cpu}"),
             (3, "Unified", "32M", "0-1" if cpu < 2 else "2-3")]
        ):  # fmt: skip
            folder = tmp_path / f"cpu{cpu}" / "cache" / f"index{index}"
            folder.mkdir(parents=True)
            for name, value in zip(
                ("level", "type", "size", "shared_cpu_list"),
                (level, kind, size, shared),
                strict=True,
            ):
                (folder / name).write_text(f"{value}\n")
    assert [(c.level, c.bytes, c.instances) for c in caches(tmp_path, range(4))] == [
        (1, 32 << 10, 4), (2, 512 << 10, 4), (3, 32 << 20, 2)
    ]  # fmt: skip
    (tmp_path / "cpu3" / "cache" / "index2" / "size").write_text(
        "1M\n"
    )  # of cores that differ, the smaller one
    assert caches(tmp_path, range(4))[1].bytes == 512 << 10
    (tmp_path / "cpu0" / "cache" / "index3" / "size").write_text("nonsense\n")
    assert [c.instances for c in caches(tmp_path, [0])] == [1, 1]
    assert caches(tmp_path / "nowhere", [0]) == ()


def test_candidates_keep_to_the_room_and_to_the_sizes_of_the_cases() -> None:
    plan = plan_of(
        variants="relu,gelu,swiglu",
        d_model=1024,
        d_ff=None,
        match="params",
        seq_len=600,
    )
    roofs = roofs_for(plan.cases, costs_of(plan), CACHES, 1 << 40)
    sizes = {roof.amount for roof in roofs if roof.bound is Bound.BYTES}
    needed = 4 * 8 * 1024**2 + 2 * 4 * 600 * 1024  # all three are matched: one size
    assert len(sizes) == 1
    assert 0.99 * needed < sizes.pop() <= needed
    shapes = {roof.shape for roof in roofs if roof.bound is Bound.PRODUCTS}
    assert {
        (600, 4096, 1024),
        (600, 1024, 4096),
        (128, 4096, 1024),
        (512, 4096, 1024),
        (512, 512, 512),
    } <= shapes
    assert len({roof.name for roof in roofs}) == len(roofs)
    assert all(roof.name.startswith("(") for roof in roofs)
    small = roofs_for(plan.cases, costs_of(plan), CACHES, 4 << 20)
    assert small
    assert max(map(memory_of, small)) <= 4 << 20
    # far beyond the last cache a part of it is read, and known to be of memory
    large = plan_of(variants="swiglu", d_model=4096, d_ff=11008, seq_len=1)
    [size] = {
        r.amount
        for r in roofs_for(large.cases, costs_of(large), CACHES, 1 << 40)
        if r.bound is Bound.BYTES
    }
    assert size == 4 << 25
    assert matrix_of(size) == (8192, 4096)


def test_every_path_computes_what_it_says() -> None:
    """Nothing is left out of a call: its result is that of the operation, on numbers
    that are not zero.
    """
    torch = pytest.importorskip("torch")
    from ffnbench.worker.ceiling_calls import CANNOT, RoofCalls

    plan = plan_of(variants="swiglu", d_model=32, d_ff=96, seq_len=24, threads=1)
    roofs = [
        r
        for r in roofs_for(plan.cases, costs_of(plan), CACHES, 1 << 40)
        if max(r.shape[1:], default=0) < 512
    ]
    ceilings, made = RoofCalls(), set()
    for roof in (roof for roof in roofs if roof.bound is not Bound.CALL):
        with suppress(CANNOT):
            found = torch.as_tensor(ceilings._call(roof)()).double()
            made.add(roof.path)
            if roof.bound is Bound.PRODUCTS:
                tokens, out, width = roof.shape
                assert roof.amount == 2 * tokens * out * width
                x = (
                    ceilings.operand(tokens * width, roof.dtype, "cpu")
                    .view(tokens, width)
                    .double()
                )
                w = (
                    ceilings.operand(
                        out * width, roof.dtype, "cpu", after=tokens * width
                    )
                    .view(out, width)
                    .double()
                )
                expected = x @ w.t()
            else:
                flat = ceilings.operand(roof.read_bytes // 4, "float32", "cpu")
                assert bool((flat != 0).all())
                matrix = flat.view(matrix_of(roof.read_bytes)).double()
                if roof.path == "torch.sum of int64":
                    expected = flat.view(torch.int64).sum().double()
                elif "sum" in roof.path:
                    expected = matrix.sum() * (roof.shape or (1,))[0]
                else:
                    expected = matrix @ matrix.reshape(-1)[: matrix.shape[1]]
            assert torch.allclose(
                found.reshape(-1), expected.reshape(-1), rtol=1e-3, atol=1e-3
            ), roof.name
            seconds, _ = ceilings.time_roof(roof, 2, WaitMeter(1))
            assert seconds > 0
    assert {"torch.mm", "torch.sum", "torch.sum of int64", "repeated torch.sum"} <= made


@pytest.mark.parametrize("disturbed", [False, True])
def test_env_measures_and_shows(on_machine, disturbed: bool) -> None:
    class Worker(FakeWorker):
        def answer(self, request: WorkerRequest) -> object:
            if not isinstance(request, MeasureCeilings):
                return super().answer(request)
            asked = [
                roof
                for roof in request.roofs
                if roof.path in ("torch.mm", "torch.sum", "an empty module")
            ]
            reached = [
                ReachedRoof(roof=roof, seconds=roof.amount / 1e10) for roof in asked
            ]
            return ReachedRoofs(
                roofs=tuple(
                    replace(r, disturbed=disturbed and "mm" in r.roof.path)
                    for r in reached
                )
            )

    table = environment(
        World(launch=lambda arm=None: Worker(FakeLaunch(), 0)), SILENT, ceilings=True
    ).table
    shown = [{row["fact"]: row["value"] for row in table.rows}]
    texts = [plain(table, 200)]
    mark = " (disturbed)" if disturbed else ""
    assert f"10.0 torch.mm (256 x 256 x 256){mark}" in shown[0][
        "float32 GFLOP/s"
    ].split(", ")
    assert "disturbed" not in shown[0]["empty call"]
    assert texts[0].count("a quiet machine can do more") == disturbed
    assert any(
        fact.startswith("GB/s from ") for fact in shown[0]
    )  # which cache, the machine says


@pytest.mark.parametrize(
    ("looks", "seconds", "disturbed"),
    [
        ([(2.0, 0.5), (0.5, 0.01)], 0.5, False),
        ([(0.5, 0.5), (2.0, 0.4), (2.0, 0.9)], 0.5, True),
        ([(2.0, None)], 1.0, False),
    ],
)
def test_a_ceiling_is_disturbed_where_every_look_at_it_was(
    monkeypatch, looks, seconds: float, disturbed: bool
) -> None:
    left = list(looks)

    class Scripted:
        def explore(self, roofs: list, seconds: float, keep: None) -> list:
            return [ReachedRoof(roof=roof, seconds=1.0, calls=3) for roof in roofs]

        def time_roof(
            self, roof: object, calls: int, waits: object
        ) -> tuple[float, float | None]:
            return left.pop(0)

    monkeypatch.setattr(ceiling_calls, "RoofCalls", Scripted)
    [roof] = [
        roof
        for roof in roofs_of_machine(2, ["float32"], (), 1 << 30)
        if roof.path == "an empty module"
    ]
    [reached] = ceiling_calls.measure_ceilings(
        MeasureCeilings(roofs=(roof,), seconds=1.0)
    ).roofs
    assert (reached.seconds, reached.disturbed, left) == (seconds, disturbed, [])
