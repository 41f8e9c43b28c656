"""Which activations, over which range, timed how: the text of flags -> specs and a plan. Pure, as request.py is."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import isfinite

from ffnbench.errors import FfnbenchError
from ffnbench.ffn.grammar import Variant, as_activation_variant, parse_variant
from ffnbench.ffn.spec import ActivationSpec, Gate, Scalar, require_positive
from ffnbench.ffn.variants import ACTIVATIONS, GATED
from ffnbench.plan import DTYPES, Case, Mode, Plan, Probe, Protocol, Workload
from ffnbench.protocol import MIN_WORKERS
from ffnbench.registry import hint_for

CHOSEN = "relu,relu2,gelu,silu,mish"  # what people choose between for an FFN
REFERENCE = "relu"


def every_activation() -> str:
    """All rows, as the text of a flag."""
    return ",".join(row.name for row in ACTIVATIONS)


def every_gated_form() -> str:
    """The published gated forms, as the text of a flag."""
    return ",".join(row.name for row in GATED)


def select(text: str, probe: Probe, *, gated: bool = False) -> dict[str, ActivationSpec]:
    """Labels and specs of a comma separated list; gated names stand for the activation on their gate if `gated`."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not parts:
        raise FfnbenchError("no activation given", "for example --activations relu,gelu,silu")
    chosen: dict[str, ActivationSpec] = {}
    for part in parts:
        variant = _activation(part, probe, gated)
        if variant.label in chosen:
            raise FfnbenchError(f"the activation {variant.label!r} stands twice", "name one of them: other=" + part)
        beta = variant.spec_keys.get("beta")
        chosen[variant.label] = ActivationSpec(
            activation=variant.activation, beta=None if beta is None else float(beta), own=variant.own
        )
    return chosen


def _activation(text: str, probe: Probe, gated: bool) -> Variant:
    name = text.split("@")[0].rpartition("=")[2]
    if ":" not in name and name not in ACTIVATIONS and name not in GATED and not name.endswith("_glu"):
        raise FfnbenchError(f"unknown activation {name!r}", hint_for(name, ACTIVATIONS.spellings(), ACTIVATIONS.where))
    variant = parse_variant(text)
    if variant.target:
        own = probe.describe(variant.target)
        if own is None:
            raise FfnbenchError(f"{variant.target} is not a function of one tensor", "for example def act(x): ...")
        variant = as_activation_variant(variant, own)
    if variant.gate is not Gate.NONE and not gated:
        raise FfnbenchError(
            f"{variant.text!r} is a gated form, not an activation",
            f"use --gated for its surface, or its activation {variant.activation}",
        )
    if other := sorted((variant.spec_keys.keys() | variant.workload_keys.keys()) - {"beta", "gate"}):
        raise FfnbenchError(f"an activation has no {other[0]!r}, in {text!r}", "its one key is beta: swish@beta=0.5")
    return variant


def parse_range(text: str) -> tuple[float, float]:
    """`LO:HI`, both finite, LO below HI."""
    low, colon, high = text.partition(":")
    try:
        bounds = float(low), float(high)
    except ValueError:
        raise FfnbenchError(f"cannot read the range {text!r}", "a range is LO:HI, for example --range=-4:4") from None
    if not colon or not all(map(isfinite, bounds)):
        raise FfnbenchError(f"the range {text!r} is not finite", "for example --range=-4:4")
    if bounds[0] >= bounds[1]:
        kind = "empty" if bounds[0] == bounds[1] else "reversed"
        raise FfnbenchError(f"the range {text!r} is {kind}", f"for example --range={min(bounds):g}:{max(bounds) + 1:g}")
    return bounds


@dataclass(frozen=True, slots=True, kw_only=True)
class TimingRequest:
    """The flags of `activations --time`: comma separated element counts and dtypes, and the protocol."""

    elements: str = "1048576"
    dtypes: str = "float32"
    device: str = "auto"
    threads: int = 1
    workers: int | None = None
    rounds: int | None = None
    quick: bool = False
    seed: int = 0
    timeout: float = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One size, dtype and direction: the cases that are compared with each other, all in one run."""

    elements: int
    dtype: str
    mode: str
    labels: tuple[str, ...]  # in the run
    names: tuple[str, ...]  # of the activations, in the same order


def timing_plan(chosen: dict[str, ActivationSpec], request: TimingRequest) -> tuple[Plan, tuple[Block, ...]]:
    """One plan for everything, and how it falls into blocks. relu is added where it was not asked for."""
    specs = chosen if REFERENCE in chosen else {REFERENCE: ActivationSpec(activation=REFERENCE), **chosen}
    workers = request.workers if request.workers is not None else 3 if request.quick else 5
    rounds = request.rounds if request.rounds is not None else 8 if request.quick else 15
    if workers < MIN_WORKERS:
        raise FfnbenchError(f"--workers {workers} is too few for an interval", f"give at least {MIN_WORKERS}")
    cases: list[Case] = []
    blocks: list[Block] = []
    for dtype in [DTYPES.get(part) for part in _parts(request.dtypes, "dtype")]:
        for elements in [_count(part) for part in _parts(request.elements, "elements")]:
            for mode in (Mode.FORWARD.value, Mode.BACKWARD.value):
                work = Workload(
                    batch=1, seq_len=1, dtype=dtype, device=request.device, mode=mode, threads=request.threads
                )
                labels = []
                for name, spec in specs.items():
                    labels.append(f"{name} {dtype} {elements} {mode}")
                    sized = replace(spec, elements=elements)
                    cases.append(Case(label=labels[-1], variant=name, ffn=sized, workload=work, sizing="given"))
                blocks.append(
                    Block(elements=elements, dtype=dtype, mode=mode, labels=tuple(labels), names=tuple(specs))
                )
    protocol = Protocol(
        workers=workers, rounds=require_positive("rounds", rounds), warmup_s=0.05, seed=request.seed,
        timeout_s=request.timeout,
    )  # fmt: skip
    reference = f"{REFERENCE} {blocks[0].dtype} {blocks[0].elements} {blocks[0].mode}"
    return (
        Plan(
            cases=tuple(cases), reference=reference, protocol=protocol, metrics=("latency",), match="none",
            multiple_of=1,
        ),
        tuple(blocks),
    )  # fmt: skip


def block_plan(plan: Plan, block: Block) -> Plan:
    """The part of a plan that is one block, relu its reference."""
    cases = tuple(case for case in plan.cases if case.label in block.labels)
    return replace(plan, cases=cases, reference=block.labels[block.names.index(REFERENCE)])


def _parts(text: str, name: str) -> list[str]:
    parts = list(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    if not parts:
        raise FfnbenchError(
            f"no {name} given", f"for example --{name} " + ("1048576" if name == "elements" else "float32")
        )
    return parts


def _count(text: str) -> int:
    value: Scalar = int(text) if text.isdigit() else text
    return require_positive("elements", value)
