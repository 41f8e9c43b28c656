"""The devices of a run, from the parent: whether they are there, what they are, whether rows on them may be compared.

What a worker tells of a device comes from `environment.about_device`. No torch here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ffnbench.device.environment import USABLE, auto_device, usable_memory
from ffnbench.errors import FfnbenchError, Unfinished
from ffnbench.plan import Plan
from ffnbench.result import DeviceSeen
from ffnbench.run.memory_limits import check_fits, fit_into
from ffnbench.run.session import WorkerLost
from ffnbench.units import counted
from ffnbench.worker.channel import Message

SAME_KIND = ("gpu", "gpu_memory_bytes", "gpu_capability", "gpu_power_limit_w", "gpu_max_clock_mhz", "gpu_mig")
TOO_OLD = re.compile(r"driver on your system is too old \(found version (\d+)\)")
GET_TORCH = "https://pytorch.org/get-started"


class Devices:
    """The devices of a run: found by its first worker, and what workers read of them with their samples."""

    def __init__(self) -> None:
        self._free: dict[str, int] = {}  # usable bytes of each that is no CPU, where they are known
        self._seen: dict[tuple[int, str], dict[str, Any]] = {}

    def find(self, plan: Plan, facts: Message, ask: Callable[[Message], Message]) -> tuple[Plan, Message, list[str]]:
        """The plan on devices that are there and hold it, what a worker says of itself and of the first of them, and
        what a reader should know; raises FfnbenchError where one is not there, can't be used or is too small.
        """
        auto = "auto" in {case.workload.device for case in plan.cases}
        plan = plan.with_device(auto_device(facts))
        check_devices(plan, facts)
        try:
            told = told_of(plan, ask)
        except WorkerLost as lost:
            raise Unfinished(f"a worker was lost over its device: {lost}", "does `nvidia-smi` work?") from lost
        self._free = {name: int(USABLE * free) for name, one in told.items() if (free := one.get("gpu_free_bytes"))}
        plan = fit_into(plan, self._least_free(plan))
        check_fits(plan, usable_memory(), self._free)
        notes = [
            f"clocks, throttling and other processes of {device} were not seen: {missing}"
            for device, one in told.items() if (missing := one.get("nvml_missing"))
        ]  # fmt: skip
        if auto and not told and (why := why_not_seen(facts)):
            notes.append(f"measured on the CPU: {why[0]}; {why[1]}")
        return plan, facts | next(iter(told.values()), {}), notes

    def room(self, plan: Plan) -> int | None:
        """Bytes that there are for what is measured: of the machine, or of the device that has the least."""
        return usable_memory() if "cpu" in _used(plan) else self._least_free(plan)

    def _least_free(self, plan: Plan) -> int | None:
        return min((self._free[name] for name in _used(plan) & self._free.keys()), default=None)

    def read(self, worker: int, device: str, now: Message) -> None:
        """One reading."""
        seen = self._seen.setdefault((worker, device), {})
        for name, value, keep in (
            ("least_clock_mhz", now.get("clock_mhz"), min), ("most_clock_mhz", now.get("clock_mhz"), max),
            ("most_temperature_c", now.get("temperature_c"), max), ("most_power_w", now.get("power_w"), max),
            ("others", now.get("others"), max),
        ):  # fmt: skip
            if value is not None:
                seen[name] = value if seen.get(name) is None else keep(seen[name], value)

    @property
    def seen(self) -> tuple[DeviceSeen, ...]:
        """The extremes of what was read, by worker and device."""
        return tuple(DeviceSeen(worker=worker, device=device, **seen) for (worker, device), seen in self._seen.items())


def _used(plan: Plan) -> set[str]:
    return {case.workload.device for case in plan.cases}


def check_devices(plan: Plan, facts: Mapping[str, Any]) -> None:
    """Raise FfnbenchError before anything is built where a device is not there; the hint says what is, or why not."""
    for device in dict.fromkeys(case.workload.device for case in plan.cases):
        kind, _, index = device.partition(":")
        seen = facts["gpus"] if kind == auto_device(facts) else 0
        if kind == "cpu" or int(index or 0) < seen:
            continue
        asked = f"device {device!r} was asked for, but torch {facts['version']}"
        if why := why_not_seen(facts):
            raise FfnbenchError(f"{asked} can't use it: {why[0]}", why[1])
        if facts["gpus"]:
            raise FfnbenchError(f"{asked} has {counted(seen, f'{kind.upper()} device')}", f"there is {listed(facts)}")
        raise FfnbenchError(
            f"{asked} sees no {kind.upper()} device",
            f"use --device cpu, or install a build of torch with {kind.upper()} on a machine with such a GPU",
        )


def listed(facts: Mapping[str, Any]) -> str:
    """The accelerators that a worker sees, by name."""
    kind, names = auto_device(facts), facts.get("gpu_names") or [""] * facts["gpus"]
    return ", ".join(f"{kind}:{index}{f' ({name})' if name else ''}" for index, name in enumerate(names))


def why_not_seen(facts: Mapping[str, Any]) -> tuple[str, str] | None:
    """Why torch, built for a GPU, sees none, and what to do about it; None where it says nothing of the kind."""
    said = str(facts.get("no_gpu") or "")
    if old := TOO_OLD.search(said):
        version = int(old[1])  # 12040 is 12.4
        knows = f"CUDA {version // 1000}.{version % 1000 // 10}"
        return (
            f"the NVIDIA driver is too old for it, and knows {knows} at most",
            f"update the driver, or install a torch that was built for {knows} or older: {GET_TORCH}",
        )
    if not said:
        return None
    first = said.removeprefix("CUDA initialization: ").partition(" (Triggered internally")[0]
    return first[:200], "does `nvidia-smi` work? `python -c 'import torch; torch.zeros(1, device=\"cuda\")'` says more"


def told_of(plan: Plan, ask: Callable[[Message], Message]) -> dict[str, Message]:
    """What workers tell of every device that cases are measured on, by name: of each arm's own. Nothing of a CPU.

    Raises FfnbenchError where one can't be used, or where they are of different kinds.
    """
    asked = {(case.arm, case.workload.device): case for case in plan.cases if case.workload.device != "cpu"}
    told: list[Message] = []
    for (_, device), case in asked.items():
        answer = ask({"do": "device", "device": device, "label": case.label})
        if "failure" in answer:
            raise FfnbenchError(f"device {device!r} can't be used: {answer['message']}", "does `nvidia-smi` work?")
        told.append({**answer, "device": device})
    _refuse_unlike(told)
    return {found["device"]: found for found in reversed(told)}


def _refuse_unlike(told: Sequence[Message]) -> None:
    """Rows on two kinds of GPU would be compared as if it were the FFN that made them differ."""
    for other in told[1:]:
        first = told[0]
        differing = [name for name in SAME_KIND if first.get(name) != other.get(name)]
        if differing:
            what = ", ".join(
                f"{name.removeprefix('gpu_')} {first.get(name)} and {other.get(name)}" for name in differing
            )
            raise FfnbenchError(
                f"{first['device']} and {other['device']} are GPUs of two kinds ({what.replace('gpu ', '', 1)}), "
                "and rows on them can't be compared",
                f"measure all on one: --device {first['device']}; or each in a run of its own",
            )
