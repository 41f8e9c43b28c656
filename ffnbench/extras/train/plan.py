"""What is trained, on which text: the flags of `train` -> a plan. No torch.

Each run of a variant, at one rate and by one seed, is a case and a cell of its own, so
that it can be gone on with, and be a job. A cell behind them times the blocks: a step's
forward and backward.

A block is x + attention(norm(x)), then x + FFN(norm(x)), with RMSNorm (Zhang and
Sennrich 2019), causal attention with rotary positions (Su et al. 2021), and no biases
but the FFN's. Bytes are the tokens: a table of 256 vectors stands before the blocks and
a matrix of 256 rows behind them. The default text is the source of Python's standard
library, which every machine has; its hash says which one.
"""

from __future__ import annotations

import hashlib
import os
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

from ffnbench.choices import Mode
from ffnbench.common.errors import FfnbenchError
from ffnbench.common.jsonable import LATER, least
from ffnbench.common.units import counted, percent
from ffnbench.ffn.attention import attention_flops
from ffnbench.ffn.cost import Cost
from ffnbench.ffn.spec import (
    AttentionSpec,
    NetworkSpec,
    item_bytes,
    read_positive,
    require_positive,
)
from ffnbench.messages import OfCase
from ffnbench.metrics import Metric
from ffnbench.plan import (
    THIS_INTERPRETER,
    AddedKind,
    AddedSpec,
    Case,
    Note,
    NoteKind,
    Plan,
    Point,
    Probe,
    Protocol,
    cost_of,
    group_suffix,
)
from ffnbench.planning.compare import as_compare, plan_compare
from ffnbench.planning.effort import check_budget
from ffnbench.planning.fields import cut
from ffnbench.request import AddedRequest, Seconds, Texts

# keys of a variant that train has not
WAYS_TO_RUN = ("backend", "weights", "compile", "freeze")
# folders of the standard library
SKIPPED = {"site-packages", "dist-packages", "test", "tests", "__pycache__"}
# of the files: what losses are reported of, and what rates are chosen by
HELD_OUT_SHARE, CHOOSING_SHARE = 0.1, 0.1
MOST_TEXT_BYTES = 1 << 30
TEXT = bytes((9, 10, 13, *range(32, 127), *range(128, 256)))
LEAST_BATCHES = 2  # of each part


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingText:
    """Which text it was. `path` is as it was typed, empty for the standard library;
    `printable` is the share of its bytes that are text; `sha256` is of all of them, in
    order.
    """

    path: str
    files: int = field(metadata=least(1))
    bytes: int = field(metadata=least(1))
    held_out_bytes: int = field(metadata=least(1))
    sha256: str
    printable: float


@dataclass(frozen=True, slots=True)
class Parts:
    """The bytes to train on, to choose rates by, and to report. `by_place`: the last
    bytes are held out, whichever file they are of.
    """

    train: bytes
    choosing: bytes
    held_out: bytes
    by_place: bool = False

    @property
    def shortest(self) -> int:
        """Bytes of the smallest part."""
        return min(len(self.train), len(self.choosing), len(self.held_out))


def read_text(path: str, batch: int, context: int) -> tuple[TrainingText, Parts]:
    """The parts of a file or a folder, or of the standard library's .py files where
    none is named; each part has LEAST_BATCHES batches at least.

    Files are split by the hash of their names. One file, or so few that a part would be
    too short, are split by place: the last bytes are held out. Raises FfnbenchError for
    a text that can't be read or is too short.
    """
    root = Path(path or sysconfig.get_path("stdlib"))
    try:
        if not root.exists():
            raise FfnbenchError(
                f"--text {path!r} is no file and no folder", "is the path right?"
            )
        files = [root] if root.is_file() else sorted(_files_in(root, library=not path))
        if sum(file.stat().st_size for file in files) > MOST_TEXT_BYTES:
            raise FfnbenchError(
                f"--text {path!r} holds more than 1 GiB", "name a part of it"
            )
        contents = {str(file.relative_to(root)): file.read_bytes() for file in files}
    except OSError as problem:
        raise FfnbenchError(
            f"--text {path!r} can't be read: {problem.strerror}", "is the path right?"
        ) from problem
    content = b"".join(contents.values())
    least_bytes = LEAST_BATCHES * batch * (context + 1)
    parts = _split_by_name(contents)
    if parts.shortest < least_bytes:
        parts = _split_by_place(content)
    if parts.shortest < least_bytes:
        if path:
            named = f"--text {path!r}"
        else:
            named = "the default text, the standard library's .py files,"
        raise FfnbenchError(
            f"{named} has {len(content):,} bytes: too short for parts of {least_bytes:,}, "
            f"{LEAST_BATCHES} batches, to be held out",
            "a longer text, a smaller --batch or a smaller --context",
        )
    text = TrainingText(
        path=path,
        files=len(files),
        bytes=len(content),
        held_out_bytes=len(parts.held_out),
        sha256=hashlib.sha256(content).hexdigest(),
        printable=1 - len(content.translate(None, TEXT)) / len(content),
    )
    return text, parts


def _files_in(root: Path, *, library: bool) -> Iterator[Path]:
    """The files below a folder that are not hidden; of the standard library its own
    sources, without their tests.
    """
    for folder, inner, names in os.walk(root):
        inner[:] = [
            name
            for name in inner
            if not name.startswith(".") and not (library and name in SKIPPED)
        ]
        for name in names:
            file = Path(folder, name)
            if (
                not name.startswith(".")
                and file.is_file()
                and (name.endswith(".py") or not library)
            ):
                yield file


def _split_by_place(content: bytes) -> Parts:
    choosing_at = int(len(content) * (1 - HELD_OUT_SHARE - CHOOSING_SHARE))
    held_out_at = int(len(content) * (1 - HELD_OUT_SHARE))
    return Parts(
        content[:choosing_at],
        content[choosing_at:held_out_at],
        content[held_out_at:],
        by_place=True,
    )


def _split_by_name(contents: dict[str, bytes]) -> Parts:
    """By the hash of each name: a file that is added moves no other one."""
    train, choosing, held_out = bytearray(), bytearray(), bytearray()
    for name, content in contents.items():
        place = int(hashlib.sha256(os.fsencode(name)).hexdigest()[:8], 16) / 2**32
        if place < HELD_OUT_SHARE:
            held_out += content
        elif place < HELD_OUT_SHARE + CHOOSING_SHARE:
            choosing += content
        else:
            train += content
    return Parts(bytes(train), bytes(choosing), bytes(held_out))


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """How a model is trained: so many steps with AdamW at a rate that warms up and
    falls, what is drawn by `seed`.
    """

    text: TrainingText
    steps: int = field(metadata=least(1))
    rate: float = field(metadata=least(0.0))
    seed: int = field(metadata=least(0))


LOSS = "loss"  # held out, at the end
HELD_OUT = "held_out_loss"  # after so many steps
CHOOSING = "choosing_loss"  # at the end, of the part that rates are chosen by
# in files of earlier versions: of the steps of a point, and by then
CURVE, SECONDS = "training_loss", "training_s"
TRAINING_UNITS = {
    LOSS: "nats",
    HELD_OUT: "nats",
    CHOOSING: "nats",
    CURVE: "nats",
    SECONDS: "s",
}
TRAINING_METRICS = tuple(
    Metric(name=name, unit=unit, job="train", exact=False, less_is_better=True)
    for name, unit in TRAINING_UNITS.items()
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """How far a model is: steps made, and seconds of one.

    On the way, `loss` is the last held-out loss. `diverged` is the step at which the
    loss grew beyond sense. At the end, the losses on what is held out and on the part
    that rates are chosen by, and the held-out curve: steps, and the loss after them.
    """

    step: int
    step_s: float
    diverged: int | None = None
    loss: float | None = None
    held_out: float | None = None
    choosing: float | None = None
    curve: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Train(OfCase[Trained]):
    """Train a case for so many seconds, or to its end."""

    answer = Trained
    seconds: float


HEAD_DIM = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class DecoderSpec(AddedSpec):
    """So many blocks around this FFN, each with weights of its own; heads of HEAD_DIM
    elements.
    """

    around: NetworkSpec
    layers: int

    def __post_init__(self) -> None:
        require_positive("layers", self.layers)
        if self.d_model % HEAD_DIM:
            near = max(1, round(self.d_model / HEAD_DIM)) * HEAD_DIM
            raise FfnbenchError(
                f"--d-model {self.d_model:,} can't be cut into heads of {HEAD_DIM}",
                f"give a multiple: --d-model {near}",
            )

    @property
    def attention(self) -> AttentionSpec:
        """That of each block."""
        heads = self.d_model // HEAD_DIM
        return AttentionSpec(
            d_model=self.d_model,
            heads=heads,
            kv_heads=heads,
            head_dim=HEAD_DIM,
            causal=True,
        )

    def cost(self, case: Case, probe: Probe) -> Cost:
        """That of all blocks."""
        inner = cost_of(replace(case, ffn=self.around), probe)
        return decoder_cost(
            self, inner, seq_len=case.workload.seq_len, dtype=case.workload.dtype
        )

    def bytes_held(self, case: Case) -> int:
        """Its weights in float32 and their gradients, and where it is trained the two
        moments of AdamW.
        """
        from ffnbench.run.resources import has_known_sizes

        params = self.attention.params
        if has_known_sizes(self.around):
            params += cost_of(replace(case, ffn=self.around), Probe()).params
        bytes_each = 16 if trained_by(case) else 8
        return self.layers * params * bytes_each

    def build(self, *, device: Any, dtype: Any) -> Any:
        """Its module."""
        from ffnbench.extras.train.decoder import Decoder
        from ffnbench.worker.backends.building import build_module

        make = partial(build_module, self.around, device=device, dtype=dtype)
        return Decoder(self.attention, self.layers, make, device=device, dtype=dtype)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainCase(Case):
    """A case of `train`: with `training` a model is trained so, and else its blocks are
    timed.
    """

    ffn: DecoderSpec
    training: Training | None = field(default=None, metadata=LATER)

    @property
    def recipe(self) -> Training:
        """How a case that is trained is trained."""
        assert self.training is not None
        return self.training

    @property
    def last_metric(self) -> str:
        """A run is done when it has a loss."""
        return LOSS if self.training else ""


def trained_by(case: Case) -> Training | None:
    """How a case is trained; None for one that is timed."""
    return case.training if isinstance(case, TrainCase) else None


def decoder_cost(spec: DecoderSpec, inner: Cost, *, seq_len: int, dtype: str) -> Cost:
    """That of all blocks, by the cost of their FFN. FLOPs are those of matrix products,
    per token; its bytes at work are not known.
    """
    attention = attention_flops(spec.attention, seq_len)
    forward = backward = None
    if inner.flops_forward is not None:
        forward = spec.layers * (inner.flops_forward + attention)
    if inner.flops_backward is not None:
        backward = spec.layers * (inner.flops_backward + 2 * attention)
    others = spec.layers * (spec.attention.params + 2 * spec.d_model) + spec.d_model
    params = others + spec.layers * inner.params
    return replace(
        inner,
        params=params,
        params_active=others + spec.layers * inner.params_active,
        params_formula=None,
        flops_forward=forward,
        flops_backward=backward,
        flops_elementwise=None,
        flops_elementwise_backward=None,
        weight_bytes=params * item_bytes(dtype),
        weight_bytes_touched=None,
        peak_bytes=None,
        saved_bytes=None,
    )


TRAIN = "train"
THIS_FEATURE = "extras.train"
KINDS = {
    TRAIN: AddedKind(
        frame=f"{THIS_FEATURE}.table:training_frame",
        picture=f"{THIS_FEATURE}.picture:training_figure",
        says="what is learnt",
        case=TrainCase,
        metrics=TRAINING_METRICS,
    )
}


D_MODEL = 128  # where nothing says how wide
OF, STEP, RUN = "of", "step", "run"  # the axis of the cells, and its values
WORKERS, ROUNDS = 5, 8  # of what is timed
MOST_SEEDS = 20
JUNK = 0.9  # of a text that is none, less is printable


@dataclass(frozen=True, kw_only=True)
class TrainRequest(AddedRequest):
    """`ffnbench train`."""

    COMMAND = "train"

    d_model: int | None = None
    layers: int = 3
    context: int = 128
    batch: int = 24
    dtype: str = "float32"
    steps: int = 800
    seeds: int = 3
    lr: Texts = "3e-3"
    text: str | None = None
    budget: Seconds | None = None


def plan_train(request: TrainRequest, probe: Probe | None = None) -> Plan:
    """Parse, check and size everything; raises FfnbenchError with a hint for whatever
    is wrong.
    """
    for name in ("steps", "seeds", "layers", "context"):
        read_positive(name, getattr(request, name))
    if request.seeds > MOST_SEEDS:
        raise FfnbenchError(
            f"--seeds {request.seeds} are more than {MOST_SEEDS}",
            "3 to 5 are enough for a model of this size",
        )
    if request.budget is not None:
        check_budget(request.budget)
    for key in WAYS_TO_RUN:
        if f"@{key}=" in request.variants:
            raise FfnbenchError(
                f"train runs the code of a form as it is written, and has no @{key}",
                f"leave @{key} out: `ffnbench compare` times other ways to run a form",
            )
    workload = {"seq_len": request.context, "mode": Mode.TRAIN, "metrics": "latency"}
    compared = plan_compare(
        as_compare(request, budget=None, **workload), probe, d_model=D_MODEL
    )
    models = [_decoder_case(case, request.layers) for case in compared.cases]
    _refuse_others(replace(compared, cases=tuple(models)))
    work = models[0].workload
    text, parts = read_text(request.text or "", work.batch, work.seq_len)
    cases = []
    for seed in range(request.seed, request.seed + request.seeds):
        for rate in learning_rates(request.lr):
            training = Training(text=text, steps=request.steps, rate=rate, seed=seed)
            point = ((OF, RUN), ("lr", rate), ("seed", seed))
            cases += [
                replace(_case_at(model, point, against=model.label), training=training)
                for model in models
            ]
    first_runs = {
        model.label: run.label for model, run in zip(models, cases, strict=False)
    }
    cases += [
        _case_at(model, ((OF, STEP),), against=compared.reference) for model in models
    ]
    notes = [
        replace(note, label=first_runs.get(note.label, "")) for note in compared.notes
    ]
    return replace(
        compared,
        cases=tuple(cases),
        reference=first_runs[compared.reference],
        kind=TRAIN,
        metrics=("latency",),
        protocol=Protocol(
            workers=WORKERS,
            rounds=ROUNDS,
            seed=request.seed,
            timeout_s=request.timeout,
            budget_s=request.budget,
        ),
        notes=(*notes, *_notes_of_text(request, text, parts)),
    )


def learning_rates(text: str) -> tuple[float, ...]:
    """The rates of a list, each once. Raises FfnbenchError for what is no rate."""
    rates = []
    for part in cut("--lr ", text, "1e-3,3e-3,6e-3"):
        try:
            rates.append(float(part))
        except ValueError:
            raise FfnbenchError(
                f"--lr {part!r} is no number",
                "for example --lr 3e-3, or --lr 1e-3,3e-3,6e-3",
            ) from None
        if not 0 < rates[-1] < 10:
            raise FfnbenchError(
                f"--lr {part} is out of range",
                "a rate is above 0 and below 10: --lr 3e-3",
            )
    return tuple(dict.fromkeys(rates))


def _decoder_case(case: Case, layers: int) -> TrainCase:
    """The case of a decoder with its network."""
    values = {field.name: getattr(case, field.name) for field in fields(Case)}
    values["ffn"] = DecoderSpec(around=values["ffn"], layers=layers)
    # experts are fed as they learn it
    values["workload"] = replace(case.workload, routing=None)
    return TrainCase(**values)


def _case_at(case: TrainCase, point: Point, against: str) -> TrainCase:
    """The case at a point, compared with another one there."""
    suffix = group_suffix(dict(point))
    return replace(
        case, label=case.label + suffix, point=point, against=against + suffix
    )


def _refuse_others(plan: Plan) -> None:
    """Raise FfnbenchError for what can't be trained, and for variants that are fed
    differently.
    """
    first = plan.cases[0].workload
    if plan.is_sweep:
        raise FfnbenchError(
            "train takes no key with several values",
            "for example swiglu a=swiglu@d_ff=512",
        )
    if first.dtype == "float16":
        raise FfnbenchError(
            "training in float16 needs scaled gradients, which train does not have",
            "use --dtype bfloat16",
        )
    for case in plan.cases:
        if case.workload != first or not first.eager or case.arm != THIS_INTERPRETER:
            raise FfnbenchError(
                f"{case.label!r} has a workload of its own, but train runs all variants alike",
                "leave out @backend, @dtype, @threads and the like",
            )


def _notes_of_text(
    request: TrainRequest, text: TrainingText, parts: Parts
) -> list[Note]:
    """What a reader should know of the text and the seeds, before anything is
    trained.
    """
    notes = []
    if request.seeds == 1:
        notes.append("one seed gives no interval and no verdict: --seeds 3")
    if text.printable < JUNK:
        notes.append(
            f"{percent(1 - text.printable)} of the bytes of {text.path} are no text: they are learnt all the same"
        )
    times = request.steps * request.batch * request.context / len(parts.train)
    if times > 1:
        notes.append(
            f"each byte of the text is seen {times:.1f} times: a longer text would be learnt otherwise"
        )
    if parts.by_place:
        notes.append(
            f"{counted(text.held_out_bytes, 'byte')} at the end of {counted(text.files, 'file')} are held out"
        )
    return [Note(text=note, kind=NoteKind.GENERAL) for note in notes]
