"""The command that sets an FFN beside the attention of its block."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from ffnbench.cli import options
from ffnbench.cli.app import app, leave
from ffnbench.errors import FfnbenchError
from ffnbench.planning.block import BlockRequest

DEFAULTS = BlockRequest()
ATTENTION = "Attention"


def _size(flag: str, text: str) -> object:
    return typer.Option(flag, parser=options.whole, metavar="INT", rich_help_panel=ATTENTION, help=text)


Preset = Annotated[
    str | None,
    typer.Option(
        "--preset", metavar="NAME", rich_help_panel=options.MODEL, help="A published model: `ffnbench list presets`."
    ),
]
Config = Annotated[
    str | None,
    typer.Option("--config", metavar="PATH", rich_help_panel=options.MODEL, help="A model's config.json."),
]
Form = Annotated[
    str | None,
    typer.Option(
        "--variant", metavar="VARIANT", rich_help_panel=options.MODEL,
        help="The FFN, as in `compare`, where no model is named. \\[default: gelu]",
    ),
]  # fmt: skip
DModel = Annotated[
    int | None,
    typer.Option(
        "--d-model", parser=options.whole, metavar="INT", rich_help_panel=options.MODEL,
        help="Width of the model. \\[default: 768]",
    ),
]  # fmt: skip
DFF = Annotated[
    int | None,
    typer.Option(
        "--d-ff", parser=options.whole, metavar="INT", rich_help_panel=options.MODEL,
        help="Width per branch of the FFN. Default: the parameters of 4 * d_model, classic form.",
    ),
]  # fmt: skip
Bias = Annotated[
    bool | None,
    typer.Option("--bias/--no-bias", rich_help_panel=options.MODEL, help="Biases in the FFN and in attention."),
]
Causal = Annotated[
    bool | None,
    typer.Option(
        "--causal/--no-causal", rich_help_panel=ATTENTION,
        help="A token sees those before it, or all. Default: causal, but for encoders.",
    ),
]  # fmt: skip
Textbook = Annotated[
    bool,
    typer.Option(
        "--textbook/--no-textbook", rich_help_panel=ATTENTION,
        help="Measure attention as textbooks write it too: scores, mask, softmax, values.",
    ),
]  # fmt: skip
Lengths = Annotated[
    str,
    typer.Option(
        "--seq-len", metavar="LIST", rich_help_panel=options.WORKLOAD, help="Tokens in a sequence: 128,1024,8192."
    ),
]
CostOnly = Annotated[
    bool, typer.Option("--cost-only", rich_help_panel=options.MEASURING, help="Count, measure nothing: no torch.")
]
Out = Annotated[
    list[str] | None,
    typer.Option(
        "--out", "-o", metavar="PATH", rich_help_panel=options.OUTPUT,
        help="Write a file (.csv, .json, .md; a picture: .png, .svg, .pdf), or all of them into a folder/. Repeatable.",
    ),
]  # fmt: skip
Whole = Annotated[
    bool,
    typer.Option("--whole-model", rich_help_panel=options.MODEL, help="Count all layers of a model, by kind."),
]


@app.command(
    epilog="Examples: ffnbench block --preset bert-base --cost-only; "
    "ffnbench block --preset llama3-8b --seq-len 128,1024,8192 --cost-only; ffnbench block --d-model 512 --quick"
)
def block(
    preset: Preset = None,
    config: Config = None,
    variant: Form = None,
    d_model: DModel = None,
    d_ff: DFF = None,
    bias: Bias = None,
    whole_model: Whole = False,
    heads: Annotated[int | None, _size("--heads", "Query heads. Default: d_model / 64, or the model's.")] = None,
    kv_heads: Annotated[int | None, _size("--kv-heads", "Heads of keys and values. Default: as --heads.")] = None,
    head_dim: Annotated[int | None, _size("--head-dim", "Width of a head. Default: d_model / heads.")] = None,
    causal: Causal = None,
    textbook: Textbook = True,
    seq_len: Lengths = DEFAULTS.seq_len,
    batch: options.Batch = DEFAULTS.batch,
    dtype: options.Dtype = DEFAULTS.dtype,
    device: options.Device = DEFAULTS.device,
    mode: options.ModeName = DEFAULTS.mode,
    threads: options.Threads = None,
    backend: options.BackendName = DEFAULTS.backend,
    cost_only: CostOnly = False,
    workers: options.Workers = None,
    rounds: options.Rounds = None,
    quick: options.Quick = False,
    precision: options.Precision = None,
    budget: options.Budget = None,
    seed: options.Seed = DEFAULTS.seed,
    timeout: options.Timeout = DEFAULTS.timeout,
    format_: options.Format = "table",
    out: Out = None,
    wide: options.Wide = False,
    quiet: options.Quiet = False,
) -> None:
    """Set an FFN beside the attention of its block: parameters, FLOPs, KV bytes, latency, and the share of each."""
    request = BlockRequest(**{k: v for k, v in locals().items() if k in BlockRequest.__dataclass_fields__})
    from ffnbench import block as journey
    from ffnbench.cli.show import check_format, finish
    from ffnbench.report.block import block_tables
    from ffnbench.report.block_files import BLOCK_WRITERS
    from ffnbench.report.progress import ProgressBar
    from ffnbench.report.store import Outputs

    check_format(format_)
    model = _one_of(preset, config)
    if whole_model:
        _whole_model(request, model, format_, out, wide)
        return
    prepared = journey.prepare(request, model, measure=not cost_only)
    with Outputs(out or [], "block", tuple(BLOCK_WRITERS)) as outputs:
        if cost_only:
            report = prepared.priced()
        else:
            with ProgressBar(quiet=quiet) as progress:
                report = prepared.measure(progress)
        leave(finish(report, block_tables, outputs, format_, wide, BLOCK_WRITERS))


def _one_of(preset: str | None, config: str | None) -> str | None:
    if preset is not None and config is not None:
        raise FfnbenchError("--preset and --config both name a model", "give one of the two")
    return config if preset is None else preset


def _whole_model(request: BlockRequest, name: str | None, format_: str, out: list[str] | None, wide: bool) -> None:
    from ffnbench import block as journey
    from ffnbench.cli.show import show_tables
    from ffnbench.report.listing import as_file
    from ffnbench.report.store import Outputs

    with Outputs(out or [], "model", (".json", ".csv", ".md")) as outputs:
        found = journey.whole_model(request, name)
        show_tables(found.records, [found.table], format_, wide)
        for path in outputs.write(lambda suffix: as_file(found.records, [found.table], suffix).encode()):
            print(f"wrote {path}", file=sys.stderr)
