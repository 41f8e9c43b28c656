"""Code of the user's that fails, as its user reads it on the screen."""

from __future__ import annotations

import csv
from pathlib import Path

from fake_machine import ProberHere

MODULE = """
import torch
from torch import nn

class Mlp(nn.Module):
    def __init__(self, d_model, d_ff):
        super().__init__()
        self.gate, self.up = (nn.Linear(d_model, d_ff, bias=False) for _ in range(2))
        self.down = nn.Linear(d_ff, d_model, bias=False)

    def forward(self, x):
        gate = nn.functional.silu(self.gate(x))
        return self.down(gate * self.up(x))
"""


def test_a_width_that_a_module_makes_up_is_not_told_as_d_ff(
    on_fakes, tmp_path: Path, monkeypatch
) -> None:
    """3 * 64 * 100 parameters are of no d_ff of ours; the note has the shapes."""
    own = MODULE.replace("d_ff):", "hid=100):").replace("d_ff", "hid")
    monkeypatch.chdir(tmp_path)
    Path("own.py").write_text(own)
    cost = ("cost swiglu mine=own.py:Mlp --d-model 64",)
    rows = {
        row["label"]: row
        for row in csv.DictReader(
            on_fakes(*cost, "-f csv", prober=ProberHere)[1].split()
        )
    }
    assert (rows["mine"]["params"], rows["mine"]["d_ff"]) == (str(3 * 64 * 100), "")
    assert rows["swiglu"]["d_ff"]
    assert "100 wide" in on_fakes(*cost, "-v", prober=ProberHere)[1]
