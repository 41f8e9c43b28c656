"""Generated from the bundles of flags by `python -m ffnbench.python.stub`."""

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal, overload

import torch
from matplotlib.figure import Figure
from torch import nn

from ffnbench.errors import FfnbenchError as Error
from ffnbench.ffn.spec import FFNSpec as FFNSpec
from ffnbench.ffn.user_activation import activation as activation
from ffnbench.gate.shown import ShownCheck as Check
from ffnbench.report.answers import Answer as Answer
from ffnbench.report.shown_report import ShownReport as Report

__version__: str

Variant = str | os.PathLike[str] | Callable[..., nn.Module | torch.Tensor]
Variants = Variant | Sequence[Variant] | Mapping[str, Variant]
Activation = str | os.PathLike[str] | Callable[..., torch.Tensor]
Activations = Activation | Sequence[Activation]
Match = Literal["params", "flops", "none"]
Mode = Literal["forward", "train", "backward", "inference", "training"]
Dtype = Literal["float64", "float32", "bfloat16", "float16", "double", "fp64", "float", "fp32", "bf16", "half", "fp16"]
Time = Literal["wall", "device"]
Cache = Literal["hot", "cold"]
MatmulPrecision = Literal["highest", "high", "medium"]
Backend = Literal["eager", "packed", "packed-up-gate", "compile", "onednn", "all"]
Init = Literal["torch", "he_xavier", "normal"]
Routing = Literal["uniform", "skewed", "trained-like"]

__all__ = [
    "Answer",
    "Check",
    "Error",
    "FFNSpec",
    "Report",
    "__version__",
    "ab",
    "activation",
    "activations",
    "block",
    "build",
    "check",
    "compare",
    "cost",
    "estimate",
    "inspect",
    "load",
    "plot_activations",
    "selftest",
    "time_activations",
    "train",
]

def ab(
    variant: Variant,
    base_rev: str | None = None,
    *,
    d_model: int | str | None = None,
    d_ff: int | str | None = None,
    bias: bool | None = None,
    batch: int | str = 1,
    seq_len: int | str | None = None,
    dtype: Dtype | torch.dtype = "float32",
    mode: Mode = "forward",
    device: str | torch.device = "auto",
    threads: int | str | None = None,
    time: Time | None = None,
    cache: Cache = "hot",
    matmul_precision: MatmulPrecision = "highest",
    reduced_reductions: bool = True,
    tolerance: str | Sequence[str] | Mapping[str, str] | None = None,
    exact_only: bool = False,
    budget: float | str = 120.0,
    seed: int | str = 0,
    timeout: float | str = 300.0,
    base_python: str | os.PathLike[str] | None = None,
    base_source: str | os.PathLike[str] | None = None,
    base_env: str | Sequence[str] | Mapping[str, str] | None = None,
    head_rev: str | None = None,
    head_python: str | os.PathLike[str] | None = None,
    head_source: str | os.PathLike[str] | None = None,
    head_env: str | Sequence[str] | Mapping[str, str] | None = None,
    fail_above: str | None = None,
    allow_mismatch: bool = False,
    quiet: bool = False,
    wait: bool = False,
) -> Check:
    """Measure one module twice, old and new side by side in the same minutes, and say what has regressed.

    Base and head are git revisions, folders, interpreters or environments; head is the working tree unless it is said
    otherwise.

    >>> found = ffnbench.ab("mypkg.mlp:SwiGLU", base_rev="origin/main", d_model=1024)

    Arguments:
        variant: package.module:Attr, path/to/file.py:Attr, or a name of `ffnbench list variants`.
        base_rev: Base is this git revision, checked out for the while.
        d_model: Width of the model. [default: the model's that is named, else 768]
        d_ff: Final width per branch of the reference. [default: 4 * d_model, classic form]
        bias: Biases in all linear layers. [default: where the named model has some]
        batch: Sequences in a call.
        seq_len: Tokens in a sequence; 2k is 2,000, 2Ki is 2,048. [default: 512; 64 where d_model is above 2,048]
        dtype: float32, bfloat16, float16, float64.
        mode: forward (inference), train (training: forward and backward) or backward alone.
        device: auto (a GPU where there is one), cpu, cuda (ROCm too), cuda:1.
        threads: CPU threads. [default: the CPUs this process may use]
        time: Which time is the latency on a GPU: wall, what a caller waits for, or device, what the GPU works.
            [default: wall, or device with cache cold]
        cache: What the last-level cache holds before a call: hot, what the last one left, or cold, nothing of it.
        matmul_precision: Of float32 matrix products: highest, high (TF32) or medium (bfloat16 inside), as torch
            has it.
        reduced_reductions: On a GPU, let 16-bit matrix products add partial sums in 16 bits, as torch does.
        tolerance: How much a metric may grow; latency is the ratio to the reference, and 5% alone is latency's.
            [default: latency=5%]
        exact_only: Parameters, FLOPs and bytes alone; nothing is timed.
        budget: Measure for so long at most, 90s or 5m.
        seed: Seed of inputs, weights and the order of rounds; of simulated machines.
        timeout: Give up a case that takes longer for one step.
        base_python: Base runs in this interpreter; it needs torch alone.
        base_source: Base is the code in this folder.
        base_env: A variable of base's processes.
        head_rev: Head is this revision, not the working tree as it is.
        head_python: Head runs in this interpreter.
        head_source: Head is the code in this folder.
        head_env: A variable of head's processes.
        fail_above: Short for tolerance latency=PCT%: how much slower head may be. [default: 5%]
        allow_mismatch: Go on, and pass, where head's output has changed.
        quiet: No progress on stderr.
        wait: Wait while another run of ffnbench measures on this machine.
    """

def activations(
    activations: Activations | None = None,
    *,
    quiet: bool = False,
    wait: bool = False,
) -> Answer:
    """What is true of activations: minimum, range, kinks, moments, what torch and others call them.

    >>> ffnbench.activations(["gelu", "silu"]).frame()[["activation", "formula", "minimum"]]

    Arguments:
        activations: Comma separated: names, swish@beta=0.5, file.py:function. Names: `ffnbench list activations`.
        quiet: No progress on stderr.
        wait: Wait while another run of ffnbench measures on this machine.
    """

def block(
    variant: Variant | None = None,
    *,
    preset: str | os.PathLike[str] | None = None,
    d_model: int | str | Sequence[int | str] | None = None,
    d_ff: int | str | Sequence[int | str] | None = None,
    bias: bool | None = None,
    heads: int | str | None = None,
    kv_heads: int | str | None = None,
    head_dim: int | str | None = None,
    causal: bool | None = None,
    batch: int | str | Sequence[int | str] = 1,
    seq_len: int | str | Sequence[int | str] = "512",
    dtype: Dtype | torch.dtype | Sequence[Dtype | torch.dtype] = "float32",
    mode: Mode | Sequence[Mode] = "forward",
    device: str | torch.device | Sequence[str | torch.device] = "auto",
    threads: int | str | Sequence[int | str] | None = None,
    time: Time | Sequence[Time] | None = None,
    cache: Cache | Sequence[Cache] = "hot",
    matmul_precision: MatmulPrecision | Sequence[MatmulPrecision] = "highest",
    reduced_reductions: bool = True,
    backend: Backend = "eager",
    workers: int | str | None = None,
    rounds: int | str | None = None,
    quick: bool = False,
    precision: float | str | None = None,
    budget: float | str | None = None,
    seed: int | str = 0,
    timeout: float | str = 300.0,
    runs: int | str = 1,
    pause: float | str | None = None,
    shard: str | None = None,
    textbook: bool = True,
    cost_only: bool = False,
    quiet: bool = False,
    wait: bool = False,
) -> Report:
    """An FFN beside the attention of its block, by length of the sequence: parameters, FLOPs, latency, shares.

    `cost_only=True` counts and measures nothing.

    >>> ffnbench.block(preset="llama3-8b", seq_len=[128, 8192], cost_only=True)

    Arguments:
        variant: The FFN, as in `compare`, where no model is named. [default: gelu]
        preset: A model: a name of `ffnbench list presets`, a config.json, its folder, or ORG/NAME in the hub's
            cache.
        d_model: Width of the model; or several: 512,1024..4096. [default: the model's that is named, else 768]
        d_ff: Final width per branch of the reference, or several: 2688..2752/8 goes by steps of 8. [default: 4 *
            d_model, classic form]
        bias: Biases in all linear layers. [default: where the named model has some]
        heads: Query heads. [default: d_model / 64, or the model's]
        kv_heads: Heads of keys and values. [default: as heads]
        head_dim: Width of a head. [default: d_model / heads]
        causal: A token sees those before it, or all. [default: causal, but for encoders]
        batch: Sequences in a call; or several: 1,8..64.
        seq_len: Tokens in a sequence: 128,1024, or 128..8192, which doubles.
        dtype: float32, bfloat16, float16, float64; or several: float32,bfloat16.
        mode: forward (inference), train (training: forward and backward) or backward alone; or several:
            forward,train.
        device: auto (a GPU where there is one), cpu, cuda (ROCm too), cuda:1; or several: cpu,cuda.
        threads: CPU threads; or several: 1,2..8. [default: the CPUs this process may use]
        time: Which time is the latency on a GPU: wall, what a caller waits for, or device, what the GPU works; or
            several: wall,device. [default: wall, or device with cache cold]
        cache: What the last-level cache holds before a call: hot, what the last one left, or cold, nothing of it;
            or several: hot,cold.
        matmul_precision: Of float32 matrix products: highest, high (TF32) or medium (bfloat16 inside), as torch
            has it; or several: highest,high.
        reduced_reductions: On a GPU, let 16-bit matrix products add partial sums in 16 bits, as torch does.
        backend: eager, packed, packed-up-gate, compile or onednn: `ffnbench list backends`.
        workers: Exactly so many fresh processes, one after another; intervals are over them.
        rounds: Exactly so many rounds in each worker; a round measures each case once.
        quick: 5 workers of 4 rounds: a first look.
        precision: Measure until every ratio is known to +-PCT percent, 0.5 or 0.5%. [default: 1%]
        budget: Be done in so long at most, 90s or 5m, start and all. [default: 5s a variant, 15s at least, and
            what 3 workers take; with precision 2m]
        seed: Seed of inputs, weights and the order of rounds; of simulated machines.
        timeout: Give up a case that takes longer for one step.
        runs: Measure so many times, each with fresh processes, and keep all: a baseline.
        pause: Wait so long between two runs. [default: 60s]
        shard: Measure the second of eight parts of the groups: 2/8. `ffnbench report` joins the files of all.
        textbook: Measure attention as textbooks write it too: scores, mask, softmax, values.
        cost_only: Count, measure nothing: no torch.
        quiet: No progress on stderr.
        wait: Wait while another run of ffnbench measures on this machine.
    """

def build(
    variants: Variants = "relu,gelu,swiglu",
    *,
    d_model: int | str | Sequence[int | str] | None = None,
    d_ff: int | str | Sequence[int | str] | None = None,
    bias: bool | None = None,
    match: Match = "params",
    multiple_of: int | str | None = None,
    rule: str | None = None,
    ratio: float | str | Sequence[float | str] | None = None,
    ffn_dim_multiplier: float | str | None = None,
    dropout: float | str | Sequence[float | str] = 0.0,
    dtype: Dtype | torch.dtype | Sequence[Dtype | torch.dtype] = "float32",
    init: Init = "torch",
    device: str | torch.device | None = None,
) -> nn.Module:
    """The nn.Module of one variant, in this process: maps (..., d_model) to (..., d_model).

    Widths follow the same rules as in `compare`: a gated form has the parameters of the classic one at 4 * d_model
    unless d_ff, rule or match="none" say otherwise. `@dtype=` and `@device=` in the variant work too.

    >>> module = ffnbench.build("swiglu", d_model=768)

    Arguments:
        variants: Comma separated [LABEL=]NAME[@KEY=VALUE]...; names: `ffnbench list variants`; your own:
            pkg.mod:Class, file.py:Class, with @like=NAME held against that form.
        d_model: Width of the model; or several: 512,1024..4096. [default: the model's that is named, else 768]
        d_ff: Final width per branch of the reference, or several: 2688..2752/8 goes by steps of 8. [default: 4 *
            d_model, classic form]
        bias: Biases in all linear layers. [default: where the named model has some]
        match: Make params, flops or none equal to the reference's.
        multiple_of: Round widths to this; 8 when matching, else the rule's own.
        rule: Size gated forms by a published rule: `ffnbench list rules`.
        ratio: Expansion, d_ff / d_model; or several: 2..4/0.5. [default: 4]
        ffn_dim_multiplier: Llama's ffn_dim_multiplier, for rule llama.
        dropout: Dropout on the hidden layer, in train mode; or several: 0..0.3/0.1.
        dtype: float32, bfloat16, float16, float64; or several: float32,bfloat16.
        init: Weights: torch, he_xavier or normal.
    """

def check(
    baseline: str | os.PathLike[str],
    current: str | os.PathLike[str] | None = None,
    *,
    tolerance: str | Sequence[str] | Mapping[str, str] | None = None,
    exact_only: bool = False,
    budget: float | str = 120.0,
    across_machines: bool = False,
    absolute: bool = False,
    trust: str | Sequence[str] | None = None,
    quiet: bool = False,
    wait: bool = False,
) -> Check:
    """Measure a baseline's own plan again and say what has regressed: `.ok`, `.status`, a row for every metric.

    >>> found = ffnbench.check("baseline.json", tolerance={"latency": "5%"})
    >>> assert found.ok, str(found)

    Arguments:
        baseline: A .json that `ffnbench compare ... -o baseline.json` made.
        current: A saved run to hold against it, in place of measuring now.
        tolerance: How much a metric may grow; latency is the ratio to the reference, and 5% alone is latency's.
            [default: latency=5%]
        exact_only: Parameters, FLOPs and bytes alone; nothing is timed.
        budget: Measure for so long at most, 90s or 5m.
        across_machines: Compare ratios with another kind of machine too.
        absolute: Check seconds too, on the very same machine only.
        trust: Let this code run, which the baseline names.
        quiet: No progress on stderr.
        wait: Wait while another run of ffnbench measures on this machine.
    """

def compare(
    variants: Variants = "relu,gelu,swiglu",
    *,
    preset: str | os.PathLike[str] | None = None,
    d_model: int | str | Sequence[int | str] | None = None,
    d_ff: int | str | Sequence[int | str] | None = None,
    bias: bool | None = None,
    match: Match = "params",
    multiple_of: int | str | None = None,
    rule: str | None = None,
    ratio: float | str | Sequence[float | str] | None = None,
    ffn_dim_multiplier: float | str | None = None,
    dropout: float | str | Sequence[float | str] = 0.0,
    reference: str | None = None,
    batch: int | str | Sequence[int | str] = 1,
    seq_len: int | str | Sequence[int | str] | None = None,
    dtype: Dtype | torch.dtype | Sequence[Dtype | torch.dtype] = "float32",
    mode: Mode | Sequence[Mode] = "forward",
    device: str | torch.device | Sequence[str | torch.device] = "auto",
    threads: int | str | Sequence[int | str] | None = None,
    time: Time | Sequence[Time] | None = None,
    cache: Cache | Sequence[Cache] = "hot",
    matmul_precision: MatmulPrecision | Sequence[MatmulPrecision] = "highest",
    reduced_reductions: bool = True,
    backend: Backend | Sequence[Backend] = "eager",
    workers: int | str | None = None,
    rounds: int | str | None = None,
    quick: bool = False,
    precision: float | str | None = None,
    budget: float | str | None = None,
    seed: int | str = 0,
    timeout: float | str = 300.0,
    runs: int | str = 1,
    pause: float | str | None = None,
    shard: str | None = None,
    init: Init = "torch",
    routing: Routing | Sequence[Routing] | None = None,
    control: bool = False,
    metrics: str | Sequence[str] = "latency,memory,ceilings",
    quiet: bool = False,
    wait: bool = False,
) -> Report:
    """Measure FFN variants side by side: parameters, FLOPs, latency and memory, at equal parameters.

    Fresh processes measure. A class of your own as a variant must stand in a file; where that is the script which calls
    this, it does so under `if __name__ == "__main__":`. Raises ffnbench.Error for a mistake, before anything is
    measured, and KeyboardInterrupt at Ctrl-C: its `.report` holds what was measured by then.

    >>> report = ffnbench.compare(["relu", "swiglu"], d_model=256, quick=True)
    >>> report.frame()[["label", "params", "latency_s", "ratio", "verdict"]]

    Arguments:
        variants: Comma separated [LABEL=]NAME[@KEY=VALUE]...; names: `ffnbench list variants`; your own:
            pkg.mod:Class, file.py:Class, with @like=NAME held against that form.
        preset: A model: a name of `ffnbench list presets`, a config.json, its folder, or ORG/NAME in the hub's
            cache.
        d_model: Width of the model; or several: 512,1024..4096. [default: the model's that is named, else 768]
        d_ff: Final width per branch of the reference, or several: 2688..2752/8 goes by steps of 8. [default: 4 *
            d_model, classic form]
        bias: Biases in all linear layers. [default: where the named model has some]
        match: Make params, flops or none equal to the reference's.
        multiple_of: Round widths to this; 8 when matching, else the rule's own.
        rule: Size gated forms by a published rule: `ffnbench list rules`.
        ratio: Expansion, d_ff / d_model; or several: 2..4/0.5. [default: 4]
        ffn_dim_multiplier: Llama's ffn_dim_multiplier, for rule llama.
        dropout: Dropout on the hidden layer, in train mode; or several: 0..0.3/0.1.
        reference: What ratios are relative to. [default: the first variant]
        batch: Sequences in a call; or several: 1,8..64.
        seq_len: Tokens in a sequence: 1,128,2k, or 1..4096, which doubles; 2k is 2,000, 2Ki is 2,048. [default:
            512; 64 where d_model is above 2,048]
        dtype: float32, bfloat16, float16, float64; or several: float32,bfloat16.
        mode: forward (inference), train (training: forward and backward) or backward alone; or several:
            forward,train.
        device: auto (a GPU where there is one), cpu, cuda (ROCm too), cuda:1; or several: cpu,cuda.
        threads: CPU threads; or several: 1,2..8. [default: the CPUs this process may use]
        time: Which time is the latency on a GPU: wall, what a caller waits for, or device, what the GPU works; or
            several: wall,device. [default: wall, or device with cache cold]
        cache: What the last-level cache holds before a call: hot, what the last one left, or cold, nothing of it;
            or several: hot,cold.
        matmul_precision: Of float32 matrix products: highest, high (TF32) or medium (bfloat16 inside), as torch
            has it; or several: highest,high.
        reduced_reductions: On a GPU, let 16-bit matrix products add partial sums in 16 bits, as torch does.
        backend: eager, packed, packed-up-gate, compile, onednn, a list of them, or all: `ffnbench list backends`.
        workers: Exactly so many fresh processes, one after another; intervals are over them.
        rounds: Exactly so many rounds in each worker; a round measures each case once.
        quick: 5 workers of 4 rounds: a first look.
        precision: Measure until every ratio is known to +-PCT percent, 0.5 or 0.5%. [default: 1%]
        budget: Be done in so long at most, 90s or 5m, start and all. [default: 5s a variant, 15s at least, and
            what 3 workers take; with precision 2m]
        seed: Seed of inputs, weights and the order of rounds; of simulated machines.
        timeout: Give up a case that takes longer for one step.
        runs: Measure so many times, each with fresh processes, and keep all: a baseline.
        pause: Wait so long between two runs. [default: 60s]
        shard: Measure the second of eight parts of the groups: 2/8. `ffnbench report` joins the files of all.
        init: Weights: torch, he_xavier or normal.
        routing: How tokens spread over experts: uniform, skewed, trained-like, or several: uniform,skewed.
            [default: uniform]
        control: Measure the reference a second time: where it differs from itself, this machine can't be trusted
            now.
        metrics: latency, memory, ceilings, sparsity, routing; error: how far outputs are from float64, of
            @like=NAME from that form's; alone it times nothing.
        quiet: No progress on stderr.
        wait: Wait while another run of ffnbench measures on this machine.
    """

def cost(
    variants: Variants = "relu,gelu,swiglu",
    *,
    preset: str | os.PathLike[str] | None = None,
    d_model: int | str | Sequence[int | str] | None = None,
    d_ff: int | str | Sequence[int | str] | None = None,
    bias: bool | None = None,
    match: Match = "params",
    multiple_of: int | str | None = None,
    rule: str | None = None,
    ratio: float | str | Sequence[float | str] | None = None,
    ffn_dim_multiplier: float | str | None = None,
    dropout: float | str | Sequence[float | str] = 0.0,
    reference: str | None = None,
    batch: int | str | Sequence[int | str] = 1,
    seq_len: int | str | Sequence[int | str] | None = None,
    dtype: Dtype | torch.dtype | Sequence[Dtype | torch.dtype] = "float32",
    mode: Mode | Sequence[Mode] = "forward",
) -> Report:
    """Count parameters, FLOPs and bytes of variants; nothing is measured.

    >>> ffnbench.cost(["relu", "swiglu"], d_model=4096).frame()[["label", "d_ff", "params", "flops_forward"]]

    Arguments:
        variants: Comma separated [LABEL=]NAME[@KEY=VALUE]...; names: `ffnbench list variants`; your own:
            pkg.mod:Class, file.py:Class, with @like=NAME held against that form.
        preset: A model: a name of `ffnbench list presets`, a config.json, its folder, or ORG/NAME in the hub's
            cache.
        d_model: Width of the model; or several: 512,1024..4096. [default: the model's that is named, else 768]
        d_ff: Final width per branch of the reference, or several: 2688..2752/8 goes by steps of 8. [default: 4 *
            d_model, classic form]
        bias: Biases in all linear layers. [default: where the named model has some]
        match: Make params, flops or none equal to the reference's.
        multiple_of: Round widths to this; 8 when matching, else the rule's own.
        rule: Size gated forms by a published rule: `ffnbench list rules`.
        ratio: Expansion, d_ff / d_model; or several: 2..4/0.5. [default: 4]
        ffn_dim_multiplier: Llama's ffn_dim_multiplier, for rule llama.
        dropout: Dropout on the hidden layer, in train mode; or several: 0..0.3/0.1.
        reference: What ratios are relative to. [default: the first variant]
        batch: Sequences in a call; or several: 1,8..64.
        seq_len: Tokens in a sequence: 1,128,2k, or 1..4096, which doubles; 2k is 2,000, 2Ki is 2,048. [default:
            512; 64 where d_model is above 2,048]
        dtype: float32, bfloat16, float16, float64; or several: float32,bfloat16.
        mode: forward (inference), train (training: forward and backward) or backward alone; or several:
            forward,train.
    """

def estimate(
    variants: Variants = "relu,gelu,swiglu",
    *,
    preset: str | os.PathLike[str] | None = None,
    d_model: int | str | Sequence[int | str] | None = None,
    d_ff: int | str | Sequence[int | str] | None = None,
    bias: bool | None = None,
    match: Match = "params",
    multiple_of: int | str | None = None,
    rule: str | None = None,
    ratio: float | str | Sequence[float | str] | None = None,
    ffn_dim_multiplier: float | str | None = None,
    dropout: float | str | Sequence[float | str] = 0.0,
    reference: str | None = None,
    batch: int | str | Sequence[int | str] = 1,
    seq_len: int | str | Sequence[int | str] | None = None,
    dtype: Dtype | torch.dtype | Sequence[Dtype | torch.dtype] = "float32",
    mode: Mode | Sequence[Mode] = "forward",
    hardware: str | Sequence[str] = "h100",
    tensor_parallel: int | str = 1,
) -> Answer:
    """Bound the time of variants on machines that are not here, by published peaks; nothing is measured.

    >>> ffnbench.estimate(["relu", "swiglu"], hardware="h100,a100", dtype="bf16").frame()

    Arguments:
        variants: Comma separated [LABEL=]NAME[@KEY=VALUE]...; names: `ffnbench list variants`; your own:
            pkg.mod:Class, file.py:Class, with @like=NAME held against that form.
        preset: A model: a name of `ffnbench list presets`, a config.json, its folder, or ORG/NAME in the hub's
            cache.
        d_model: Width of the model; or several: 512,1024..4096. [default: the model's that is named, else 768]
        d_ff: Final width per branch of the reference, or several: 2688..2752/8 goes by steps of 8. [default: 4 *
            d_model, classic form]
        bias: Biases in all linear layers. [default: where the named model has some]
        match: Make params, flops or none equal to the reference's.
        multiple_of: Round widths to this; 8 when matching, else the rule's own.
        rule: Size gated forms by a published rule: `ffnbench list rules`.
        ratio: Expansion, d_ff / d_model; or several: 2..4/0.5. [default: 4]
        ffn_dim_multiplier: Llama's ffn_dim_multiplier, for rule llama.
        dropout: Dropout on the hidden layer, in train mode; or several: 0..0.3/0.1.
        reference: What ratios are relative to. [default: the first variant]
        batch: Sequences in a call; or several: 1,8..64.
        seq_len: Tokens in a sequence: 1,128,2k, or 1..4096, which doubles; 2k is 2,000, 2Ki is 2,048. [default:
            512; 64 where d_model is above 2,048]
        dtype: float32, bfloat16, float16, float64; or several: float32,bfloat16.
        mode: forward (inference), train (training: forward and backward) or backward alone; or several:
            forward,train.
        hardware: Machines by name, or a .toml with some of your own: `ffnbench list hardware`.
        tensor_parallel: Split d_ff over so many devices, whose outputs are added by a ring.
    """

def inspect(
    model: str | os.PathLike[str],
    *,
    heads: int | str | None = None,
    kv_heads: int | str | None = None,
    head_dim: int | str | None = None,
    causal: bool | None = None,
    whole_model: bool = False,
    length: int | str | None = None,
    dtype: Dtype | torch.dtype = "float32",
) -> Answer:
    """A model's FFNs in words and numbers, a row a kind of layer; `whole_model` counts all parameters, by part.

    With a `length` it counts FLOPs and bytes of keys and values too.

    >>> ffnbench.inspect("mixtral-8x7b").frame()[["kind", "count", "params", "params_active"]]

    Arguments:
        model: A config.json, its folder, a preset, or ORG/NAME in the hub's cache.
        heads: Query heads. [default: d_model / 64, or the model's]
        kv_heads: Heads of keys and values. [default: as heads]
        head_dim: Width of a head. [default: d_model / heads]
        causal: A token sees those before it, or all. [default: causal, but for encoders]
        whole_model: All parameters by part: embeddings, attention, FFN, norms, head.
        length: At so many tokens: FLOPs, keys and values by kind of layer, above all parameters by part.
        dtype: Of keys and values.
    """

def load(
    path: str | os.PathLike[str],
) -> Report:
    """A saved run, by `Report.save("run.json")` or `-o run.json`; its figures are those of the file.

    >>> report = ffnbench.load("run.json")
    """

@overload
def plot_activations(
    activations: Activations | None = None,
    *,
    range: str | tuple[float, float] = "-4:4",
    derivative: bool | None = None,
    gated: bool = False,
    timeout: float | str = 300.0,
    path: None = None,
) -> Figure: ...
@overload
def plot_activations(
    activations: Activations | None = None,
    *,
    range: str | tuple[float, float] = "-4:4",
    derivative: bool | None = None,
    gated: bool = False,
    timeout: float | str = 300.0,
    path: str | os.PathLike[str],
) -> Path:
    """Activations with their derivatives, or the surfaces of gated forms (`gated=True`), as a picture.

    Gives a matplotlib Figure; with `path` it writes a file and gives its path.

    >>> figure = ffnbench.plot_activations(["relu", "gelu", "silu"])

    Arguments:
        activations: Comma separated: names, swish@beta=0.5, file.py:function. Names: `ffnbench list activations`.
        range: Range of x; write a negative LO with =.
        derivative: The derivative beside f. [default: derivative]
        gated: Surfaces act(g) * u of the gated forms instead.
        timeout: Give up a case that takes longer for one step.
    """

def selftest(
    *,
    repeats: int | str = 10,
    budget: float | str = 15.0,
    d_model: int | str = 256,
    threads: int | str | None = None,
    seed: int | str = 0,
    quiet: bool = False,
    wait: bool = False,
) -> Answer:
    """How often ffnbench is wrong on this machine, by runs whose true ratios are known.

    >>> ffnbench.selftest(repeats=4)

    Arguments:
        repeats: How many runs.
        budget: Time of one run, 15s or 1m.
        d_model: Width of the modules.
        threads: CPU threads. [default: the CPUs this process may use]
        seed: Seed of inputs, weights, order of rounds; each run adds one.
        quiet: No progress on stderr.
        wait: Wait while another run of ffnbench measures on this machine.
    """

def time_activations(
    activations: Activations | None = None,
    *,
    device: str | torch.device | Sequence[str | torch.device] = "auto",
    threads: int | str | Sequence[int | str] | None = None,
    workers: int | str | None = None,
    rounds: int | str | None = None,
    quick: bool = False,
    seed: int | str = 0,
    timeout: float | str = 300.0,
    runs: int | str = 1,
    pause: float | str | None = None,
    shard: str | None = None,
    elements: int | str | Sequence[int | str] = "1048576",
    dtype: Dtype | torch.dtype | Sequence[Dtype | torch.dtype] = "float32",
    quiet: bool = False,
    wait: bool = False,
) -> Report:
    """The operations of activations, forward and backward, each against relu's.

    >>> ffnbench.time_activations(["relu", "gelu"], elements=65536, quick=True)

    Arguments:
        activations: Comma separated: names, swish@beta=0.5, file.py:function. Names: `ffnbench list activations`.
        device: auto (a GPU where there is one), cpu, cuda (ROCm too), cuda:1; or several: cpu,cuda.
        threads: CPU threads; or several: 1,2..8. [default: the CPUs this process may use]
        workers: Exactly so many fresh processes, one after another; intervals are over them.
        rounds: Exactly so many rounds in each worker; a round measures each case once.
        quick: 5 workers of 4 rounds: a first look.
        seed: Seed of inputs, weights and the order of rounds; of simulated machines.
        timeout: Give up a case that takes longer for one step.
        runs: Measure so many times, each with fresh processes, and keep all: a baseline.
        pause: Wait so long between two runs. [default: 60s]
        shard: Measure the second of eight parts of the groups: 2/8. `ffnbench report` joins the files of all.
        elements: With time: sizes: 4096,1Mi or 1Ki..1Mi. [default: 1048576]
        dtype: With time: float32,bfloat16. [default: float32]
        quiet: No progress on stderr.
        wait: Wait while another run of ffnbench measures on this machine.
    """

def train(
    variants: Variants = "relu,gelu,swiglu",
    *,
    preset: str | os.PathLike[str] | None = None,
    d_model: int | str | None = None,
    d_ff: int | str | None = None,
    bias: bool | None = None,
    match: Match = "params",
    multiple_of: int | str | None = None,
    rule: str | None = None,
    ratio: float | str | None = None,
    ffn_dim_multiplier: float | str | None = None,
    dropout: float | str = 0.0,
    reference: str | None = None,
    device: str | torch.device = "auto",
    threads: int | str | None = None,
    seed: int | str = 0,
    timeout: float | str = 300.0,
    layers: int | str = 3,
    context: int | str = 128,
    batch: int | str = 24,
    dtype: Dtype | torch.dtype = "float32",
    steps: int | str = 800,
    seeds: int | str = 3,
    lr: str | Sequence[str] = "3e-3",
    text: str | None = None,
    budget: float | str | None = None,
    quiet: bool = False,
    wait: bool = False,
) -> Report:
    """Train a small language model of bytes with each variant: held-out loss beside the time of a step and of a token.

    >>> ffnbench.train(["relu", "swiglu"], steps=200).frame()[["variant", "loss", "difference", "verdict"]]

    Arguments:
        variants: Comma separated [LABEL=]NAME[@KEY=VALUE]...; names: `ffnbench list variants`; your own:
            pkg.mod:Class, file.py:Class, with @like=NAME held against that form.
        preset: A model: a name of `ffnbench list presets`, a config.json, its folder, or ORG/NAME in the hub's
            cache.
        d_model: Width of the model. [default: that of the model that is named, else 128]
        d_ff: Final width per branch of the reference. [default: 4 * d_model, classic form]
        bias: Biases in all linear layers. [default: where the named model has some]
        match: Make params, flops or none equal to the reference's.
        multiple_of: Round widths to this; 8 when matching, else the rule's own.
        rule: Size gated forms by a published rule: `ffnbench list rules`.
        ratio: Expansion, d_ff / d_model. [default: 4]
        ffn_dim_multiplier: Llama's ffn_dim_multiplier, for rule llama.
        dropout: Dropout on the hidden layer, in train mode.
        reference: What ratios are relative to. [default: the first variant]
        device: auto (a GPU where there is one), cpu, cuda (ROCm too), cuda:1.
        threads: CPU threads. [default: the CPUs this process may use]
        seed: Seed of inputs, weights and the order of rounds; of simulated machines.
        timeout: Give up a case that takes longer for one step.
        layers: Blocks of the model.
        context: Bytes of a sequence.
        batch: Sequences of a step.
        dtype: float32, or bfloat16 for matrix products; weights stay float32.
        steps: Steps of AdamW.
        seeds: Runs of each variant; intervals are over them.
        lr: Learning rate; of several each variant is judged at its best: 1e-3,3e-3,6e-3.
        text: What is learnt: a file or a folder. [default: the source of Python's standard library]
        budget: Train for so long at most, 90s or 30m; resume goes on.
        quiet: No progress on stderr.
        wait: Wait while another run of ffnbench measures on this machine.
    """
