"""What a shell offers where a model is named."""

from __future__ import annotations

from ffnbench.models.presets import PRESETS

COMPLETIONS = {"model": PRESETS.names}
