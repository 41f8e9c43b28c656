"""The commands; each is the Python function of that name too.

An annotation says what Python may pass; in the body an argument is what its reader in
app/options.py has made of that, which mypy does not see.
"""
# mypy: disable-error-code="arg-type"

from typing import TYPE_CHECKING

from ffnbench.app import options as o
from ffnbench.app.command import app as app
from ffnbench.app.command import command
from ffnbench.common import choices

if TYPE_CHECKING:
    from ffnbench.api.call import Call
    from ffnbench.gate.shown_check import ShownCheck as Check
    from ffnbench.report.answer import Answer, Drawing
    from ffnbench.report.shown_report import ShownReport as Report

# how the answers of commands are shown and written
SHOWN = {"format": (o.Format, "table"), "verbose": (o.Verbose, False)}
QUIET = {"quiet": (o.Quiet, False)}
TABLE = {**SHOWN, "out": (o.TableOut, ())}
WRITTEN = {**SHOWN, "out": (o.Out, ())}
MEASURED = {**WRITTEN, **QUIET, "resume": (o.Resume, False)}
CHECKED = {
    "on_unclear": (o.OnUnclear, "pass"),
    "format": (o.CheckFormat, "table"),
    "verbose": (o.Verbose, False),
    "out": (o.CheckOut, ()),
    **QUIET,
}


def _call() -> "Call":
    """The call that a body serves."""
    from ffnbench.api.call import this_call

    return this_call()


def _cpus() -> tuple[int]:
    """As many threads as this process may use CPUs."""
    from ffnbench.device.environment import usable_cpus

    return (usable_cpus(),)


@command(
    shows={**MEASURED, "on": (o.On, None)},
    suffixes=o.WITH_PICTURE,
    examples=[
        "ffnbench compare relu,gelu,swiglu --d-model 768 -o run.csv -o run.json",
        "ffnbench compare gelu,swiglu@d_ff=1536..2560/128 --d-model 768 -o d_ff.png",
        "ffnbench compare llama3-8b --seq-len 2Ki --precision 0.5% --budget 2m",
    ],
    docs="docs/methodology.md#the-method-on-one-page",
)
def compare(
    variants: o.Variants = "relu,gelu,swiglu",
    *,
    preset: o.Preset = None,
    d_model: o.DModel = None,
    d_ff: o.DFF = None,
    match: o.Match = "params",
    batch: o.Batch = 1,
    seq_len: o.SeqLen = None,
    dtype: o.DType = "float32",
    weights: o.Weights = "none",
    mode: o.Mode = "forward",
    device: o.Device = "auto",
    threads: o.Threads = None,
    cache: o.Cache = "hot",
    backend: o.Backend = "eager",
    metrics: o.Metrics = "latency,memory",
    layer: o.Layer = None,
    quick: o.Quick = False,
    precision: o.Precision = None,
    budget: o.Budget = None,
    workers: o.Workers = None,
    rounds: o.Rounds = None,
    seed: o.Seed = 0,
    runs: o.Runs = 1,
) -> "Report":
    """Measure FFN variants side by side.

    Shows parameters, FLOPs, latency and memory, at equal parameters. If
    flags have lists (--seq-len 1,128 or 1..4096), each combination is
    measured.

    >>> report = ffnbench.compare(["relu", "swiglu"], d_model=256, quick=True)
    >>> report.frame()[["label", "params", "latency_s", "ratio", "verdict"]]

    Fresh processes measure. A class of your own as a variant must stand in a file. A
    script that has such a class and calls this needs `if __name__ == "__main__":`
    around the call. Raises ffnbench.Error for a mistake, before anything
    is measured, and KeyboardInterrupt at Ctrl-C: its `.report` holds what was measured
    by then.
    """
    from ffnbench.plan.cases import plan_variants
    from ffnbench.plan.protocol import protocol_of

    call = _call()
    protocol = protocol_of(
        workers=workers,
        rounds=rounds,
        quick=quick,
        precision=precision,
        budget=budget,
        seed=seed,
        runs=runs,
    )
    flags = {
        "d_model": d_model,
        "dtype": dtype,
        "mode": mode,
        "threads": threads or _cpus(),
        "batch": batch,
        "seq_len": seq_len,
        "d_ff": d_ff,
        "device": device,
        "cache": cache,
        "backend": backend,
        "weights": weights,
    }
    probe = call.probe(protocol.timeout_s, device, variants)
    plan = plan_variants(
        variants,
        flags,
        probe=probe,
        protocol=protocol,
        preset=preset,
        match=match,
        metrics=metrics,
        layer=layer,
    )
    return call.measure(plan, probe, lenient=True)


@command(
    shows=TABLE,
    suffixes=o.WITH_TABLE,
    examples=[
        "ffnbench cost relu2,swiglu --d-model 4096 --seq-len 2Ki",
        "ffnbench cost --preset mixtral-8x7b --json",
        "ffnbench cost relu,swiglu --hardware h100,mi300x --dtype bf16",
    ],
    docs="docs/forms.md#widths",
)
def cost(
    variants: o.Variants = "relu,gelu,swiglu",
    *,
    preset: o.Preset = None,
    d_model: o.DModel = None,
    d_ff: o.DFF = None,
    match: o.Match = "params",
    batch: o.Batch = 1,
    seq_len: o.SeqLen = None,
    dtype: o.DType = "float32",
    weights: o.Weights = "none",
    mode: o.Mode = "forward",
    hardware: o.Hardware = None,
) -> "Report":
    """Count parameters, FLOPs and bytes; nothing is measured.

    If flags have lists (--seq-len 1,128 or 1..4096), each combination is
    counted. With --hardware there is a row for each of these machines.

    >>> costs = ffnbench.cost(["relu", "swiglu"], d_model=4096).frame()
    >>> costs[["label", "d_ff", "params", "flops_forward"]]
    """
    from ffnbench.plan.cases import plan_variants
    from ffnbench.plan.protocol import protocol_of

    machines = []
    if hardware:
        from ffnbench.record.hardware import machines_named

        machines = machines_named(hardware)
    call = _call()
    protocol = protocol_of()
    flags = {
        "d_model": d_model,
        "dtype": dtype,
        "mode": mode,
        "threads": _cpus(),
        "batch": batch,
        "seq_len": seq_len,
        "d_ff": d_ff,
        "device": ("cpu",),
        "weights": weights,
    }
    probe = call.probe(protocol.timeout_s, names=variants)
    plan = plan_variants(
        variants,
        flags,
        probe=probe,
        protocol=protocol,
        preset=preset,
        match=match,
        measured=False,
    )
    return call.count(plan, probe, machines)


@command(
    shows={**WRITTEN, **QUIET},
    suffixes=o.WITH_PICTURE,
    examples=[
        "ffnbench report run.json -v",
        "ffnbench report run.json -o run.md -o run.png",
        "ffnbench report check.json -o check.html",
    ],
    docs="docs/methodology.md#counts",
    shows_again=True,
)
def report(path: o.File) -> "Report | Check":
    """Show a saved run again.

    Every figure is computed again from the samples.
    """
    from ffnbench.report.store import holds_findings

    if holds_findings(path):
        from ffnbench.gate.shown_check import saved_check

        return saved_check(path)
    from ffnbench.api.saved_runs import load_to_show

    saved, difference = load_to_show(path)
    if difference:
        _call().progress.tell(f"note: {difference}")
    return saved


@command(
    shows=MEASURED,
    suffixes=o.WITH_PICTURE,
    examples=[
        "ffnbench block relu,gelu,swiglu --d-model 512 --layers 8",
        "ffnbench block --preset bert-base --cost-only",
        "ffnbench block llama3-8b --seq-len 128,1Ki,8Ki --cost-only",
    ],
    docs="docs/block.md#what-is-counted",
)
def block(
    variants: o.VariantsOrModel = None,
    *,
    preset: o.Preset = None,
    d_model: o.DModel = None,
    d_ff: o.DFF = None,
    layers: o.Layers = None,
    heads: o.Heads = None,
    kv_heads: o.KVHeads = None,
    batch: o.Batch = 1,
    seq_len: o.SeqLen = None,
    dtype: o.DType = "float32",
    mode: o.Mode = "forward",
    device: o.Device = "auto",
    threads: o.Threads = None,
    backend: o.Backend = "eager",
    cost_only: o.CostOnly = False,
    quick: o.Quick = False,
    precision: o.Precision = None,
    budget: o.Budget = None,
    workers: o.Workers = None,
    rounds: o.Rounds = None,
    seed: o.Seed = 0,
) -> "Report":
    """Measure FFN variants in their place, a stack of blocks.

    Shows the time of a block, the FFN's part of it, and whether an FFN alone
    tells the same ratio. If flags have lists (--seq-len 128,1024), each
    combination is measured.

    >>> ffnbench.block(preset="llama3-8b", seq_len=[128, 8192], cost_only=True)
    """
    from ffnbench.block.plan import plan_block
    from ffnbench.plan.protocol import protocol_of

    call = _call()
    protocol = protocol_of(
        workers=workers,
        rounds=rounds,
        quick=quick,
        precision=precision,
        budget=budget,
        seed=seed,
    )
    flags = {
        "d_model": d_model,
        "dtype": dtype,
        "mode": mode,
        "threads": threads or _cpus(),
        "batch": batch,
        "seq_len": seq_len,
        "d_ff": d_ff,
        "device": ("cpu",) if cost_only and device == ("auto",) else device,
        "backend": backend,
    }
    probe = call.probe(protocol.timeout_s, () if cost_only else device, variants)
    plan = plan_block(
        variants,
        flags,
        probe=probe,
        protocol=protocol,
        preset=preset,
        layers=layers,
        heads=heads,
        kv_heads=kv_heads,
    )
    if not cost_only:
        return call.measure(plan, probe)
    call.refuse_unread(
        "with --cost-only", "quick", "precision", "budget", "workers", "rounds", "seed"
    )
    return call.count(plan, probe, lenient=False)


@command(
    shows={**CHECKED, "update": (o.Update, False)},
    suffixes=o.OF_CHECK,
    checks=True,
    examples=[
        "ffnbench check baseline.json --tolerance 5% --format github",
        "ffnbench check baseline.json --exact-only",
        "ffnbench check baseline.json --budget 5m --update",
    ],
    docs="docs/ci.md#a-stored-baseline",
)
def check(
    baseline: o.Baseline,
    current: o.Current = None,
    *,
    tolerance: o.Tolerance = (),
    exact_only: o.ExactOnly = False,
    budget: o.Budget = 120.0,
    trust: o.Trust = (),
) -> "Check":
    """Measure a baseline again, and show what regressed.

    The exit code is 1 if a row regressed, and only then.

    >>> found = ffnbench.check("baseline.json", tolerance={"latency": "5%"})
    >>> assert found.ok, str(found)
    """
    from ffnbench.gate import checking

    return checking.check(
        baseline,
        current,
        _call(),
        tolerance=tolerance,
        exact_only=exact_only,
        budget=budget,
        trust=trust,
    )


@command(
    shows=CHECKED,
    suffixes=o.OF_CHECK,
    checks=True,
    examples=[
        "ffnbench ab mypkg.mlp:SwiGLU origin/main --d-model 1024 --tolerance 5%",
        "ffnbench ab swiglu --base-python .venv-old/bin/python --mode train",
        "ffnbench ab mypkg/mlp.py:SwiGLU v1.0 --exact-only --format github",
    ],
    docs="docs/ci.md#ab-in-a-pull-request",
)
def ab(
    variant: o.Code,
    base_rev: o.BaseRev = None,
    *,
    base_python: o.BasePython = None,
    base_source: o.BaseSource = None,
    base_env: o.BaseEnv = (),
    head_rev: o.HeadRev = None,
    d_model: o.DModel = None,
    d_ff: o.DFF = None,
    batch: o.Batch = 1,
    seq_len: o.SeqLen = None,
    dtype: o.DType = "float32",
    mode: o.Mode = "forward",
    device: o.Device = "auto",
    threads: o.Threads = None,
    tolerance: o.Tolerance = (),
    exact_only: o.ExactOnly = False,
    budget: o.Budget = 120.0,
    allow_mismatch: o.AllowMismatch = False,
) -> "Check":
    """Compare the old and the new code of one module.

    The exit code is 1 if a row regressed.

    Base, the old side, may be a git revision, a folder, an interpreter or
    an environment. Head, the new side, is the working tree, unless
    --head-rev names a revision. It needs no baseline, and decides as
    `ffnbench check` does.

    >>> found = ffnbench.ab("mypkg.mlp:SwiGLU", base_rev="origin/main", d_model=1024)
    """
    from ffnbench.gate import checking, sides

    base = sides.SideFlags(
        rev=base_rev, source=base_source, python=base_python, env=base_env
    )
    flags = {
        "d_model": d_model,
        "dtype": dtype,
        "mode": mode,
        "threads": threads or _cpus(),
        "batch": batch,
        "seq_len": seq_len,
        "d_ff": d_ff,
        "device": device,
    }
    return checking.ab(
        sides.variant_of_sides(variant),
        (base, sides.SideFlags(rev=head_rev)),
        flags,
        _call(),
        tolerance=tolerance,
        exact_only=exact_only,
        budget=budget,
        allow_mismatch=allow_mismatch,
    )


@command(
    shows={"out": (o.CurvesOut, ())},
    suffixes=choices.PICTURE_SUFFIXES,
    default_out="activations.png",
    examples=[
        "ffnbench plot-activations relu,gelu,silu -o curves.svg",
        "ffnbench plot-activations gelu,gelu_tanh -o gelu.pdf",
        "ffnbench plot-activations --range=-8:8 -o wide.png",
    ],
    docs="docs/student.md#activations",
)
def plot_activations(
    activations: o.Activations = None, *, range: o.Range = "-4:4"
) -> "Drawing":
    """Draw activations and their derivatives.

    Without -o, the picture is written to activations.png.

    >>> ffnbench.plot_activations(["relu", "gelu", "silu"]).save("curves.png")
    """
    from ffnbench.activations.describing import draw_activations
    from ffnbench.plan.protocol import DEFAULT_TIMEOUT_S
    from ffnbench.report.answer import Drawing

    probe = _call().probe(DEFAULT_TIMEOUT_S)
    figure, files = draw_activations(activations, range, probe)
    return Drawing(figure=figure, files=files)


@command(
    shows={**TABLE, **QUIET},
    suffixes=o.WITH_TABLE,
    examples=[
        "ffnbench activations -v",
        "ffnbench activations gelu,silu,mish",
        "ffnbench activations relu,gelu -o facts.csv",
    ],
    docs="docs/student.md#activations",
)
def activations(activations: o.Activations = None) -> "Answer":
    """Show facts of activations.

    >>> facts = ffnbench.activations(["gelu", "silu"]).frame()
    >>> facts[["activation", "formula", "minimum"]]
    """
    from ffnbench.activations.describing import describe_activations
    from ffnbench.plan.protocol import DEFAULT_TIMEOUT_S
    from ffnbench.report.answer import Answer

    probe = _call().probe(DEFAULT_TIMEOUT_S)
    table = describe_activations(activations, probe)
    return Answer(table=table, stem="activations")


@command(
    shows=SHOWN,
    examples=[
        "ffnbench list variants",
        "ffnbench list keys -v",
        "ffnbench list presets --json",
    ],
    docs="docs/forms.md#names-that-mean-different-things",
)
def list_(what: o.Topic = "variants") -> "Answer":
    """Show the names that a command takes."""
    from ffnbench.report.answer import Answer
    from ffnbench.report.listing import listing

    return Answer(table=listing(what), stem="list")


@command(
    shows={**SHOWN, **QUIET},
    examples=["ffnbench env", "ffnbench env -v", "ffnbench env --json"],
    docs="docs/methodology.md#what-an-interval-does-not-cover",
)
def env() -> "Answer":
    """Show this machine, and what makes it noisy now.

    Shows what is stored with every run: machine, torch, settings.
    """
    from ffnbench.api.this_machine import environment
    from ffnbench.report.answer import Answer

    return Answer(table=environment(_call().world), stem="env")


@command(
    shows=TABLE,
    suffixes=o.WITH_TABLE,
    examples=[
        "ffnbench inspect deepseek-v3",
        "ffnbench inspect mixtral-8x7b -o parts.csv",
        "ffnbench inspect path/to/config.json --json",
    ],
    docs="docs/models.md#all-parameters-of-a-model",
)
def inspect(
    model: o.Model,
    *,
    seq_len: o.TokensOfModel = 4096,
    attention: o.Convention = "causal",
) -> "Answer":
    """Show the parameters of a model by part and layer, and its FLOPs a token.

    >>> rows = ffnbench.inspect("mixtral-8x7b").frame()
    >>> rows[["part", "layers", "params", "params_active"]]
    """
    from ffnbench.inspecting.table import answer_of

    return answer_of(model, seq_len, attention)
