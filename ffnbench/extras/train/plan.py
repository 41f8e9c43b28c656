"""What is trained: the flags of `train` -> a plan. No torch.

Each run of a variant, at one rate and with one seed, is a case and a cell of its own,
so that --resume can go on after it, and it can be a job. The last cell times the
blocks: a step's forward and backward.

A block is x + attention(norm(x)), then x + FFN(norm(x)), with RMSNorm (Zhang and
Sennrich 2019), causal attention with rotary positions (Su et al. 2021), and no biases
but the FFN's. Bytes are the tokens: a table of 256 vectors stands before the blocks and
a matrix of 256 rows behind them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Any

from ffnbench.choices import Mode
from ffnbench.common.errors import FfnbenchError
from ffnbench.common.jsonable import LATER, least
from ffnbench.common.units import counted, percent
from ffnbench.extras.train.text import Parts, TrainingText, read_text
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

# keys of a variant that train does not have
WAYS_TO_RUN = ("backend", "weights", "compile", "freeze")


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """How a model is trained: with AdamW for so many steps, at a rate that warms up to
    `rate` and falls. `seed` draws the weights and the order of the text.
    """

    text: TrainingText
    steps: int = field(metadata=least(1))
    rate: float = field(metadata=least(0.0))
    seed: int = field(metadata=least(0))


# names of metrics
LOSS = "loss"  # on what is held out, at the end
HELD_OUT = "held_out_loss"  # on what is held out, after so many steps
CHOOSING = "choosing_loss"  # at the end, on the part that rates are chosen by
# only in files of earlier versions: the mean loss of the steps since the point before
# this one, and the seconds up to it
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
    """How far a model is trained: the steps made, and the seconds of one.

    On the way, `loss` is the last held-out loss. `diverged` is the step at which the
    loss was larger than any sensible one. The rest is known at the end: the losses on
    what is held out and on the part that rates are chosen by, and `curve`, which has
    the held-out loss after some numbers of steps.
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


HEAD_DIM = 32  # elements of a head of attention


@dataclass(frozen=True, slots=True, kw_only=True)
class DecoderSpec(AddedSpec):
    """A decoder: `layers` blocks around FFNs of the form `around`, each with weights of
    its own.
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
        """The attention of each block."""
        heads = self.d_model // HEAD_DIM
        return AttentionSpec(
            d_model=self.d_model,
            heads=heads,
            kv_heads=heads,
            head_dim=HEAD_DIM,
            causal=True,
        )

    def cost(self, case: Case, probe: Probe) -> Cost:
        """The cost of all blocks."""
        ffn_cost = cost_of(replace(case, ffn=self.around), probe)
        return decoder_cost(
            self, ffn_cost, seq_len=case.workload.seq_len, dtype=case.workload.dtype
        )

    def bytes_held(self, case: Case) -> int:
        """Bytes of the weights in float32 and of their gradients; of a case that is
        trained also those of the two moments of AdamW.
        """
        from ffnbench.run.resources import has_known_sizes

        params = self.attention.params
        if has_known_sizes(self.around):
            params += cost_of(replace(case, ffn=self.around), Probe()).params
        copies = 4 if trained_by(case) else 2
        return self.layers * params * copies * 4

    def build(self, *, device: Any, dtype: Any) -> Any:
        """The module of all blocks."""
        from ffnbench.extras.train.decoder import Decoder
        from ffnbench.worker.backends.building import build_module

        make_ffn = partial(build_module, self.around, device=device, dtype=dtype)
        return Decoder(
            self.attention, self.layers, make_ffn, device=device, dtype=dtype
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainCase(Case):
    """A case of `train`: `training` says how its model is trained; without it the
    blocks of the model are timed.
    """

    ffn: DecoderSpec
    training: Training | None = field(default=None, metadata=LATER)

    @property
    def recipe(self) -> Training:
        """How the model of a case that is not timed is trained."""
        assert self.training is not None
        return self.training

    @property
    def last_metric(self) -> str:
        """The metric that a run has when it is done: the loss of one that trains."""
        return LOSS if self.training else ""


def trained_by(case: Case) -> Training | None:
    """How a case is trained; None for one that is timed."""
    return case.training if isinstance(case, TrainCase) else None


def decoder_cost(
    spec: DecoderSpec, ffn_cost: Cost, *, seq_len: int, dtype: str
) -> Cost:
    """The cost of all blocks, from that of one FFN. FLOPs are those of matrix products,
    for a token; element-wise FLOPs and the bytes of activations are not known.
    """
    attention = attention_flops(spec.attention, seq_len)
    forward = backward = None
    if ffn_cost.flops_forward is not None:
        forward = spec.layers * (ffn_cost.flops_forward + attention)
    if ffn_cost.flops_backward is not None:
        backward = spec.layers * (ffn_cost.flops_backward + 2 * attention)
    # RMSNorms have d_model weights: two in each block, one behind the blocks
    beside_ffns = (
        spec.layers * (spec.attention.params + 2 * spec.d_model) + spec.d_model
    )
    params = beside_ffns + spec.layers * ffn_cost.params
    return replace(
        ffn_cost,
        params=params,
        params_active=beside_ffns + spec.layers * ffn_cost.params_active,
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
# the axis of the cells, and its values: a cell that trains, and the one that is timed
CELL_AXIS, TRAINING_CELL, TIMED_CELL = "of", "run", "step"
WORKERS, ROUNDS = 5, 8  # of the cell that is timed
MOST_SEEDS = 20
LEAST_PRINTABLE = 0.9  # share of the bytes of a text; less is noted


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
    _check_flags(request)
    workload = {"seq_len": request.context, "mode": Mode.TRAIN, "metrics": "latency"}
    compared = plan_compare(
        as_compare(request, budget=None, **workload), probe, d_model=D_MODEL
    )
    models = [_decoder_case(case, request.layers) for case in compared.cases]
    _refuse_untrainable(replace(compared, cases=tuple(models)))
    work = models[0].workload
    text, parts = read_text(request.text or "", work.batch, work.seq_len)
    runs = _training_cases(models, request, text)
    timed = [
        _case_at(model, ((CELL_AXIS, TIMED_CELL),), against=compared.reference)
        for model in models
    ]
    # the first runs are one of each model; a note on a model becomes one on its first
    first_runs = {
        model.label: run.label for model, run in zip(models, runs, strict=False)
    }
    notes = [
        replace(note, label=first_runs.get(note.label, "")) for note in compared.notes
    ]
    return replace(
        compared,
        cases=(*runs, *timed),
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


def _check_flags(request: TrainRequest) -> None:
    """Raise FfnbenchError for a number that is out of range, and for a key of a variant
    that train does not have.
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


def _training_cases(
    models: Sequence[TrainCase], request: TrainRequest, text: TrainingText
) -> list[TrainCase]:
    """A case for each seed, rate and model; the models of one seed and rate are
    compared.
    """
    cases = []
    for seed in range(request.seed, request.seed + request.seeds):
        for rate in learning_rates(request.lr):
            training = Training(text=text, steps=request.steps, rate=rate, seed=seed)
            point = ((CELL_AXIS, TRAINING_CELL), ("lr", rate), ("seed", seed))
            for model in models:
                case = _case_at(model, point, against=model.label)
                cases.append(replace(case, training=training))
    return cases


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
    """The case of a decoder whose FFNs are the network of this case."""
    values = {field.name: getattr(case, field.name) for field in fields(Case)}
    values["ffn"] = DecoderSpec(around=values["ffn"], layers=layers)
    # no routing is forced: experts get the tokens that the router learns to send
    values["workload"] = replace(case.workload, routing=None)
    return TrainCase(**values)


def _case_at(case: TrainCase, point: Point, against: str) -> TrainCase:
    """The case at a point of the plan, compared with the case `against` at the same
    point.
    """
    suffix = group_suffix(dict(point))
    return replace(
        case, label=case.label + suffix, point=point, against=against + suffix
    )


def _refuse_untrainable(plan: Plan) -> None:
    """Raise FfnbenchError for what can't be trained, and for variants with different
    workloads.
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
    """What a user should know of the text and the seeds before anything is trained."""
    notes = []
    if request.seeds == 1:
        notes.append("one seed gives no interval and no verdict: --seeds 3")
    if text.printable < LEAST_PRINTABLE:
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
