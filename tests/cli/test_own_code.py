"""Code of the user's that fails, as its user reads it on the screen."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path

from fake_machine import ProberHere, planned
from paths import ROOT
from shell import ffnbench

from ffnbench.worker.agreement import compare_output, save_output
from ffnbench.worker.probe_jobs import InProcess

HOSTILE = str(ROOT / "tests" / "hostile.py")
TINY = (
    "--d-model",
    "64",
    "--seq-len",
    "32",
    "--workers",
    "3",
    "--rounds",
    "1",
    "--threads",
    "1",
)


def test_each_row_says_what_its_code_did_and_the_answer_that_its_reference_failed() -> (
    None
):
    rows = ("built=" + HOSTILE + ":broken", "changed=" + HOSTILE + ":Changes@like=relu")
    other = ("other=" + HOSTILE + ":Plain", "relu")
    out = ffnbench(
        "compare", *rows, *other, *TINY, "--match", "none", "-q", columns=180
    ).stdout
    verdicts = {
        line.split()[0]: line.split()[-1] for line in out.splitlines() if line.split()
    }
    assert (verdicts["built"], verdicts["changed"]) == ("crash", "unsupported")
    line = 1 + Path(HOSTILE).read_text().split("no GPU here")[0].count("\n")
    built = rf"^built: .*raised RuntimeError: no GPU here \(\S*hostile.py, line {line}\); changed: it changes its input"
    assert re.search(built, " ".join(out.split("\n  ")), re.MULTILINE)
    assert "nothing to compare with where the reference, the first row, failed" in out
    errors = dict(
        re.findall(r"^(\S+) .*? (\d+e-\d+(?: vs itself)?) ", out, re.MULTILINE)
    )
    assert ["itself" in errors[name] for name in ("other", "relu")] == [True, False]


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
SMALL = ("--d-model", "64", "--seq-len", "32", "--threads", "1", "-q")


def test_outputs_are_compared_with_a_form_and_nothing_is_timed(tmp_path: Path) -> None:
    """silu in place of gelu is another function; a gate that is cut off from the graph
    has another gradient alone.
    """
    (tmp_path / "good.py").write_text(MODULE)
    (tmp_path / "wrong.py").write_text(MODULE.replace("silu", "gelu"))
    cut = MODULE.replace("(self.gate(x))", "(self.gate(x)).detach()")
    (tmp_path / "cut.py").write_text(cut)
    rows = [f"{name}={name}.py:Mlp@like=swiglu" for name in ("good", "wrong", "cut")]
    rows.append("trained=cut.py:Mlp@like=swiglu@mode=train")
    asked = ("swiglu", *rows, *SMALL, "--metrics", "error", "-o", "e.json")
    found = ffnbench("compare", *asked, cwd=tmp_path)
    assert found.returncode == 3
    assert found.stderr.startswith("wrote e.json\nerror: 2 of 5 rows failed\n")
    small = r" .* \de-[678] *\n"
    told = (
        rf"swiglu{small}good{small}wrong .* mismatch *\ncut{small}trained .* mismatch"
    )
    assert re.search(told, found.stdout)
    report = json.loads((tmp_path / "e.json").read_text())
    assert "latency" not in {sample["metric"] for sample in report["samples"]}
    wrong, trained = report["failures"]
    assert (wrong["case"], wrong["kind"]) == ("wrong", "mismatch")
    assert (trained["case"], trained["kind"]) == ("trained", "mismatch")
    assert "gradient of gate.weight" in trained["message"]


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


def test_a_change_of_the_input_is_no_other_function(tmp_path: Path) -> None:
    """What a side of `ab` is held against is the input that the other one was given,
    not what became of it.
    """
    request = dict(
        variants=f"relu,mine={HOSTILE}:Changes",
        d_model=16,
        d_ff=32,
        seq_len=4,
        match="none",
    )
    case = planned(**request, probe=InProcess()).with_device("cpu").case("mine")
    save_output(case=case, seed=0, folder=str(tmp_path))
    assert compare_output(case=case, seed=0, folder=str(tmp_path)).error == 0


def test_a_module_that_raises_while_it_is_counted_is_told_whole_and_fails(
    on_fakes, tmp_path: Path
) -> None:
    (tmp_path / "notes.py").write_text(
        "from torch import nn\n\n\n"
        "class FFN(nn.Linear):\n"
        "    def __init__(self, d_model, d_ff):\n"
        "        super().__init__(d_model, d_ff)\n\n"
        "    def forward(self, x):\n"
        f"        raise RuntimeError('{'wide ' * 40}end')\n"
    )
    code = f"{tmp_path}/notes.py:FFN"
    for variants, says in ((code, "every case"), (f"{code} relu", "1 of 2 rows")):
        cost = f"cost {variants} --d-model 64"
        ended, told, err = on_fakes(cost, prober=ProberHere)
        assert (ended, says in err) == (3, True)
        assert f"raised RuntimeError: {'wide ' * 40}end (" in told
        assert "notes.py, line 9)" in told
