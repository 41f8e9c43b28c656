"""Every option once: its names, its panel, what stands for its value, and its help.

A command takes them as annotations of its parameters: `d_model: o.DModel = None` is `--d-model`. A value is a text, as
it was typed: cli/commands.py makes a request of all of them. What few people use is `hidden`: `--help-all` shows it.
"""

from __future__ import annotations

from typing import Annotated

from typer import Argument, Option

from ffnbench.cli.words import words_for
from ffnbench.features import of_features

Text = str | None
Texts = list[str] | None

MODEL, WIDTHS, WORKLOAD, OUTPUT = "Model", "Widths", "Workload", "Output"
MEASURED, EFFORT = "What is measured", "How long"
ATTENTION, CURVES, SIDES, LIMITS = "Attention", "Curves", "Sides", "Limits"

# Arguments, typed by their place

VariantsPlaced = Annotated[
    Texts,
    Argument(
        metavar="VARIANT",
        help="Names of `ffnbench list variants`, swiglu@d_ff=64, file.py:Class.",
        autocompletion=words_for("variants"),
    ),
]
VariantPlaced = Annotated[
    Text,
    Argument(metavar="VARIANT|MODEL", help="An FFN as in `compare`, or a model.", autocompletion=words_for("variants")),
]
Code = Annotated[
    str,
    Argument(
        metavar="VARIANT",
        help="package.module:Attr, path/to/file.py:Attr, or a name of `ffnbench list variants`.",
        autocompletion=words_for("variants"),
    ),
]
BaseRevPlaced = Annotated[Text, Argument(metavar="BASE_REV", help="A git revision, as --base-rev.")]
ActivationsPlaced = Annotated[
    Texts,
    Argument(metavar="NAME", help="Activations, as --activations has them.", autocompletion=words_for("activations")),
]
Baseline = Annotated[
    str, Argument(metavar="BASELINE", help="A .json that `ffnbench compare ... -o baseline.json` made.")
]
Current = Annotated[
    Text, Argument(metavar="CURRENT", help="A saved run to hold against it, in place of measuring now.")
]
Files = Annotated[
    list[str],
    Argument(metavar="FILE", help="A .json of `compare`, `block` or `activations --time`; several: side by side."),
]
Followed = Annotated[
    list[str], Argument(metavar="FILE", help="A .json of `compare -o` or `check --append`, or a folder of them.")
]
Topic = Annotated[
    str,
    Argument(
        metavar="WHAT",
        help="variants, keys, activations, rules, presets, dtypes, backends or hardware.",
        autocompletion=words_for("what"),
    ),
]
Model = Annotated[
    str,
    Argument(
        metavar="CONFIG|PRESET",
        help="A config.json, its folder, a preset, or ORG/NAME in the hub's cache.",
        autocompletion=words_for("preset"),
    ),
]

# Which FFNs

Variants = Annotated[
    Text,
    Option(
        rich_help_panel=MODEL,
        metavar="LIST",
        autocompletion=words_for("variants"),
        help="`ffnbench list variants`, with keys: swiglu@d_ff=64; LABEL=file.py:Class.",
        hidden=True,
    ),
]
Variant = Annotated[
    Text,
    Option(
        rich_help_panel=MODEL,
        metavar="VARIANT",
        help="The FFN, where no model is named.",
        show_default="gelu",
        autocompletion=words_for("variants"),
    ),
]
Preset = Annotated[
    Text,
    Option(
        rich_help_panel=WIDTHS,
        metavar="NAME|PATH",
        help="`ffnbench list presets`, or a config.json.",
        autocompletion=words_for("preset"),
    ),
]
DModel = Annotated[
    Text,
    Option(
        rich_help_panel=WIDTHS,
        metavar="INT",
        show_default=False,
        help="Width of the model; 768 where none is named.",
    ),
]
TrainedWidth = Annotated[
    Text,
    Option("--d-model", rich_help_panel=WIDTHS, metavar="INT", help="Width of the model; 128 where none is named."),
]
ModuleWidth = Annotated[Text, Option("--d-model", rich_help_panel=WIDTHS, metavar="INT", help="Width of the modules.")]
DFF = Annotated[
    Text,
    Option(
        "--d-ff",
        rich_help_panel=WIDTHS,
        metavar="INT",
        show_default=False,
        help="Width of a branch; 4 * d_model.",
    ),
]
Bias = Annotated[
    bool | None,
    Option(rich_help_panel=MODEL, help="Biases in all linear layers.", show_default="as the named model", hidden=True),
]
Match = Annotated[
    Text,
    Option(
        rich_help_panel=WIDTHS,
        metavar="WHAT",
        show_default=False,
        help="params, flops or none made equal.",
        autocompletion=words_for("match"),
    ),
]
MultipleOf = Annotated[
    Text,
    Option(
        rich_help_panel=WIDTHS,
        metavar="INT",
        help="Round widths to this.",
        show_default="8, or the rule's own",
        hidden=True,
    ),
]
Rule = Annotated[
    Text,
    Option(
        rich_help_panel=WIDTHS,
        metavar="NAME",
        help="Size gated forms by a published rule: `ffnbench list rules`.",
        autocompletion=words_for("rule"),
        hidden=True,
    ),
]
Ratio = Annotated[
    Text, Option(rich_help_panel=WIDTHS, metavar="X", help="Expansion, d_ff / d_model.", show_default="4", hidden=True)
]
FfnDimMultiplier = Annotated[
    Text, Option(rich_help_panel=WIDTHS, metavar="X", help="Llama's ffn_dim_multiplier, for --rule llama.", hidden=True)
]
Dropout = Annotated[
    Text, Option(rich_help_panel=MODEL, metavar="P", help="Dropout on the hidden layer, in train mode.", hidden=True)
]
Reference = Annotated[
    Text,
    Option(
        rich_help_panel=MODEL,
        metavar="LABEL",
        help="What ratios are relative to.",
        show_default="the first variant",
        hidden=True,
    ),
]
Init = Annotated[
    Text,
    Option(
        rich_help_panel=MODEL,
        metavar="NAME",
        help="Weights: torch, he_xavier or normal.",
        hidden=True,
        autocompletion=words_for("init"),
    ),
]

# What an FFN is fed, and what it runs on

Batch = Annotated[Text, Option(rich_help_panel=WORKLOAD, metavar="INT", help="Sequences in a call.")]
SeqLen = Annotated[
    Text,
    Option(
        rich_help_panel=WORKLOAD,
        metavar="INT",
        help="Tokens in a sequence; 512, or 64 if d_model > 2,048.",
        show_default=False,
    ),
]
BlockSeqLen = Annotated[
    Text,
    Option("--seq-len", rich_help_panel=WORKLOAD, metavar="INT", help="Tokens in a sequence: 128,1024, or 128..8192."),
]
DType = Annotated[
    Text,
    Option(
        "--dtype",
        rich_help_panel=WORKLOAD,
        metavar="NAME",
        show_default=False,
        help="float32 (or bfloat16, float16, float64).",
        autocompletion=words_for("dtype"),
    ),
]
TrainedDType = Annotated[
    Text,
    Option(
        "--dtype",
        rich_help_panel=WORKLOAD,
        metavar="NAME",
        autocompletion=words_for("dtype"),
        help="float32 (or bfloat16 for matrix products; weights stay float32).",
        show_default=False,
    ),
]
CachedDType = Annotated[
    Text,
    Option(
        "--dtype",
        rich_help_panel=WORKLOAD,
        metavar="NAME",
        autocompletion=words_for("dtype"),
        help="Of keys and values.",
    ),
]
Mode = Annotated[
    Text,
    Option(
        rich_help_panel=WORKLOAD,
        metavar="NAME",
        show_default=False,
        help="forward (or train, backward).",
        autocompletion=words_for("mode"),
    ),
]
Device = Annotated[
    Text,
    Option(
        rich_help_panel=WORKLOAD,
        metavar="NAME",
        show_default=False,
        help="auto: a GPU if there is one (or cpu, cuda:1).",
        autocompletion=words_for("device"),
    ),
]
Threads = Annotated[
    Text,
    Option(
        rich_help_panel=WORKLOAD,
        metavar="INT",
        show_default=False,
        help="CPU threads; all of this process.",
    ),
]
Backend = Annotated[
    Text,
    Option(
        rich_help_panel=WORKLOAD,
        metavar="NAME",
        show_default=False,
        help="eager, or one of `ffnbench list backends`.",
        autocompletion=words_for("backend"),
    ),
]
Routing = Annotated[
    Text,
    Option(
        rich_help_panel=WORKLOAD,
        metavar="NAME",
        help="How tokens spread over experts: uniform, skewed, trained-like.",
        show_default="uniform",
        autocompletion=words_for("routing"),
        hidden=True,
    ),
]
Time = Annotated[
    Text,
    Option(
        rich_help_panel=WORKLOAD,
        metavar="NAME",
        autocompletion=words_for("time"),
        hidden=True,
        help="The latency on a GPU: wall, what a caller waits for, or device, what the GPU works.",
        show_default="wall; device with --cache cold",
    ),
]
Cache = Annotated[
    Text,
    Option(
        rich_help_panel=WORKLOAD,
        metavar="NAME",
        autocompletion=words_for("cache"),
        hidden=True,
        help="What the last-level cache holds before a call: hot, what the last one left, or cold, nothing of it.",
    ),
]
MatmulPrecision = Annotated[
    Text,
    Option(
        rich_help_panel=WORKLOAD,
        metavar="NAME",
        autocompletion=words_for("matmul_precision"),
        hidden=True,
        help="Of float32 matrix products: highest, high (TF32) or medium (bfloat16 inside), as torch has it.",
    ),
]
ReducedReductions = Annotated[
    bool,
    Option(
        rich_help_panel=WORKLOAD, help="On a GPU, let 16-bit matrix products add partial sums in 16 bits.", hidden=True
    ),
]
Hardware = Annotated[
    Text,
    Option(
        rich_help_panel=WORKLOAD,
        metavar="LIST",
        help="Machines: `ffnbench list hardware`, or a .toml of your own.",
        autocompletion=words_for("hardware"),
    ),
]
TensorParallel = Annotated[
    Text,
    Option(
        "--tensor-parallel",
        "--tp",
        rich_help_panel=WORKLOAD,
        metavar="INT",
        help="Split d_ff over so many devices, whose outputs a ring adds.",
    ),
]
Elements = Annotated[
    Text, Option(rich_help_panel=WORKLOAD, metavar="INT", help="With --time: how many: 4096,1Mi or 1Ki..1Mi.")
]

# Attention, models

Heads = Annotated[
    Text,
    Option(
        rich_help_panel=ATTENTION,
        metavar="INT",
        help="Query heads.",
        show_default="d_model / 64, or the model's",
        hidden=True,
    ),
]
KVHeads = Annotated[
    Text,
    Option(
        "--kv-heads",
        rich_help_panel=ATTENTION,
        metavar="INT",
        help="Heads of keys and values.",
        show_default="as --heads",
        hidden=True,
    ),
]
HeadDim = Annotated[
    Text,
    Option(
        rich_help_panel=ATTENTION, metavar="INT", help="Width of a head.", show_default="d_model / heads", hidden=True
    ),
]
Causal = Annotated[
    bool | None,
    Option(
        rich_help_panel=ATTENTION,
        help="A token sees those before it, or all.",
        show_default="but for encoders",
        hidden=True,
    ),
]
Textbook = Annotated[
    bool, Option(rich_help_panel=ATTENTION, help="Measure attention as textbooks write it too.", hidden=True)
]
WholeModel = Annotated[
    bool,
    Option(
        "--whole-model", rich_help_panel=MODEL, help="All parameters by part: embeddings, attention, FFN, norms, head."
    ),
]
Length = Annotated[
    Text,
    Option(
        rich_help_panel=WORKLOAD,
        metavar="INT",
        help="At so many tokens: FLOPs, keys and values by kind of layer, above all parameters by part.",
    ),
]

# Activations

Activations = Annotated[
    Text,
    Option(
        rich_help_panel=CURVES,
        metavar="LIST",
        autocompletion=words_for("activations"),
        help="relu,swish@beta=0.5,file.py:function; names: `ffnbench list activations`.",
    ),
]
Range = Annotated[
    Text, Option("--range", rich_help_panel=CURVES, metavar="LO:HI", help="Range of x; write a negative LO with =.")
]
Derivative = Annotated[
    bool | None, Option(rich_help_panel=CURVES, help="The derivative beside f.", show_default="derivative")
]
Gated = Annotated[
    bool, Option("--gated", rich_help_panel=CURVES, help="Surfaces act(g) * u of the gated forms instead.")
]
OperationsTimed = Annotated[
    bool, Option("--time", rich_help_panel=MEASURED, help="Measure the operations, forward and backward, against relu.")
]
Followable = Annotated[
    Text,
    Option(
        rich_help_panel=CURVES,
        metavar="NAME",
        help="ratio, latency, params, flops or peak.",
        show_default=("ratio; latency where there is none; what is exact where it has changed"),
    ),
]

# What is measured, and how long

Metrics = Annotated[
    Text,
    Option(
        rich_help_panel=MEASURED,
        metavar="LIST",
        autocompletion=words_for("metrics"),
        help="latency, memory, ceilings, sparsity, routing; error: how far outputs are from float64, alone it times "
        "nothing.",
        hidden=True,
    ),
]
Control = Annotated[
    bool,
    Option(
        "--control",
        rich_help_panel=MEASURED,
        hidden=True,
        help="Measure the reference twice: where it differs from itself, this machine can't be trusted now.",
    ),
]
CostOnly = Annotated[bool, Option("--cost-only", rich_help_panel=MEASURED, help="Count, measure nothing: no torch.")]
Seed = Annotated[
    Text,
    Option(
        rich_help_panel=MEASURED, metavar="INT", help="Seed of inputs, weights and the order of rounds.", hidden=True
    ),
]
Timer = Annotated[bool, Option("--timer", rich_help_panel=MEASURED, help="Measure the harness: an empty call, a tick.")]
Ceilings = Annotated[
    bool,
    Option(
        "--ceilings", rich_help_panel=MEASURED, help="Measure what this machine can do: products, reads by cache; 5 s."
    ),
]
Quick = Annotated[bool, Option("--quick", rich_help_panel=EFFORT, help="A first look: 5 workers of 4 rounds.")]
Precision = Annotated[
    Text,
    Option(
        rich_help_panel=EFFORT,
        metavar="PCT",
        show_default=False,
        help="Until ratios are known to +-PCT %; +-1 %.",
    ),
]
Budget = Annotated[Text, Option(rich_help_panel=EFFORT, metavar="TIME", help="Be done in so long at most, 90s or 5m.")]
Workers = Annotated[
    Text,
    Option(
        rich_help_panel=EFFORT,
        metavar="INT",
        help="Exactly so many fresh processes; intervals are over them.",
        hidden=True,
    ),
]
RunBudget = Annotated[
    Text, Option("--budget", rich_help_panel=EFFORT, metavar="TIME", help="Time of one run, 15s or 1m.")
]
Rounds = Annotated[
    Text,
    Option(
        rich_help_panel=EFFORT,
        metavar="INT",
        help="Exactly so many rounds in each; one measures each case once.",
        hidden=True,
    ),
]
Timeout = Annotated[
    Text,
    Option(rich_help_panel=EFFORT, metavar="TIME", help="Give up a case that takes longer for one step.", hidden=True),
]
Repeated = Annotated[
    Text,
    Option(
        "--runs",
        rich_help_panel=EFFORT,
        metavar="INT",
        hidden=True,
        help="Measure so many times, each with fresh processes, and keep all: a baseline.",
    ),
]
Pause = Annotated[
    Text,
    Option(
        rich_help_panel=EFFORT, metavar="TIME", help="Wait so long between two runs.", show_default="60s", hidden=True
    ),
]
Shard = Annotated[
    Text,
    Option(
        rich_help_panel=EFFORT,
        metavar="I/N",
        hidden=True,
        help="Measure one of several parts of the groups: 2/8. `ffnbench report` joins the files of all.",
    ),
]
Resume = Annotated[
    bool,
    Option(
        "--resume",
        rich_help_panel=EFFORT,
        hidden=True,
        help="Go on with the file of -o: what it has of these groups is not measured again.",
    ),
]
Wait = Annotated[
    bool,
    Option(
        "--wait",
        rich_help_panel=EFFORT,
        help="Wait while another run of ffnbench measures on this machine.",
        hidden=True,
    ),
]
On = Annotated[
    Text,
    Option(
        rich_help_panel=EFFORT,
        metavar="slurm|local",
        hidden=True,
        help="Measure each group as a job of submitit, on slurm, or local: one after another in processes that outlive "
        "this one. Needs -o FILE.json; docs/cluster.md has a session.",
    ),
]
Slurm = Annotated[
    Texts,
    Option(
        rich_help_panel=EFFORT,
        metavar="KEY=VALUE,...",
        hidden=True,
        help="With --on slurm: fields of submitit's, as in partition=gpu,gpus_per_node=1. Nodes are exclusive unless "
        "exclusive=false is said. Repeatable.",
    ),
]
Repeats = Annotated[Text, Option(rich_help_panel=EFFORT, metavar="INT", help="How many runs.")]
Probes = Annotated[
    Text,
    Option(
        rich_help_panel=EFFORT, metavar="INT", help="Measure at most so many commits now; one may be measured again."
    ),
]

# Training

Layers = Annotated[Text, Option(rich_help_panel=WIDTHS, metavar="INT", help="Blocks of the model.")]
Context = Annotated[Text, Option(rich_help_panel=WORKLOAD, metavar="INT", help="Bytes of a sequence.")]
Steps = Annotated[Text, Option(rich_help_panel=EFFORT, metavar="INT", help="Steps of AdamW.")]
Seeds = Annotated[
    Text, Option(rich_help_panel=EFFORT, metavar="INT", help="Runs of each variant; intervals are over them.")
]
LearningRates = Annotated[
    Text,
    Option(
        "--lr",
        rich_help_panel=EFFORT,
        metavar="LIST",
        help="Learning rate; of several each variant is judged at its best.",
    ),
]
Learnt = Annotated[
    Text,
    Option(
        "--text",
        rich_help_panel=WORKLOAD,
        metavar="PATH",
        help="What is learnt: a file or a folder.",
        show_default="the source of Python's standard library",
    ),
]

# Sides and limits of a check

BaseRev = Annotated[
    Text, Option(rich_help_panel=SIDES, metavar="REV", help="Base is this git revision, checked out for the while.")
]
BasePython = Annotated[
    Text, Option(rich_help_panel=SIDES, metavar="PATH", help="Base runs in this interpreter; it needs torch alone.")
]
BaseSource = Annotated[
    Text, Option(rich_help_panel=SIDES, metavar="DIR", help="Base is the code in this folder.", hidden=True)
]
BaseEnv = Annotated[
    Texts,
    Option(
        rich_help_panel=SIDES, metavar="NAME:VALUE", help="A variable of base's processes. Repeatable.", hidden=True
    ),
]
HeadRev = Annotated[
    Text,
    Option(
        rich_help_panel=SIDES, metavar="REV", help="Head is this revision, not the working tree as it is.", hidden=True
    ),
]
HeadPython = Annotated[
    Text, Option(rich_help_panel=SIDES, metavar="PATH", help="Head runs in this interpreter.", hidden=True)
]
HeadSource = Annotated[
    Text, Option(rich_help_panel=SIDES, metavar="DIR", help="Head is the code in this folder.", hidden=True)
]
HeadEnv = Annotated[
    Texts,
    Option(
        rich_help_panel=SIDES, metavar="NAME:VALUE", help="A variable of head's processes. Repeatable.", hidden=True
    ),
]
Good = Annotated[Text, Option(rich_help_panel=SIDES, metavar="REV", help="A revision that is fast enough.")]
Bad = Annotated[Text, Option(rich_help_panel=SIDES, metavar="REV", help="A later one that is slow.")]
Tolerance = Annotated[
    Texts,
    Option(
        rich_help_panel=LIMITS,
        metavar="[[CASE:]METRIC=]PCT%",
        show_default="latency=5%",
        autocompletion=words_for("tolerance"),
        help="How much a metric may grow; latency is the ratio to the reference. Repeatable.",
    ),
]
FailAbove = Annotated[
    Text, Option(rich_help_panel=LIMITS, metavar="PCT%", help="How much slower is too slow.", show_default="5%")
]
ExactOnly = Annotated[
    bool, Option("--exact-only", rich_help_panel=LIMITS, help="Parameters, FLOPs and bytes alone; nothing is timed.")
]
AcrossMachines = Annotated[
    bool,
    Option(
        "--across-machines",
        rich_help_panel=LIMITS,
        help="Compare ratios with another kind of machine too.",
        hidden=True,
    ),
]
Absolute = Annotated[
    bool,
    Option("--absolute", rich_help_panel=LIMITS, help="Check seconds too, on the very same machine only.", hidden=True),
]
AllowMismatch = Annotated[
    bool,
    Option(
        "--allow-mismatch",
        rich_help_panel=LIMITS,
        help="Go on, and pass, where head's output has changed.",
        hidden=True,
    ),
]
Trust = Annotated[
    Texts,
    Option(rich_help_panel=LIMITS, metavar="TARGET", help="Let this code run, which the baseline names. Repeatable."),
]
OnUnclear = Annotated[
    Text,
    Option(
        rich_help_panel=LIMITS,
        metavar="pass|fail",
        help="Exit 0 (pass) or 4 (fail) where the run can't tell.",
        autocompletion=words_for("on_unclear"),
    ),
]
Update = Annotated[
    bool, Option("--update", rich_help_panel=LIMITS, help="Accept what was found: it becomes the baseline.")
]
Append = Annotated[
    bool,
    Option("--append", rich_help_panel=LIMITS, help="Add this run to the baseline's, unless it is busy or REGRESSED."),
]

# How an answer is shown and written

Format = Annotated[
    Text,
    Option(
        "--format",
        "-f",
        rich_help_panel=OUTPUT,
        metavar="NAME",
        show_default=False,
        help="On stdout: table (or markdown, latex, csv, json).",
        autocompletion=words_for("format"),
    ),
]
CheckFormat = Annotated[
    Text,
    Option(
        "--format",
        "-f",
        rich_help_panel=OUTPUT,
        metavar="NAME",
        show_default=False,
        help="On stdout: table (or markdown, latex, csv, json, github).",
        autocompletion=words_for("format"),
    ),
]
Json = Annotated[bool, Option("--json", rich_help_panel=OUTPUT, help="Short for --format json.")]
Verbose = Annotated[bool, Option("--verbose", "-v", rich_help_panel=OUTPUT, help="Every column and all details.")]
Columns = Annotated[
    Text,
    Option(
        rich_help_panel=OUTPUT,
        metavar="LIST",
        hidden=True,
        help="Only these, named as in the CSV or by their heading: params,latency,ratio; +gflops adds one.",
    ),
]
Sort = Annotated[
    Text,
    Option(
        rich_help_panel=OUTPUT,
        metavar="COLUMN",
        hidden=True,
        help="Sort rows by a column; -latency: largest first. Rows of one reference stay together.",
    ),
]
Quiet = Annotated[bool, Option("--quiet", "-q", rich_help_panel=OUTPUT, help="No progress on stderr.", hidden=True)]
PICTURES = ", ".join((*of_features("suffixes"), ".png", ".svg", ".pdf"))  # and the files of features
Out = Annotated[
    Texts,
    Option(
        "--out",
        "-o",
        rich_help_panel=OUTPUT,
        metavar="PATH",
        help=f"{PICTURES}, .csv, .json, .md, .tex, or folder/ for all. Repeatable.",
    ),
]
TableOut = Annotated[
    Texts,
    Option(
        "--out",
        "-o",
        rich_help_panel=OUTPUT,
        metavar="PATH",
        help="A file (.html, .csv, .json, .md, .tex), or a folder/ for all. Repeatable.",
    ),
]
CheckOut = Annotated[
    Texts,
    Option(
        "--out",
        "-o",
        rich_help_panel=OUTPUT,
        metavar="PATH",
        help="A file (.html, .xml, .csv, .json, .md, .tex), or a folder/ for all. Repeatable.",
    ),
]
FactsOut = Annotated[
    Texts,
    Option(
        "--out",
        "-o",
        rich_help_panel=OUTPUT,
        metavar="PATH",
        help="A file (.html, .csv, .json, .md, .tex; with --time also .png, .svg, .pdf), or a folder/. Repeatable.",
    ),
]
PictureOut = Annotated[
    Texts,
    Option(
        "--out",
        "-o",
        rich_help_panel=OUTPUT,
        metavar="PATH",
        show_default="activations.png",
        help="A file (.png, .svg, .pdf, .csv), or a folder/ for all. Repeatable.",
    ),
]
