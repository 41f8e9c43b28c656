"""New storages: the same values in another place, the old ones gone, and a module with other memory left alone."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.autograd.profiler import profile

from ffnbench.bench import weighing
from ffnbench.bench.building import build
from ffnbench.bench.memory_limits import PAD_BYTES
from ffnbench.bench.meters import subject_of
from ffnbench.bench.placement import Placement, holds_other_memory
from ffnbench.plan import NoProbe
from ffnbench.planning.compare import plan_compare
from ffnbench.request import CompareRequest

VARIANTS = ("relu@bias=true", "swiglu", "geglu@moe=4x2", "relu@dtype=bfloat16")


def subject(variant: str, mode: str = "forward"):  # type: ignore[no-untyped-def]
    plan = plan_compare(
        CompareRequest(variants=variant, d_model=32, seq_len=16, threads=1, device="cpu", mode=mode), NoProbe()
    )
    case = plan.cases[0]
    torch.manual_seed(0)
    module = build(case.ffn, device="cpu", dtype=getattr(torch, case.workload.dtype))
    return subject_of(module, case.workload, 32, 0)


def storages(tensors: list[Tensor]) -> list[int]:
    return [tensor.untyped_storage().data_ptr() for tensor in tensors]


@pytest.mark.parametrize("mode", ["forward", "train"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_the_same_values_in_other_places(variant: str, mode: str) -> None:
    made = subject(variant, mode)
    tensors = [*made.module.parameters(), made.x, made.grad]
    names = [name for name, _ in made.module.named_parameters()]
    values, output = [tensor.detach().clone() for tensor in tensors], made.output()
    seen = {tuple(storages(tensors))}
    for number in range(6):
        before = storages(tensors)
        assert made.place(f"0/{number}")
        assert all(map(int.__ne__, before, storages(tensors)))
        seen.add(tuple(storages(tensors)))
    assert len(seen) > 4  # all but chance
    assert all(map(torch.equal, tensors, values))
    assert torch.equal(made.output(), output)
    assert [name for name, _ in made.module.named_parameters()] == names
    assert all(p.is_leaf and p.requires_grad for p in made.module.parameters())
    made.call()
    made.clear()


class Tied(nn.Module):
    """Two parameters in one storage."""

    def __init__(self) -> None:
        super().__init__()
        whole = torch.randn(8, 4)
        self.gate, self.up = nn.Parameter(whole[:4]), nn.Parameter(whole[4:])
        self.register_buffer("scale", torch.ones(4))

    def forward(self, x: Tensor) -> Tensor:
        return (x @ self.gate) * (x @ self.up) * self.scale


def test_parameters_that_share_memory_share_it_afterwards() -> None:
    module, x = Tied(), torch.randn(3, 4)
    before = module(x)
    assert Placement(module, [x], captured=False).move("1")
    assert module.gate.untyped_storage().data_ptr() == module.up.untyped_storage().data_ptr()
    assert module.up.storage_offset() == 16
    assert torch.equal(module(x), before)


class Packed(nn.Module):
    """A copy of its weights that no parameter names, kept in one of several ways."""

    def __init__(self, keep: str) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 4))
        held = self.weight.detach().t().contiguous()
        if keep == "attribute":
            self.held = held
        if keep == "list":
            self.held = [("w", held)]
        if keep == "dict":
            self.held = {"w": {"packed": held}}
        if keep == "view":
            self.held = self.weight.detach()[:2]
        if keep == "packed":
            self.held = torch.zeros(1 << 17, dtype=torch.int8)
        if keep == "indices":
            self.held = torch.tensor([1, 2])


@pytest.mark.parametrize("keep", ["attribute", "list", "dict", "view", "packed"])
def test_a_module_with_other_memory_stays_where_it_is(keep: str) -> None:
    module = Packed(keep)
    place = module.weight.data_ptr()
    assert holds_other_memory(module)
    assert not Placement(module, [], captured=False).move("0")
    assert module.weight.data_ptr() == place


def test_where_there_is_no_room_the_case_stays_and_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    made = subject("swiglu")
    output, calls = made.output(), []

    def full(storage: torch.UntypedStorage) -> torch.UntypedStorage:
        calls.append(storage)
        if len(calls) == 3:
            raise RuntimeError("can't allocate memory: you tried to allocate 4096 bytes")
        return clone(storage)

    clone = torch.UntypedStorage.clone
    monkeypatch.setattr(torch.UntypedStorage, "clone", full)
    assert not made.place("0")
    assert not made.place("1")
    assert torch.equal(made.output(), output)


def test_captured_code_stays_and_indices_do_not_matter() -> None:
    assert not Placement(Packed("none"), [], captured=True).move("0")
    assert Placement(Packed("indices"), [], captured=False).move("0")


def test_a_view_that_nobody_lists_ends_the_moving() -> None:
    module = Packed("none")
    view = module.weight.detach()[:2]  # in a closure, say
    place = Placement(module, [], captured=False)
    assert place.move("0")
    assert not place.movable
    assert not place.move("1")
    assert torch.equal(view, module.weight.detach()[:2])


def test_no_more_than_one_storage_is_there_twice() -> None:
    """The most that is there at once is one storage more than the module has, and the padding."""
    module, each = nn.Sequential(*(nn.Linear(512, 512, bias=False) for _ in range(6))), 512 * 512 * 4
    place = Placement(module, [], captured=False)
    with profile(use_cpu=True, profile_memory=True) as recorded:
        assert place.move("0")  # what was there before the recording does not show: these are its own
        assert place.move("1")
    alive = peak = 0
    for _, size in sorted(weighing._tensor_events(recorded)):
        alive += size
        peak = max(peak, alive)
    assert 6 * each < peak <= 7 * each + 6 * PAD_BYTES
