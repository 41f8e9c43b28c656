"""Every name of transformers' ACT2FN and its values, in float64: the golden file of
tests/ffn/test_activations.py.

`python tests/ffn/act2fn.py` writes tests/golden/act2fn.json, with transformers' version
in it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

FILE = Path(__file__).parents[1] / "golden" / "act2fn.json"
POINTS = (
    -30.0, -12.5, -10.0, -6.0, -4.0, -3.0, -2.0, -1.25, -1.0, -0.75, -0.5, -0.125, 0.0, 0.125, 0.5, 0.75, 1.0, 1.25,
    2.0, 3.0, 4.0, 6.0, 6.5, 10.0, 12.5, 20.0, 30.0,
)  # fmt: skip


def theirs(name: str) -> Any:
    """transformers' own activation of a name, its scalars (if there are any) at their
    init, in float64.
    """
    from transformers.activations import ACT2CLS, ACT2FN, XIELUActivation

    if ACT2CLS[name] is XIELUActivation:
        return XIELUActivation(
            dtype=torch.float64
        )  # else its scalars are rounded to bfloat16 while they are made
    return ACT2FN[name].double()


def values(name: str, x: torch.Tensor) -> torch.Tensor:
    """What it makes of x."""
    y: torch.Tensor = theirs(name)(x).detach()
    return y


def main() -> None:
    """Write the file."""
    import transformers
    from transformers.activations import ACT2CLS

    x = torch.tensor(POINTS, dtype=torch.float64)
    rows = [
        f"  {json.dumps(name)}: {json.dumps(values(name, x).tolist())}"
        for name in ACT2CLS
    ]
    head = (
        f'"transformers": "{transformers.__version__}",\n"x": {json.dumps(POINTS)},\n'
    )
    FILE.write_text(
        "{\n" + head + '"values": {\n' + ",\n".join(rows) + "\n}\n}\n", encoding="utf-8"
    )


if __name__ == "__main__":
    main()
