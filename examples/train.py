"""What does a form of FFN learn, and what does it cost?

    python examples/train.py relu gelu swiglu

A small decoder learns to predict the bytes of Python's standard library, once for each
variant and seed. Runs of one seed are paired: they have the same weights outside the
FFN, and read the same bytes in the same order. Prints the held-out loss of each variant
beside the time of its FFN in a step, which `ffnbench.compare` measures, and draws both.
"""

import argparse
import math
import sysconfig
from pathlib import Path
from statistics import fmean, stdev

import torch
import torch.nn.functional as F
from matplotlib.figure import Figure
from scipy.special import stdtrit
from torch import nn

import ffnbench

# --- config
parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
parser.add_argument("variants", nargs="*", default=["relu", "gelu", "swiglu", "relu2"])
parser.add_argument("--d-model", type=int, default=128)
parser.add_argument("--layers", type=int, default=3)
parser.add_argument("--context", type=int, default=128, help="bytes of a sequence")
parser.add_argument("--batch", type=int, default=24, help="sequences of a step")
parser.add_argument("--steps", type=int, default=800)
parser.add_argument("--seeds", type=int, default=3, help="runs of each variant")
parser.add_argument("--lr", type=float, default=3e-3)
parser.add_argument("--budget", type=float, default=60, help="seconds of compare")
parser.add_argument("--out", default="train.png")
config = parser.parse_args()
device = "cuda" if torch.cuda.is_available() else "cpu"
variants, seeds = config.variants, range(config.seeds)
VOCABULARY = 256  # a token is a byte
HEAD_DIM = 32  # d_model is a multiple of it
HELD_OUT_BATCHES = 16

# --- text: every tenth file is held out
files = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))
texts = [file.read_bytes() for file in files]
held_text = torch.frombuffer(bytearray().join(texts[::10]), dtype=torch.uint8)
del texts[::10]
train_text = torch.frombuffer(bytearray().join(texts), dtype=torch.uint8)


def batch_of(text: torch.Tensor, seed: int) -> torch.Tensor:
    """Sequences from random places of the text: (batch, context + 1)."""
    generator = torch.Generator().manual_seed(seed)
    last = len(text) - config.context
    places = torch.randint(last, (config.batch, 1), generator=generator)
    return text[places + torch.arange(config.context + 1)].long().to(device)


# --- model: RMSNorm, causal attention with rotary positions, the FFN of ffnbench
def rotated(x: torch.Tensor) -> torch.Tensor:
    """Queries or keys (batch, heads, seq, head_dim), rotated by their positions."""
    half = x.shape[-1] // 2
    frequency = 10_000.0 ** -(torch.arange(half, device=x.device) / half)
    angle = torch.arange(x.shape[-2], device=x.device)[:, None] * frequency
    a, b = x.chunk(2, dim=-1)
    cos, sin = angle.cos(), angle.sin()
    return torch.cat((a * cos - b * sin, a * sin + b * cos), dim=-1)


class Attention(nn.Module):
    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.qkv = nn.Linear(d_model, 3 * d_model, bias=False)
        self.out = nn.Linear(d_model, d_model, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, seq, _ = x.shape
        heads = self.qkv(x).view(batch, seq, 3, -1, HEAD_DIM)
        q, k, v = heads.permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(rotated(q), rotated(k), v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(x.shape))


class Decoder(nn.Module):
    def __init__(self, variant: str) -> None:
        super().__init__()
        d_model, layers = config.d_model, range(config.layers)
        self.embed = nn.Embedding(VOCABULARY, d_model)
        self.head = nn.Linear(d_model, VOCABULARY, bias=False)
        self.attention = nn.ModuleList(Attention(d_model) for _ in layers)
        self.norms = nn.ModuleList(nn.RMSNorm(d_model) for _ in range(2 * len(layers)))
        self.last_norm = nn.RMSNorm(d_model)
        # drawn last, so that one seed gives all variants the same weights above
        ffns = [ffnbench.build(variant, d_model=d_model) for _ in layers]
        self.ffns = nn.ModuleList(ffns)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embed(tokens)
        for layer in range(config.layers):
            x = x + self.attention[layer](self.norms[2 * layer](x))
            x = x + self.ffns[layer](self.norms[2 * layer + 1](x))
        return self.head(self.last_norm(x))


def loss_of(model: nn.Module, sequences: torch.Tensor) -> torch.Tensor:
    """The mean loss of predicting each byte from those before it, in nats."""
    logits = model(sequences[:, :-1])
    return F.cross_entropy(logits.flatten(0, 1), sequences[:, 1:].flatten())


@torch.no_grad()
def held_out_loss(model: nn.Module) -> float:
    batches = [batch_of(held_text, number) for number in range(HELD_OUT_BATCHES)]
    model.eval()
    losses = [float(loss_of(model, batch)) for batch in batches]
    model.train()
    return fmean(losses)


# --- training: losses[variant] has the held-out loss of each seed
losses = {variant: [] for variant in variants}
for seed in seeds:
    for variant in variants:
        torch.manual_seed(seed)
        model = Decoder(variant).to(device)
        optimizer = torch.optim.AdamW(model.parameters())
        for step in range(1, config.steps + 1):
            warm_up = min(1.0, step / (0.05 * config.steps))
            decay = 0.55 + 0.45 * math.cos(math.pi * step / config.steps)
            optimizer.param_groups[0]["lr"] = config.lr * warm_up * decay
            sequences = batch_of(train_text, seed * config.steps + step)
            loss = loss_of(model, sequences)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        losses[variant].append(held_out_loss(model))
        print(f"seed {seed}  {variant:12} held-out loss {losses[variant][-1]:.4f}")

# --- the time of the FFN in a step, forward and backward, and the table
shape = dict(d_model=config.d_model, batch=config.batch, seq_len=config.context)
effort = dict(metrics="latency", budget=config.budget)
report = ffnbench.compare(variants, mode="train", **shape, **effort)
first = variants[0]
columns = f"difference to {first}", "FFN of a step", "time"
print("\n{:12} {:>6}  {:22} {:>14}  {}".format("variant", "loss", *columns))
figure = Figure(figsize=(7, 1.2 + 0.25 * len(variants)), layout="constrained")
figure.suptitle("What each form learns, and its time (95 % intervals)", fontsize=10)
of_loss, of_time = figure.subplots(1, 2, sharey=True)
for variant, row in zip(variants, report.rows(), strict=True):
    pairs = zip(losses[variant], losses[first], strict=True)
    differences = [loss - of_first for loss, of_first in pairs]
    half_width = math.nan  # of Student's 95 % interval over seeds
    if config.seeds > 1:
        error = stdev(differences) / math.sqrt(config.seeds)
        half_width = stdtrit(config.seeds - 1, 0.975) * error
    milliseconds = 1000 * (row["latency_s"] or math.nan)  # none: the machine is busy
    difference = f"{fmean(differences):+.4f} ± {half_width:.4f}"
    print(f"{variant:12} {fmean(losses[variant]):.4f}  {difference:22} {milliseconds:11.2f} ms  {row['verdict']}")  # fmt: skip
    of_loss.errorbar(fmean(differences), variant, xerr=half_width, fmt="o", color="C0")
    ratio, low, high = (row[f"ratio{end}"] or math.nan for end in ("", "_low", "_high"))
    bar = [[ratio - low], [high - ratio]]
    of_time.errorbar(ratio, variant, xerr=bar, fmt="o", color="C0")
of_loss.set_xlabel(f"held-out loss minus {first}'s, nats per byte\n(below 0: better)")
of_time.set_xlabel(f"time of the FFN in a step / {first}'s\n(below 1: faster)")
of_loss.axvline(0, color="0.6", linewidth=1)
of_time.axvline(1, color="0.6", linewidth=1)
of_loss.invert_yaxis()
figure.savefig(config.out, dpi=200)
print(f"\nwrote {config.out}")
