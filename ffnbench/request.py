"""What was asked, as it was typed: the flags of each command with their defaults. Plain data; planning/ reads it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """The flags of a command as they were given: the one place where their defaults stand.

    `threads` None becomes 1 here; whoever knows the machine (api.py) fills in what it may use.
    """

    variants: str = "relu,gelu,swiglu"
    preset: str | None = None
    config: str | None = None
    d_model: int | None = None  # that of the model that is named, else 768
    d_ff: int | None = None
    match: str = "params"
    multiple_of: int | None = None
    rule: str | None = None
    ratio: float | None = None
    ffn_dim_multiplier: float | None = None
    bias: bool = False
    dropout: float = 0.0
    init: str = "torch"
    batch: int = 1
    seq_len: int = 512
    dtype: str = "float32"
    device: str = "auto"
    mode: str = "forward"
    threads: int | None = None
    backend: str = "eager"
    routing: str | None = None
    reference: str | None = None
    workers: int | None = None
    rounds: int | None = None
    quick: bool = False
    precision: float | None = None  # percent
    budget: float | None = None  # seconds
    control: bool = False
    seed: int = 0
    timeout: float = 300.0
    metrics: str = "latency,memory"
