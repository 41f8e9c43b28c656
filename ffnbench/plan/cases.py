"""Variants at each point of a sweep -> cases, and the plan of them. Each mistake of the
user's is found here.

Pure: before a process is started or a file opened. The one thing that a pure function
can't know is what code of the user's is and costs: that is asked of a `probe`, and
never about ffnbench's own forms.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from itertools import product
from math import prod
from typing import TYPE_CHECKING, Any

from ffnbench.common.choices import (
    Backend,
    Cache,
    Match,
    MatmulPrecision,
    Routing,
    Time,
    Weights,
)
from ffnbench.common.errors import FfnbenchError
from ffnbench.ffn.spec import DEFAULT_GROUP, FFNSpec, format_of, item_bytes
from ffnbench.ffn.width_rules import DEFAULT_MULTIPLE
from ffnbench.plan.backends import (
    BACKENDS,
    lack_of_stack,
    lack_of_weights,
    why_not_installed,
)
from ffnbench.plan.metrics import RATE
from ffnbench.plan.plan import (
    THIS_INTERPRETER,
    AnySpec,
    Arm,
    Case,
    Note,
    Plan,
    Point,
    Probe,
    Protocol,
    Value,
    Workload,
)
from ffnbench.plan.protocol import with_budget
from ffnbench.plan.reading import MOST_CELLS, spelling, too_many
from ffnbench.plan.variants import (
    BACKEND_KEYS,
    COMPILE_KEYS,
    DEFAULT_VARIANTS,
    PRESET,
    Typed,
    Values,
    Variant,
    typed_variants,
)
from ffnbench.plan.widths import Sizer

if TYPE_CHECKING:
    from ffnbench.models.model import ModelSpec

D_MODEL = 768  # where neither a flag nor a model has one
# a larger d_model is wide: a call of 512 tokens would take a few cores a second, and a
# first run minutes
WIDE = 2048
TOKENS, TOKENS_OF_WIDE = 512, 64  # of a sequence, where no length is given
# flags whose values make rows of one group; the others are axes, in their order
OF_ROWS = ("backend", "weights")
Lists = Mapping[str, tuple[Any, ...] | None]  # the values of each flag


def plan_variants(
    variants: str,
    flags: Lists,
    *,
    probe: Probe,
    protocol: Protocol,
    preset: str | None = None,
    match: Match = Match.PARAMS,
    metrics: Sequence[str] = ("latency", "memory"),
    layer: int | None = None,
    measured: bool = True,
) -> Plan:
    """The plan of a comparison, whose `flags` have lists of values. What is not
    `measured` need not be what a backend can run. With `layer` the
    weights are those of that layer in the folder `preset`.

    Raises FfnbenchError, with a hint, for whatever is wrong.
    """
    typed = variants_beside(variants, model_of(preset))
    cases, notes = cases_of(typed, flags, match=match, probe=probe)
    if measured:
        refuse_if_none_can_run(cases)
    folder = ""
    if layer is not None:
        from ffnbench.models.published import folder_of_weights

        folder = folder_of_weights(preset, {case.label: case.ffn for case in cases})
    return Plan(
        cases=cases,
        protocol=with_budget(protocol, len(cases)),
        metrics=_metric_groups(metrics, cases),
        match=match,
        model=folder,
        layer=layer,
        multiple_of=DEFAULT_MULTIPLE,
        notes=notes,
    )


def _metric_groups(names: Sequence[str], cases: Iterable[Case]) -> tuple[str, ...]:
    """The groups of metrics that are asked for, and routing wherever there are experts.
    Raises FfnbenchError for a group that can't be measured.
    """
    if RATE in names and "latency" not in names:
        raise FfnbenchError(
            "rate needs latency, which is not measured",
            "add it: --metrics latency",
        )
    experts = any(case.workload.routing for case in cases)
    if not experts and "routing" in names:
        raise FfnbenchError(
            "the metric routing needs experts, and no variant has any",
            "for example swiglu@moe=8x2",
        )
    if experts and "routing" not in names:
        return (*names, "routing")
    return tuple(names)


def axes_of(flags: Lists, variants: Iterable[Typed]) -> dict[str, tuple[Any, ...]]:
    """The values of each flag, and behind them those of each key that has a list, whose
    names begin with an @. Raises FfnbenchError where a flag and a key have lists of one
    name, and where a variant has one value for what a flag has a list of.
    """
    axes = {n: values for n, values in flags.items() if values and n not in OF_ROWS}
    swept = {name for name, values in axes.items() if len(values) > 1}
    for typed in variants:
        for name in swept & typed.keys.keys():
            if name in typed.lists:
                raise FfnbenchError(
                    f"{spelling(name)} has a list, and so has @{name}: an axis has one list",
                    f"leave the list of @{name} out",
                )
            if name != "d_ff":
                raise FfnbenchError(
                    f"{typed.text!r} has a {name} of its own, but {spelling(name)} has a list",
                    f"leave @{name} out, or the list",
                )
        axes |= {f"@{name}": values for name, values in typed.lists.items()}
    return axes


def points_of(axes: Lists) -> Iterator[tuple[dict[str, Any], Point]]:
    """Each combination of the values of these axes, the last axis changing first, with
    its point: the values on the axes that have several. Raises FfnbenchError for more
    than a sweep may have, before the first is made.
    """
    lists = {name: values or () for name, values in axes.items()}
    swept = [name for name, values in lists.items() if len(values) > 1]
    count = prod(map(len, lists.values()))
    if count > MOST_CELLS:
        sizes = [f"{len(lists[name]):,} of {name}" for name in swept]
        raise too_many(count, " x ".join(sizes))
    for combination in product(*lists.values()):
        values = dict(zip(lists, combination, strict=True))
        point = [
            (name.removeprefix("@"), "none" if values[name] is None else values[name])
            for name in swept
        ]
        yield values, tuple(point)


def cases_of(
    typed: Sequence[Typed],
    flags: Lists,
    *,
    match: Match = Match.PARAMS,
    probe: Probe,
) -> tuple[tuple[Case, ...], tuple[Note, ...]]:
    """The cases of variants, and the notes on them: at each point of the
    lists of `flags` a group, whose reference is its first case.

    Each variant is run by each of the flags' backends, with each of their formats of
    weights.
    """
    flags = with_defaults(flags, typed)
    of_preset = [each.model for each in typed if each.model and each.name == PRESET]
    bias = any(model.main.form.bias for model in of_preset)
    cases: list[Case] = []
    notes: list[Note] = []
    for values, point in points_of(axes_of(flags, typed)):
        at_point = [each.at(values, probe) for each in typed]
        sizer = Sizer(
            d_model=values["d_model"],
            d_ff=values.get("d_ff"),
            bias=bias,
            match=match,
            reference=at_point[0],
            work=workload_of(values, at_point[0]),
            probe=probe,
        )
        is_matched = len(at_point) > 1 and match is not Match.NONE
        for variant in at_point:
            made = _cases_of_variant(variant, values, flags, sizer)
            if is_matched and variant is at_point[0]:
                # one network, run in several ways
                made = [made[0], *(replace(case, residual=0.0) for case in made[1:])]
            made = [replace(case, point=point) for case in made]
            cases += made
            notes += [
                replace(note, label=case.label)
                for case in made
                for note in (*variant.notes, *_notes_on_tiles(case))
            ]
    refuse_equal_labels(cases)
    return tuple(cases), tuple(notes)


def _notes_on_tiles(case: Case) -> list[Note]:
    """What its tiles are, where they do not divide its tokens."""
    if not isinstance(case.ffn, FFNSpec):
        return []
    tiles = case.ffn.tokens_of_tiles(case.workload.tokens)
    if len(tiles) == max(1, case.ffn.tile) and tiles[0] == tiles[-1]:
        return []
    text = f"{len(tiles)} tiles of {tiles[0]:,} tokens"
    if tiles[0] != tiles[-1]:
        text += f", and {tiles[-1]:,} in the last"
    return [Note(text=text)]


def refuse_equal_labels(cases: Iterable[Case]) -> None:
    """Raise FfnbenchError where two cases have one label."""
    labels: set[str] = set()
    for case in cases:
        if case.label in labels:
            raise FfnbenchError(
                f"two variants have the label {case.label!r}",
                f"name one of them: other={case.variant}",
            )
        labels.add(case.label)


def _cases_of_variant(
    variant: Variant, values: Values, flags: Lists, sizer: Sizer
) -> list[Case]:
    """The cases of one variant at one point: one for each backend and each format of
    weights. All have one width.
    """
    backends: Sequence[Backend] = flags.get("backend") or (Backend.EAGER,)
    formats: Sequence[Weights] = flags.get("weights") or (Weights.NONE,)
    if BACKEND_KEYS & variant.keys.keys():
        backends = (_backend_of(variant),)
    if "weights" in variant.keys:
        formats = (variant.keys["weights"],)
    work = workload_of(values, variant)
    sized = sizer.sized(variant, replace(work, backend=backends[0], weights=formats[0]))
    cases: list[Case] = []
    for backend, weights in product(backends, formats):
        run_by: list[tuple[str, Value]] = []
        if len(backends) > 1 and backend is not Backend.EAGER:
            run_by.append(("backend", backend))
        if len(formats) > 1 and weights is not Weights.NONE:
            run_by.append(("weights", weights))
        work_here = _in_groups(replace(work, backend=backend, weights=weights))
        cases.append(
            Case(
                name=variant.label,
                variant=variant.text,
                ffn=sized.ffn,
                workload=work_here,
                sizing=sized.sizing,
                residual=sized.residual,
                arm=_arm_of(work_here),
                run_by=tuple(run_by),
            )
        )
    if variant.keys:
        from ffnbench.plan.keys import refuse_unread

        refuse_unread(variant.text, variant.keys, [case.workload for case in cases])
    return cases


def _arm_of(work: Workload) -> Arm:
    """Where a case runs: a runtime has a process of its own."""
    if not BACKENDS[work.backend].is_runtime:
        return THIS_INTERPRETER
    # threads that spin would take the CPUs from those that sleep
    spinning = " whose threads spin" if work.spin else ""
    return Arm(name=work.backend + spinning)


# Defaults, and the model of --preset


def model_of(preset: str | None) -> ModelSpec | None:
    """The model of --preset; None without one."""
    if preset is None:
        return None
    from ffnbench.models import published

    return published.model_of(preset)


def variants_beside(text: str, model: ModelSpec | None) -> list[Typed]:
    """The variants of a list, with the FFN of the model first where the list does not
    name it. The default variants are then without the form of that FFN.
    """
    typed = typed_variants(text, model)
    if model is None or any(each.name == PRESET for each in typed):
        return typed
    if text == DEFAULT_VARIANTS:
        typed = [each for each in typed if each.name != model.main.form.name]
    return [*typed_variants(PRESET, model), *typed]


def with_defaults(flags: Lists, variants: Iterable[Typed]) -> Lists:
    """The flags with the d_model of the models among the variants, or a default, and
    with a length of the sequence. Raises FfnbenchError where flag and models differ,
    and for several d_model beside a --d-ff, which is the width for one.
    """
    models = [typed.model for typed in variants if typed.model]
    named = {model.key: model.main.form.d_model for model in models}
    widths = tuple(sorted({*named.values()}))
    if len(widths) > 1:
        shown = ", ".join(f"{name} {width:,}" for name, width in named.items())
        raise FfnbenchError(
            f"these models have different d_model: {shown}",
            "compare models of one width",
        )
    given = flags.get("d_model") or widths or (D_MODEL,)
    shown = ",".join(map(str, given))
    if widths and given != widths:
        raise FfnbenchError(
            f"--d-model {shown} is not the width of {next(iter(named))}, {widths[0]:,}",
            "leave --d-model out: the model sets it",
        )
    d_ff = flags.get("d_ff") or ()
    if len(given) > 1 and len(d_ff) == 1:
        raise FfnbenchError(
            f"--d-ff {d_ff[0]:,} can't be the width for several --d-model {shown}",
            "leave --d-ff out, so that each group has its own; @ratio=2 of the first variant sets d_ff / d_model",
        )
    tokens = TOKENS if max(given) <= WIDE else TOKENS_OF_WIDE
    seq_len = flags.get("seq_len") or (tokens,)
    return {**flags, "d_model": given, "seq_len": seq_len}


# What a variant is fed, and how it is run


def workload_of(values: Values, variant: Variant) -> Workload:
    """The workload of a variant: its own keys take precedence over the values of the
    flags. Raises FfnbenchError for keys that contradict each other.
    """
    given = {**values, **variant.keys}
    own = {name: given[name] for name in OF_WORKLOAD & given.keys()}
    device, dtype = given["device"], given["dtype"]
    cache = given.get("cache", Cache.HOT)
    own["time"] = _time(given.get("time"), device, cache)
    own["routing"] = _routing(variant)
    # a value without effect here is the default, so that equal work compares equal
    if dtype != "float32":
        own["matmul_precision"] = MatmulPrecision.HIGHEST
    if item_bytes(dtype) != 2 or device == "cpu":
        own["reduced_reductions"] = True
    return Workload(**own)


OF_WORKLOAD = {field.name for field in fields(Workload)} - {"backend", "weights"}


def _time(asked: Time | None, device: str, cache: Cache) -> Time:
    """Which time is the latency: that of the caller on a CPU, which has no other, and
    else the one that is asked for, or the device's for a cold cache. Where the device
    is still `auto`, Workload.on decides later.
    """
    if asked is Time.WALL and cache is Cache.COLD and device != "cpu":
        raise FfnbenchError(
            "calls of a cold cache are timed one by one, so on a GPU their time is the device's, not what a caller "
            "waits for",
            "leave time=wall out, or cache=cold",
        )
    if device == "cpu":
        return Time.WALL
    if asked is None and device != "auto" and cache is Cache.COLD:
        return Time.DEVICE
    return asked or Time.WALL


def _backend_of(variant: Variant) -> Backend:
    """The backend that the keys of a variant say: COMPILE where one is about compiling
    and none names a backend.
    """
    compile_keys = [key for key in COMPILE_KEYS if key in variant.keys]
    backend: Backend = variant.keys.get("backend", Backend.COMPILE)
    if compile_keys and backend is not Backend.COMPILE:
        raise FfnbenchError(
            f"{compile_keys[0]!r} needs the backend compile, and {variant.text!r} has {backend}",
            f"leave one of the two out, or write @backend={Backend.COMPILE}",
        )
    return backend


def _routing(variant: Variant) -> Routing | None:
    """How tokens are spread over experts; None for a variant without experts."""
    if variant.form is not None and variant.form.moe is not None:
        routing: Routing = variant.keys.get("routing", Routing.UNIFORM)
        return routing
    if "routing" in variant.keys:
        raise FfnbenchError(
            f"'routing' needs experts, in {variant.text!r}",
            "for example @moe=8x2",
        )
    return None


def _in_groups(work: Workload) -> Workload:
    """The workload with the default number of columns in a group where its format has
    no groups, so that equal work compares equal.
    """
    held = format_of(work.weights, work.backend)
    if held is not None and held.grouped:
        return work
    return replace(work, group=DEFAULT_GROUP)


def lack_of(
    ffn: AnySpec, work: Workload, arm: Arm = THIS_INTERPRETER
) -> tuple[str, str]:
    """Why the workload's backend can't run a network in an arm, and what to do instead;
    both empty where it can, as far as is known. It is asked again when the device is no
    longer `auto`.
    """
    for lack in (lack_of_stack, BACKENDS[work.backend].lack, lack_of_weights):
        why, hint = lack(ffn, work)
        if why:
            return why, hint
    # what another interpreter has is not known
    return ("", "") if arm.python else why_not_installed(work.backend)


def refuse_if_none_can_run(cases: Iterable[Case]) -> None:
    """Raise FfnbenchError where no case can be run by its backend. A case that can't is
    otherwise a row with the reason.
    """
    lacks = {case.label: lack_of(case.ffn, case.workload, case.arm) for case in cases}
    if all(why for why, _ in lacks.values()):
        label, (why, hint) = next(iter(lacks.items()))
        raise FfnbenchError(f"{label!r} can't be run: {why}", hint)
