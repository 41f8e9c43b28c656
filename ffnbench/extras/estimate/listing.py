"""The list of machines, for `ffnbench list hardware` and for a shell."""

from __future__ import annotations

from ffnbench.extras.estimate.bounds import published
from ffnbench.extras.estimate.estimating import list_hardware

LISTINGS = {"hardware": list_hardware}
COMPLETIONS = {"hardware": lambda: published().names()}
