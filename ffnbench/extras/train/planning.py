"""What is trained, on which text: the flags of `train` -> a plan.

Each run of a variant, at one rate and by one seed, is a case and a cell of its own, so that it can be gone on with, and
be a job. Two cells behind them time the blocks: a step's forward and backward, and one token.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

from ffnbench.choices import Mode
from ffnbench.common.errors import FfnbenchError
from ffnbench.common.units import counted, percent
from ffnbench.extras.train.decoder import DecoderSpec, TrainCase
from ffnbench.extras.train.kind import TRAIN
from ffnbench.extras.train.text import Parts, Text, Training, read_text
from ffnbench.ffn.spec import read_positive
from ffnbench.plan import OWN, Case, Note, NoteKind, Plan, Point, Probe, Protocol, group_suffix
from ffnbench.planning.compare import as_compare, plan_compare
from ffnbench.planning.effort import check_budget
from ffnbench.planning.fields import cut
from ffnbench.request import AddedRequest, Seconds, Texts

D_MODEL = 128  # where nothing says how wide
OF, STEP, TOKEN, RUN = "of", "step", "token", "run"  # the axis of the cells, and its values
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
    """Parse, check and size everything; raises FfnbenchError with a hint for whatever is wrong."""
    for name in ("steps", "seeds", "layers", "context"):
        read_positive(name, getattr(request, name))
    if request.seeds > MOST_SEEDS:
        raise FfnbenchError(f"--seeds {request.seeds} are more than {MOST_SEEDS}", "3 to 5 tell what a probe can tell")
    if request.budget is not None:
        check_budget(request.budget)
    workload = {"seq_len": request.context, "mode": Mode.TRAIN, "metrics": "latency"}
    compared = plan_compare(as_compare(request, budget=None, **workload), probe, d_model=D_MODEL)
    models = [_model(case, request.layers) for case in compared.cases]
    _refuse_others(replace(compared, cases=tuple(models)))
    work = models[0].workload
    text, parts = read_text(request.text or "", work.batch, work.seq_len)
    cases = []
    for seed in range(request.seed, request.seed + request.seeds):
        for rate in rates_of(request.lr):
            training = Training(text=text, steps=request.steps, rate=rate, seed=seed)
            point = ((OF, RUN), ("lr", rate), ("seed", seed))
            cases += [replace(_at(model, point, against=model.label), training=training) for model in models]
    first_runs = {model.label: run.label for model, run in zip(models, cases, strict=False)}
    one_token = replace(work, batch=1, seq_len=1, mode=Mode.FORWARD)
    for of, fed in ((STEP, work), (TOKEN, one_token)):  # they have what a budget leaves when all are trained
        cases += [_at(replace(model, workload=fed), ((OF, of),), against=compared.reference) for model in models]
    notes = [replace(note, label=first_runs.get(note.label, "")) for note in compared.notes]
    return replace(
        compared,
        cases=tuple(cases),
        reference=first_runs[compared.reference],
        kind=TRAIN,
        metrics=("latency",),
        protocol=Protocol(
            workers=WORKERS, rounds=ROUNDS, seed=request.seed, timeout_s=request.timeout, budget_s=request.budget
        ),
        notes=(*notes, *_notes(request, text, parts)),
    )


def rates_of(text: str) -> tuple[float, ...]:
    """The rates of a list, each once. Raises FfnbenchError for what is no rate."""
    rates = []
    for part in cut("--lr ", text, "1e-3,3e-3,6e-3"):
        try:
            rates.append(float(part))
        except ValueError:
            raise FfnbenchError(
                f"--lr {part!r} is no number", "for example --lr 3e-3, or --lr 1e-3,3e-3,6e-3"
            ) from None
        if not 0 < rates[-1] < 10:
            raise FfnbenchError(f"--lr {part} is out of range", "a rate is above 0 and below 10: --lr 3e-3")
    return tuple(dict.fromkeys(rates))


def _model(case: Case, layers: int) -> TrainCase:
    """The case of a decoder with its network."""
    known = {one.name: getattr(case, one.name) for one in fields(Case)}
    known["ffn"] = DecoderSpec(around=known["ffn"], layers=layers)
    known["workload"] = replace(case.workload, routing=None)  # experts are fed as they learn it
    return TrainCase(**known)


def _at(case: TrainCase, point: Point, against: str) -> TrainCase:
    """The case at a point, compared with another one there."""
    suffix = group_suffix(dict(point))
    return replace(case, label=case.label + suffix, point=point, against=against + suffix)


def _refuse_others(plan: Plan) -> None:
    """Raise FfnbenchError for what can't be trained, and for variants that are fed differently."""
    first = plan.cases[0].workload
    if plan.is_sweep:
        raise FfnbenchError(
            "a key has several values, and here each variant is typed out", "for example swiglu a=swiglu@d_ff=512"
        )
    if first.dtype == "float16":
        raise FfnbenchError("float16 needs its gradients scaled to be trained with", "use --dtype bfloat16")
    for case in plan.cases:
        if case.workload != first or not first.eager or case.arm != OWN:
            raise FfnbenchError(
                f"{case.label!r} has a workload of its own, and here all variants are fed and run alike",
                "leave out @backend, @dtype, @threads and the like",
            )


def _notes(request: TrainRequest, text: Text, parts: Parts) -> list[Note]:
    """What a reader should know of the text and the seeds, before anything is trained."""
    said = []
    if request.seeds == 1:
        said.append("one seed gives no interval and no verdict: --seeds 3")
    if text.printable < JUNK:
        said.append(
            f"{percent(1 - text.printable)} of the bytes of {text.path} are no text: they are learnt all the same"
        )
    times = request.steps * request.batch * request.context / len(parts.train)
    if times > 1:
        said.append(f"each byte of the text is seen {times:.1f} times: a longer text would be learnt otherwise")
    if parts.by_place:
        said.append(f"{counted(text.held_out_bytes, 'byte')} at the end of {counted(text.files, 'file')} are held out")
    return [Note(text=one, kind=NoteKind.GENERAL) for one in said]
