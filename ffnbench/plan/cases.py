"""Variants at each point of a sweep -> cases. Each mistake of the user's is found here.

Pure: before a process is started or a file opened. The one thing that a pure function
can't know is what code of the user's is and costs: that is asked of a `probe`, and
never about ffnbench's own forms.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import product
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
from ffnbench.ffn.spec import DEFAULT_GROUP, format_of, item_bytes
from ffnbench.plan.backends import BACKENDS, lack_of_weights, why_not_installed
from ffnbench.plan.plan import (
    THIS_INTERPRETER,
    AnySpec,
    Arm,
    Case,
    Note,
    Point,
    Probe,
    Workload,
)
from ffnbench.plan.reading import combinations, spelling
from ffnbench.plan.variants import (
    BACKEND_KEYS,
    COMPILE_KEYS,
    DEFAULT_VARIANTS,
    NAMES_OF_MODEL,
    Typed,
    Values,
    Variant,
)
from ffnbench.plan.widths import Sizer

if TYPE_CHECKING:
    from ffnbench.models.model import ModelSpec

D_MODEL = 768  # where neither a flag nor a model has one
# a larger d_model is wide: a call of 512 tokens would take a few cores a second, and a
# first run minutes
WIDE = 2048
TOKENS, TOKENS_OF_WIDE = 512, 64  # of a sequence, where no length is given
# the axes of a sweep that are flags, in their order
AXES = ("d_model", "dtype", "mode", "threads", "batch", "seq_len", "d_ff", "device")
Lists = Mapping[str, tuple[Any, ...] | None]  # the values of each flag


@dataclass(frozen=True, slots=True)
class Points:
    """The points of a sweep. `axes` are the values of each flag, and behind them those
    of each key that has a list, whose names begin with an @.
    """

    axes: Mapping[str, tuple[Any, ...]]

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return combinations(self.axes)

    def place(self, values: Values) -> Point:
        """Where these values are in the sweep, on the axes that have several values."""
        place = []
        for name, several in self.axes.items():
            if len(several) > 1:
                value = "none" if values[name] is None else values[name]
                place.append((name.removeprefix("@"), value))
        return tuple(place)


def points_of(flags: Lists, variants: Iterable[Typed]) -> Points:
    """The points of the lists of flags and of the keys of variants. Raises
    FfnbenchError where a flag and a key have lists of one name, and where a variant has
    one value for what a flag has a list of.
    """
    axes = {name: values for name in AXES if (values := flags.get(name))}
    swept = {name for name, values in axes.items() if len(values) > 1}
    for typed in variants:
        for name, values in typed.keys.lists.items():
            if name in swept:
                raise FfnbenchError(
                    f"{spelling(name)} has a list, and so has @{name}: an axis has one list",
                    f"leave the list of @{name} out",
                )
            axes[f"@{name}"] = values
        for name in swept & typed.keys.values.keys() - {"d_ff"}:
            raise FfnbenchError(
                f"{typed.text!r} has a {name} of its own, but {spelling(name)} has a list",
                f"leave @{name} out, or the list",
            )
    return Points(axes)


def cases_of(
    typed: Sequence[Typed],
    flags: Lists,
    *,
    match: Match = Match.PARAMS,
    bias: bool | None = None,
    models: Mapping[str, ModelSpec] | None = None,
    probe: Probe,
) -> tuple[tuple[Case, ...], tuple[Note, ...]]:
    """The cases of variants, and the notes on them: at each point of the
    lists of `flags` a group, whose reference is its first case. `models` are those of
    --preset.

    Each variant is run by each of the flags' backends, with each of their formats of
    weights.
    """
    models = models or {}
    flags = with_defaults(flags, models, typed)
    if bias is None:
        bias = any(model.main.form.bias for model in models.values())
    points = points_of(flags, typed)
    cases: list[Case] = []
    notes: list[Note] = []
    for values in points:
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
            place = points.place(values)
            made = [replace(case, point=place) for case in made]
            cases += made
            notes += [
                replace(note, label=case.label)
                for case in made
                for note in variant.notes
            ]
    refuse_equal_labels(cases)
    return tuple(cases), tuple(notes)


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
    backends = flags.get("backend") or (Backend.EAGER,)
    formats = flags.get("weights") or (Weights.NONE,)
    if BACKEND_KEYS & variant.keys.keys():
        backends = (_backend_of(variant),)
    if "weights" in variant.keys:
        formats = (variant.keys["weights"],)
    work = workload_of(values, variant)
    sized = sizer.sized(variant, replace(work, backend=backends[0], weights=formats[0]))
    cases: list[Case] = []
    for backend, weights in product(backends, formats):
        run_by = []
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
                arm=_arm_of(variant, work_here),
                run_by=tuple(run_by),
            )
        )
    if variant.keys:
        from ffnbench.plan.keys import refuse_unread

        refuse_unread(variant.text, variant.keys, [case.workload for case in cases])
    return cases


def _arm_of(variant: Variant, work: Workload) -> Arm:
    """Where a case runs: a runtime has a process of its own."""
    if not BACKENDS[work.backend].is_runtime or variant.arm.name:
        return variant.arm
    # threads that spin would take the CPUs from those that sleep
    spinning = " whose threads spin" if work.spin else ""
    return replace(variant.arm, name=work.backend + spinning)


# Defaults, and the model of --preset


def models_of(preset: str | None) -> dict[str, ModelSpec]:
    """The model of --preset, by the names that it has among the variants."""
    if preset is None:
        return {}
    from ffnbench.models.published import model_of

    return dict.fromkeys(NAMES_OF_MODEL, model_of(preset))


def with_model(variants: str, models: Mapping[str, ModelSpec]) -> str:
    """The list of variants with the FFN of the model first, where the list does not
    name it. The default variants are then without the form of that FFN.
    """
    names = [
        part.strip().partition("@")[0].rpartition("=")[2]
        for part in variants.split(",")
    ]
    if not models or models.keys() & {*names}:
        return variants
    first, model = next(iter(models.items()))
    if variants == DEFAULT_VARIANTS:
        variants = ",".join(name for name in names if name != model.main.form.name)
    return f"{first},{variants}"


def with_defaults(
    flags: Lists, models: Mapping[str, ModelSpec], variants: Iterable[Typed]
) -> Lists:
    """The flags with the d_model of the models, or a default, and with a length of the
    sequence. Raises FfnbenchError where flag and models differ, and for several d_model
    beside a --d-ff, which is the width for one.
    """
    named = {model.key: model.main.form.d_model for model in models.values()}
    for typed in variants:
        if typed.model is not None:
            named[typed.model.key] = typed.model.main.form.d_model
    widths = tuple(sorted(set(named.values())))
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
    if variant.keys.get("moe") is not None and not variant.target:
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
    for lack in (BACKENDS[work.backend].lack, lack_of_weights):
        why, hint = lack(ffn, work)
        if why:
            return why, hint
    # what another interpreter has is not known
    return ("", "") if arm.python else why_not_installed(work.backend)


def lack_in_one_line(ffn: AnySpec, work: Workload, arm: Arm = THIS_INTERPRETER) -> str:
    """What `lack_of` returns, in one line."""
    return "; ".join(filter(None, lack_of(ffn, work, arm)))


def refuse_if_none_can_run(cases: Iterable[Case]) -> None:
    """Raise FfnbenchError where no case can be run by its backend. A case that can't is
    otherwise a row with the reason.
    """
    lacks = {case.label: lack_of(case.ffn, case.workload, case.arm) for case in cases}
    if all(why for why, _ in lacks.values()):
        label, (why, hint) = next(iter(lacks.items()))
        raise FfnbenchError(f"{label!r} can't be run: {why}", hint)
