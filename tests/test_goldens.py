"""What users see, as it was: help, saved runs shown again, every command on the fake
machine.

`pytest tests/test_goldens.py --regenerate` writes the files in tests/golden anew; what
has changed is then read in `git diff tests/golden`. Nothing here knows more of ffnbench
than its command line, its files and the fake machine.

tests/golden/runs holds runs that the machine below has measured, with dates by hand,
and cuda.json, whose samples are by hand too.
They stay as they are: what is written today stands in tests/golden/commands.
"""

from __future__ import annotations

import json
import math
import os
import random
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from fake_machine import (
    FakeLaunch,
    KnownProber,
    ProberHere,
    interrupted_in_the_second_worker,
    lost,
)
from model_configs import LLAMA
from paths import ROOT

from ffnbench import __version__
from ffnbench.ffn.activations import OwnActivation
from ffnbench.ffn.cost import Cost
from ffnbench.ffn.spec import ImportedSpec
from ffnbench.plan.plan import CONTROL, Arm, Case, Workload
from ffnbench.record.messages import Failed
from ffnbench.record.result import Agreement, FailureKind, Timer

GOLDEN = ROOT / "tests" / "golden"
COMMANDS = (
    "compare", "cost", "report", "block", "check", "ab",
    "plot-activations", "activations", "list", "env", "inspect",
)  # fmt: skip
SAVED = [*sorted(ROOT.glob("results/**/*.json")), *sorted(GOLDEN.glob("runs/*.json"))]
ASKED = [(80, ""), (120, ""), (80, "-v"), (80, "-f csv"), (80, "-f json")]
# of tables whose columns have to stand at any width
OF_RUNTIMES = [(60, "")]
OF_FAKES = [
    (60, ""),
    (40, ""),
    (80, "-f latex"),
    (80, "-f markdown"),
    (120, "-v"),
]  # of runs that are small
# of JSON: what stands in the saved run as it was measured
LEFT_OUT = {"samples"}
SPEAKING = (
    "GITHUB_STEP_SUMMARY",
    "NO_COLOR",
    "FORCE_COLOR",
    "TERM",
    "TTY_COMPATIBLE",
    "TTY_INTERACTIVE",
    "LINES",
)
# of what is run now: how what differs from run to run is found, and what stands in its
# place
MOVING = {
    r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d\+00:00": "THEN",
    r"  eta \d+:\d\d$": "",
    r"measured in [\d.]+ (s|min)": "measured in TIME",
    r'"wall_s": [-\d.e]+': '"wall_s": TIME',
    r"\b[0-9a-f]{32}\b": "TOKEN",
    r'/[^\s"]+/ffnbench-ab-\w+': "CHECKOUT",
    re.escape(__version__): "VERSION",
    r"^noise: .*\n(  .*\n)*": "",
}
# a mistake that is to be told in two lines is a line `$ ffnbench ...` of this file
MISTAKES = GOLDEN / "mistakes.txt"
Golden = Callable[[str, str], None]
Call = Callable[..., str]


SMALL = "--d-model 64 --workers 3 --rounds 2"
STEADY_RUN = "--workers 5 --rounds 3"  # enough for a baseline
STEADY = f"--d-model 64 {STEADY_RUN}"
# lines one after another, in a folder of their own that holds what tests/golden/runs
# has
TYPED = {
    "compare": [f"compare relu,gelu,swiglu {SMALL} -o run.csv -o run.json -o run.md -o run.svg -o run.html"],
    "compare-until-precise": ["compare relu,gelu --d-model 64"],
    "compare-verbose": [f"compare relu,gelu --mode train {SMALL} -v"],
    "compare-groups": [f"compare relu,gelu --seq-len 1,128 {SMALL} -o sweep.csv"],
    "compare-experts": [f"compare swiglu,swiglu@moe=8x2@routing=skewed {SMALL} -f csv"],
    "compare-runtimes": ["compare swiglu --d-model 64 --d-ff 256 --backend eager,onednn,compile,ort "
                         "--weights none,int8-dynamic,int8,int4 --seq-len 1,16,512 --quick"],
    "compare-own-code": [f"compare relu,mine=mlp.py:Mlp {SMALL} -f md"],
    "compare-failed": [f"compare relu,gelu,swiglu {SMALL}"],
    "compare-all-failed": [f"compare relu,gelu {SMALL} -o run.json"],
    "compare-busy": [f"compare relu,gelu {SMALL}", f"compare relu,gelu --seq-len 1,2 {SMALL} -q",
                     f"compare relu,gelu --seq-len 1,2,4 {SMALL} -q -o busy.svg"],
    "compare-interrupted": [f"compare relu,gelu {SMALL} -o run.csv"],
    "compare-interrupted-at-once": [f"compare relu,gelu {SMALL} -o run.csv -o run.json"],
    "compare-resumed": [f"compare relu,gelu --seq-len 1 {SMALL} -o run.json -q",
                        f"compare relu,gelu --seq-len 1,128 {SMALL} -o run.json --resume"],
    "compare-sizes": [f"compare gelu swiglu {SMALL} --d-model 64,96 --batch 2 --mode train -q",
                      f"compare gelu swiglu {SMALL} --d-ff 128 --match flops --dtype bf16 -q",
                      f"compare gelu@ratio=2 swiglu@rule=llama {SMALL} --match none --mode backward -q",
                      f"compare relu,gelu {SMALL} --dtype fp32,bf16 --batch 1..4 -f csv -q"],
    "compare-process": [f"compare relu gelu {SMALL} --device cpu --threads 2 --seed 7 -v -o run.csv",
                        f"compare relu gelu {SMALL} --threads 1,2 -q",
                        "compare relu gelu --d-model 64 --quick",
                        "compare relu gelu --d-model 64 --precision 2% --budget 30s"],
    "compare-metrics": [f"compare relu gelu {SMALL} --metrics latency,memory,rate,sparsity -q",
                        f"compare swiglu@moe=8x2 swiglu {SMALL} --metrics latency,routing,error -v -q",
                        f"compare relu swiglu@moe=4x2 mine=mypkg.mlp:Mlp like=mypkg.mlp:Mlp@like=relu {SMALL} --metrics latency,rate -f csv -q",
                        f"compare relu --weights none,int8 {SMALL} --metrics latency,rate -f csv -q",
                        "compare relu gelu --d-model 64 --metrics error",
                        "compare relu gelu --d-model 64 --metrics memory -f csv"],
    "compare-rate-failed": [f"compare relu gelu {SMALL} --metrics latency,rate -f csv -q"],
    "compare-models": ["compare gpt2 bert-base --match none --workers 3 --rounds 2 -q",
                       "compare gelu --preset bert-base --workers 3 --rounds 2 -q",
                       "compare preset relu --preset config.json --workers 3 --rounds 2 -q",
                       "compare --preset gpt2 --layer 0 -q"],
    "compare-runs": [f"compare relu gelu {SMALL} --runs 3 -o runs.json", "report runs.json -v"],
    "compare-shown": [f"compare relu gelu {SMALL} -f latex -q", f"compare relu gelu {SMALL} --json -q",
                      f"compare relu gelu swiglu {SMALL} --columns label,ratio,params --sort -latency -q",
                      f"compare relu gelu swiglu {SMALL} --columns GFLOP/s,ratio -f md -q",
                      f"compare relu gelu {SMALL} -q -o every/", f"compare relu gelu {SMALL} -q -o run.tex -o run.pdf -o run.png"],
    "compare-workload": ["compare relu relu@batch=2@seq_len=16@mode=backward gelu@dtype=bf16@reduced_reductions=false@device=cpu@threads=2 "
                         "swiglu@matmul_precision=high a=relu@slowdown=0.05 b=relu@cache=cold "
                         f"{SMALL} -f csv -q",
                         "compare swiglu c=swiglu@backend=compile@compile=max-autotune@freeze=true p=swiglu@backend=packed "
                         "o=swiglu@backend=ort@spin=on i=swiglu@backend=openvino n=swiglu@backend=onednn "
                         f"g=swiglu@weights=int4@group=64 {SMALL} --d-ff 256 -v -q",
                         f"compare relu@time=device gelu@time=device {SMALL} -q",
                         f"compare relu,swiglu --backend packed,eager,onednn --mode train {SMALL} -q",
                         f"compare relu,swiglu --cache hot,rotated {SMALL} -q"],
    "compare-argument": [f"compare relu new=mypkg.mlp:SwiGLU@hidden=3@like=swiglu {SMALL} -v -q"],
    "compare-kinds-of-failure": [f"compare relu,gelu,swiglu,silu,glu,mish {SMALL} -v -o run.csv"],
    "compare-outputs-differ": [f"compare relu mine=mlp.py:Mlp@like=relu {SMALL} -q -o run.csv"],
    "compare-crossing": [f"compare relu,gelu --seq-len 16..1024 {SMALL} -q -o sweep.csv -o sweep.svg",
                         f"compare gelu,swiglu@d_ff=64..256/64 {SMALL} -q -o widths.csv -o widths.png"],
    "cost": ["cost relu,gelu,swiglu --d-model 512 -o cost.csv -o cost.md -o cost.json",
             "cost --preset mixtral-8x7b -v"],
    "cost-forms": ["cost relu@d_ff=96 gelu@ratio=3@multiple_of=32 swiglu@rule=llama@multiple_of=16@ffn_dim_multiplier=1.3 "
                   "silu@gate=output swish@beta=0.5@bias=true@dropout=0.1 mish_glu@init=normal@limit=7@offset=1 "
                   "bilinear glu reglu geglu --d-model 64 --match none -v",
                   "cost relu silu@gate=inner b=swiglu@limit=none --d-model 64 --match params -f csv",
                   *(f"cost relu x=swiglu@rule={rule} --d-model 768" for rule in ("classic", "two_thirds", "t5_v1_1"))],
    "cost-experts": ["cost swiglu s=swiglu@moe=8x2@shared=64@shared_gate=true@router_bias=true "
                     "n=swiglu@moe=8x2@scores=sigmoid@normalised=false@routed_scale=2.5@groups=4x2 "
                     "e=swiglu@moe=8x2@experts=grouped@routing=trained-like --d-model 64 -v",
                     "cost gelu swiglu@moe=8x2 --d-model 64 --mode train -f md"],
    "cost-flags": ["cost gelu@bias=true swiglu@bias=true --d-model 64 --d-ff 128 --match flops --batch 2 --dtype bf16 --seq-len 1,16 -f csv",
                   "cost gelu swiglu --d-model 64,128 --match none --weights int8,int4 -f csv",
                   "cost gelu swiglu --d-model 64 --mode backward --columns label,params,flops_backward --sort -params",
                   "cost gelu swiglu --d-model 64 -f latex", "cost mine=mlp.py:Mlp@hidden=3 relu --d-model 64",
                   "cost gelu --hidden-size 64 --intermediate-size 128 --batch-size 2"],
    "cost-models": ["cost gpt2 bert-base --match none", "cost --preset config.json --json",
                    "cost swiglu --preset llama3-8b --seq-len 1,4Ki"],
    "cost-hardware": ["cost relu,swiglu --hardware h100,epyc-9654 --seq-len 1,4Ki -v -o bounds.csv",
                      "cost swiglu --weights int8 --hardware l4,b200"],
    "report": ["report groups.json -o again.json -o again.csv -o again.md -o again.svg -o again.html --sort -latency"],
    "arranged": ["report failed.json --sort -latency", "report compare.json --sort -ratio -f csv",
                 "report compare.json --sort -ratio", "report compare.json --sort -d_ff",
                 "report compare.json --sort GFLOP/s -f md",
                 "report compare.json --columns params,ratio,latency_low_s,flops_per_s",
                 "report compare.json --columns params,ratio,latency_low_s,flops_per_s -f csv",
                 "report compare.json --columns flops_elementwise,weight_bytes",
                 "report activations.json --sort -latency", "report block.json --sort -seq_len --columns ffn_s,KV",
                 "report groups.json --sort -seq_len"],
    "block": [f"block relu,gelu {SMALL} -o block.csv", f"block relu,gelu --seq-len 64,256 {SMALL} --layers 2 -q -v", "block --preset bert-base --cost-only"],
    "report-shown": ["report sweep.json -o sweep.png -o sweep.tex -f latex", "report cost.json --json",
                     "report experts.json --columns label,params_active,params -f md", "report ab.json -f md"],
    "block-flags": [f"block gelu@bias=true {SMALL} --d-ff 128 --heads 4 --kv-heads 2 --batch 2 --dtype bf16 --mode train "
                    "--device cpu --threads 2 --backend compile -v -q",
                    f"block swiglu {SMALL} --seq-len 16..64 -q -o block.csv -o block.svg",
                    "block relu --d-model 64 --quick", "block relu --d-model 64 --precision 5% --budget 20s -q",
                    "block relu --preset llama3-8b --seq-len 64 --workers 3 --rounds 2",
                    *(f"block swiglu --d-model 64 --heads 4 --kv-heads 2 --seq-len 128,1Ki --cost-only -f {form}" for form in ("csv", "md", "latex", "json")),
                    "block --preset config.json --cost-only --mode backward -v",
                    f"block swiglu@moe=8x2 --seq-len 64,128 {SMALL} -q -o more.json",
                    f"block swiglu@moe=8x2 --seq-len 64..256 {SMALL} -q -o more.json --resume"],
    "block-failed": [f"block relu,gelu --seq-len 64,128 {SMALL}"],
    "check": ["check baseline.json -o check.xml -o check.md -o check.json -o check.csv",
              "report check.json", "check baseline.json --exact-only"],
    "check-slower": ["check baseline.json -f github", "check baseline.json -v", "check baseline.json --update"],
    "check-saved": ["check baseline.json groups.json", "check baseline.json baseline.json", "check cut.json",
                    "check baseline.json cut.json", "check baseline.json cut.json --update"],
    "check-other-rows": [f"compare relu,gelu,silu {STEADY} -q -o wider.json", "check baseline.json wider.json -q",
                         "check wider.json baseline.json -q", f"compare relu,gelu=gelu@d_ff=8 {STEADY} -q -o narrow.json",
                         "check baseline.json narrow.json -q"],
    "check-elsewhere": ["check elsewhere.json -q", "check elsewhere.json --update -q"],
    "check-slower-machine": ["check baseline.json -q"],
    "check-unlike-itself": ["check baseline.json -q --budget 5"],
    "check-kinds": [f"block relu,gelu --d-model 64 --seq-len 64,256 {STEADY_RUN} -q -o block.json", "report block.json", "check block.json block.json",
                    f"activations relu,gelu --time {STEADY_RUN} -q -o times.json", "report times.json", "check times.json times.json"],
    "check-flags": ["check baseline.json --tolerance 1% --tolerance gelu:latency=10% --budget 20s -q",
                    "check baseline.json --tolerance params=1% --exact-only -f csv",
                    *(f"check baseline.json -q -f {form}" for form in ("markdown", "latex")),
                    "check baseline.json -q -o found.html -o found.tex -o all/"],
    "check-sweep": [f"compare relu,gelu --seq-len 1,16 {STEADY} -q -o sweep.json",
                    "check sweep.json -q -o sweep.xml", "check sweep.json sweep.json -f md"],
    "check-repeated": [f"compare relu,gelu,swiglu {STEADY} --runs 3 -q -o runs.json", "check runs.json -v -q"],
    "check-unclear": ["check baseline.json -q --budget 5", "check baseline.json -q --budget 5 --on-unclear fail",
                      "check baseline.json -q --budget 5 --on-unclear pass -f github"],
    "check-busy": ["check baseline.json -q --on-unclear fail", "check baseline.json --update -q"],
    "check-failed": ["check baseline.json -q -o failed.xml -o failed.csv"],
    "check-wrong": ["check baseline.json -q", f"compare relu gelu {STEADY} -q -o wrong.json", "check wrong.json -q"],
    "ab-wrong": ["ab mypkg.mlp:SwiGLU v1.0 --d-model 64 -q"],
    "check-changed": ["check changed.json -q", "check changed.json --exact-only -f github", "check changed.json --exact-only -o c.xml -q"],
    "check-trust": [f"compare relu,mine=mlp.py:Mlp {STEADY} -q -o own.json",
                    "check own.json -q", "check own.json -q --trust mlp.py:Mlp"],
    "check-interrupted": ["check baseline.json -q", "check baseline.json --update -q"],
    "check-runs": ["check baseline.json again.json -f csv", "check again.json baseline.json --tolerance 20%"],
    "check-others": [*(f"check {run}.json" for run in ("cost", "block", "activations", "ab", "busy", "failed", "interrupted", "cuda")),
                     "check block.json --exact-only"],
    "ab": ["ab mypkg.mlp:SwiGLU v1.0 --d-model 64 -o found.json", "report found.json"],
    "ab-slower": ["ab mypkg.mlp:SwiGLU v1.0 --d-model 64", "ab mypkg.mlp:SwiGLU v1.0 --d-model 64 --tolerance 30% -q"],
    "ab-unlike-itself": ["ab mypkg.mlp:SwiGLU v1.0 --d-model 64 --budget 5 -q"],
    "ab-flags": ["ab mypkg.mlp:SwiGLU v1.0 --d-model 64 --d-ff 128 --batch 2 --seq-len 16 --dtype bf16 --mode train "
                 "--device cpu --threads 2 --tolerance 3% --budget 30s -v -q",
                 "ab mypkg.mlp:SwiGLU --base-rev v1.0 --head-rev HEAD --d-model 64 -q -f github",
                 "ab mypkg.mlp:SwiGLU v1.0 --d-model 64 --exact-only -f md",
                 *(f"ab mypkg.mlp:SwiGLU v1.0 --d-model 64 -q -f {form}" for form in ("csv", "latex")),
                 "ab mypkg.mlp:SwiGLU v1.0 --d-model 64 -q -o ab.xml -o ab.md -o ab.csv -o ab.tex -o ab.html"],
    "ab-sides": ["ab mypkg.mlp:SwiGLU --base-source old --d-model 64 -q", "ab geglu --base-python /env/python --d-model 64 -q",
                 "ab mypkg.mlp:SwiGLU --base-env DEBUG:1 --base-env LEVEL:2 --d-model 64 -v -q"],
    "ab-mismatch": ["ab mypkg.mlp:SwiGLU v1.0 --d-model 64 -q", "ab mypkg.mlp:SwiGLU v1.0 --d-model 64 --allow-mismatch -q"],
    "ab-unclear": ["ab mypkg.mlp:SwiGLU v1.0 --d-model 64 --budget 5 -q",
                   "ab mypkg.mlp:SwiGLU v1.0 --d-model 64 --budget 5 --on-unclear fail -q"],
    "ab-busy": ["ab mypkg.mlp:SwiGLU v1.0 --d-model 64 --on-unclear fail -q"],
    "ab-failed": ["ab mypkg.mlp:SwiGLU v1.0 --d-model 64"],
    "ab-interrupted": ["ab mypkg.mlp:SwiGLU v1.0 --d-model 64"],
    "ab-size": ["ab mypkg.mlp:SwiGLU v1.0 --d-model 64 -f github", "ab mypkg.mlp:SwiGLU v1.0 --d-model 64 --exact-only"],
    "plot-activations": ["plot-activations relu --range=-1:1 -o curves.csv -o curves.svg", "plot-activations",
                         "plot-activations gelu swish@beta=2 -o curves.pdf -o curves.html"],
    "activations": ["activations relu,gelu,silu,hardswish,softplus,swish@beta=2 -v "
                    "-o facts.csv -o facts.json"],
    "activations-shown": ["activations gelu relu2", *(f"activations gelu,silu -f {form}" for form in ("csv", "md", "latex", "json")),
                          "activations -v -q", "activations gelu -o facts.md -o facts.html -o facts.tex"],
    "activations-time": ["activations relu,gelu --time --workers 3 --rounds 2 -o times.csv",
                         "activations gelu silu --time --elements 4096,1Ki..4Ki --dtype fp32,bf16 --device cpu --threads 2 --workers 3 --rounds 2 -v -q",
                         "activations gelu --time --quick -f md", "activations relu,gelu --time --workers 3 --rounds 2 -q -o times.json -o times.svg"],
    "activations-interrupted": ["activations gelu --time --elements 10,20 --workers 3 --rounds 2"],
    "activations-failed": ["activations relu,gelu --time --workers 3 --rounds 2 -q -o times.json", "report times.json"],
    "list": ["list", *(f"list {what}" for what in ("keys", "presets", "hardware")),
             "list hardware --json", "list keys -v",
             "list presets -f csv", "list keys -f md", "list keys -f latex"],
    "env": ["env", "env --json", "env -v", "env -f md", "env -f csv -q"],
    "inspect": ["inspect mixtral-8x7b -o parts.csv", "inspect gpt2 --json", "inspect deepseek-v3 -v"],
    "inspect-flags": ["inspect deepseek-v3 -f csv", "inspect gpt2 -f md", "inspect gpt2 -f latex", "inspect llama3-8b -v -o parts.md -o parts.json",
                      "inspect config.json", "inspect config.json --json"],
    "version": ["--version"],
    "nothing": [""],
}  # fmt: skip
SHOWN = (
    ".csv",
    ".md",
    ".json",
    ".xml",
    ".html",
)  # files whose text is held; of others it is their names
# of runs, from baseline.json
EDITED = {
    "changed.json": ('"params": 32768', '"params": 32000'),
    "cut.json": ('"interrupted": false', '"interrupted": true'),
    "elsewhere.json": ('"cpu": "Fake CPU"', '"cpu": "Other CPU"'),
}
# of --hardware, that are wrong
MACHINE_FILES = {
    "bad.toml": "[a]\ntflops = 3",
    "zero.toml": "[a]\ngb_per_s = 0",
    "text.toml": "{",
    "half.toml": "[a]\ntflops_float32 = 3",
}
MACHINE = {
    "cpu": "Fake CPU", "cpus": 4, "usable_cpus": 4, "memory_bytes": 16 << 30, "usable_bytes": 12 << 30,
    "machine": "x86_64", "system": "Fake 1.0 x86_64", "python": "3.11.0",
}  # fmt: skip
BASE_MS = {
    "gelu": 11.0,
    "swiglu": 12.0,
    "mine": 13.0,
}  # others take 10


class Machine(FakeLaunch):
    """Times that follow from the label and the worker alone, those of `slower` by a
    fifth.
    """

    def __init__(
        self, *slower: str, trouble: dict[tuple[type, str | None], Any] | None = None
    ) -> None:
        super().__init__(self.took, trouble)
        self.slower, self.facts = slower, MACHINE

    def took(self, label: str, worker: int, number: int) -> float:
        scatter = random.Random(f"{label} {worker}").gauss(0, 0.002)
        base = BASE_MS.get(re.split(r"\W", label)[0], 10.0) / 1000
        if label.startswith("(no FFN)"):
            base = 4.0 / 1000
        elif "place=alone" in label:
            base **= 2  # a tenth or so, and its ratios are farther from 1
        return base * math.exp(scatter) * (1.2 if label in self.slower else 1.0)


class OnTheLimit(Machine):
    """A machine that is slower by the tolerance, and whose times scatter, so that no
    check can tell.
    """

    def took(self, label: str, worker: int, number: int) -> float:
        scatter = random.Random(f"{number} {label} {worker}").gauss(0, 0.05)
        factor = 1.05 if label in ("gelu", "SwiGLU") else 1.0
        return factor * super().took(label, worker, number) * math.exp(scatter)


def crash_of(*labels: str) -> dict[tuple[type, str | None], Any]:
    return {("open", label): "crash" for label in labels}


def busy() -> Machine:
    """A machine on which threads wait for a CPU nearly all the time."""
    launch = Machine()
    launch.waited = 0.9
    return launch


def failing() -> Machine:
    """A machine on which each case but the first fails in a way of its own."""
    outcomes = {
        "gelu": "oom",
        "swiglu": "unsupported",
        "silu": "mismatch",
        "glu": lost("timeout"),
    }
    opened = {("open", label): outcome for label, outcome in outcomes.items()}
    return Machine(trouble={**opened, ("sample", "mish"): lost("crash")})


def interrupted() -> Machine:
    launch = Machine()
    launch.seconds = interrupted_in_the_second_worker
    return launch


def of_runtimes() -> Machine:
    """A machine on which weights in fewer bits are faster by a fifth, at an error."""
    errors = {"": 4e-7, "int8-dynamic": 0.03, "int8": 0.007, "int4": 0.11}
    answers, slower = {}, []
    for backend, held, tokens in product(
        ("", "onednn", "compile", "ort"), errors, (1, 16, 512)
    ):
        label = "swiglu" + f"@backend={backend}" * bool(backend)
        label += f"@weights={held}" * bool(held) + f"@seq_len={tokens}"
        answers["check", label] = {"error": errors[held]}
        slower += [label] * (not held)
    return Machine(*slower, trouble=answers)


MACHINES: dict[str, Callable[[], FakeLaunch]] = {
    "compare-failed": lambda: Machine(
        trouble={("open", "gelu"): "oom"} | crash_of("swiglu")
    ),
    "compare-all-failed": lambda: Machine(trouble=crash_of("relu", "gelu")),
    "compare-rate-failed": lambda: Machine(trouble={("rate", "gelu"): "oom"}),
    "compare-busy": busy,
    "compare-runtimes": of_runtimes,
    "compare-kinds-of-failure": failing,
    "compare-outputs-differ": lambda: Machine(
        trouble={
            ("check", "mine"): Failed(
                kind=FailureKind.MISMATCH, message="its output differs"
            )
        }
    ),
    "check-wrong": lambda: Machine(trouble={("check", "relu"): "mismatch"}),
    "ab-wrong": lambda: Machine(trouble={("check", "base"): "mismatch"}),
    "block-failed": lambda: Machine(trouble=crash_of("gelu@seq_len=128")),
    "check-unclear": OnTheLimit,
    "check-busy": busy,
    "check-failed": lambda: Machine(trouble=crash_of("gelu")),
    "check-interrupted": interrupted,
    "ab-unclear": OnTheLimit,
    "ab-busy": busy,
    "ab-failed": lambda: Machine(trouble=crash_of("SwiGLU")),
    "ab-interrupted": interrupted,
    "compare-interrupted": interrupted,
    "compare-interrupted-at-once": lambda: Machine(
        trouble={("open", "relu"): KeyboardInterrupt()}
    ),
    "check-slower": lambda: Machine("gelu"),
    "check-slower-machine": lambda: Machine("relu", "gelu", CONTROL),
    "check-unlike-itself": lambda: Machine(CONTROL),
    "ab-unlike-itself": lambda: Machine(CONTROL),
    "activations-interrupted": interrupted,
    "activations-failed": lambda: Machine(
        trouble=crash_of("gelu float32 1048576 forward")
    ),
    "ab-slower": lambda: Machine("SwiGLU"),
    "env": lambda: Machine(
        trouble={("timer", None): Timer(empty_call_s=1e-7, resolution_s=5e-8)}
    ),
}


class OtherOutput(KnownProber):
    """Finds that the two sides compute something else."""

    def within(self, arm: Arm) -> KnownProber:
        return OtherOutput(1.0, arm)

    def compare_output(self, case: Case, seed: int, folder: str) -> Agreement:
        return Agreement(error=0.1, tolerance=1e-4, exact_error=0.1)


class OtherSize(KnownProber):
    """Finds that the code of a checkout has fewer parameters."""

    def within(self, arm: Arm) -> KnownProber:
        return OtherSize(1.0, arm)

    def count(self, spec: ImportedSpec, workload: Workload) -> Cost:
        cost = super().count(spec, workload)
        return replace(cost, params=cost.params - 64) if self._arm.source else cost


PROBERS = {
    "activations-shown": ProberHere,
    "ab-mismatch": OtherOutput,
    "ab-size": OtherSize,
    "activations": ProberHere,
    "plot-activations": ProberHere,
}  # of what only torch knows


class Describes(KnownProber):
    """Knows which code of the user's is an activation."""

    def describe(self, target: str) -> OwnActivation | None:
        return OwnActivation(target=target) if target.endswith(":act") else None


def name_of(path: Path) -> str:
    """A run by its path: the folder of the machine tells nothing."""
    return "-".join(path.relative_to(ROOT).with_suffix("").parts).replace("results-amd-epyc-2cpu-", "").replace(
        "tests-golden-runs-", "fake-"
    )  # fmt: skip


def laid_out(value: Any, before: str = "", indent: str = "") -> str:
    """JSON whose lines are as long as they can be read, so that a difference is a short
    one.
    """
    text = json.dumps(value, ensure_ascii=False)
    if len(text) < 110 or not isinstance(value, dict | list):
        return f"{indent}{before}{text}"
    deeper, brackets = indent + " ", "{}" if isinstance(value, dict) else "[]"
    if isinstance(value, dict):
        parts = [
            laid_out(part, f"{json.dumps(key)}: ", deeper)
            for key, part in value.items()
        ]
    else:
        parts = [laid_out(part, "", deeper) for part in value]
    return (
        f"{indent}{before}{brackets[0]}\n"
        + ",\n".join(parts)
        + f"\n{indent}{brackets[1]}"
    )


def without_samples(value: Any) -> Any:
    """A saved run without what only repeats the file that it was made from."""
    if isinstance(value, list):
        return [without_samples(part) for part in value]
    if isinstance(value, dict):
        return {
            key: without_samples(part)
            for key, part in value.items()
            if key not in LEFT_OUT
        }
    return value


def steady(text: str, folder: Path) -> str:
    """A text without what differs from one machine, folder or moment to another: more
    in MOVING.
    """
    text = text.replace(folder.as_uri(), "file://FOLDER").replace(str(folder), "FOLDER")
    text = text.replace(ROOT.as_uri(), "file://ROOT").replace(str(ROOT), "ROOT")
    text = re.sub(
        r"-?\d+\.\d{7,}(e[-+]\d+)?", lambda found: f"{float(found[0]):.9g}", text
    )  # libraries differ beyond
    return "".join(line.rstrip() + "\n" for line in text.splitlines())


def readable(text: str) -> str:
    """The same text: JSON of one line laid out, of a page what it says."""
    if text.startswith(("{", "[")):
        return laid_out(without_samples(json.loads(text)))
    if text.startswith("<!doctype html>"):
        text = re.sub(r"<style>.*</style>", "", text, flags=re.DOTALL)
        text = re.sub(r"data:image[^\"]*", "PICTURE", text)
        return re.sub(r"(?=<(?:tr|section|li|div|p)\b)", "\n", text)
    return text


@pytest.fixture
def golden(request: pytest.FixtureRequest, tmp_path: Path) -> Golden:
    """Compare a text with a file of tests/golden, or write it there."""

    def hold(file: str, text: str) -> None:
        path = GOLDEN / file
        text = steady(text, tmp_path)
        if request.config.getoption("regenerate"):
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
        assert path.is_file(), (
            f"{file} is missing: pytest tests/test_goldens.py --regenerate"
        )
        assert text.splitlines() == path.read_text(encoding="utf-8").splitlines()

    return hold


@pytest.fixture
def told(in_process, monkeypatch: pytest.MonkeyPatch) -> Call:
    """What a command line gives: the line itself, its exit code where that is not 0,
    stdout, stderr.
    """
    for name in SPEAKING:
        monkeypatch.delenv(name, raising=False)

    def call(line: str, columns: int = 80) -> str:
        monkeypatch.setenv("COLUMNS", str(columns))
        code, out, err = in_process(*shlex.split(line))
        parts = [f"$ COLUMNS={columns} ffnbench {line}\n", readable(out)]
        parts += [f"--- stderr\n{err}"] * bool(err) + [
            f"--- exit code {code}\n"
        ] * bool(code)
        return (
            "".join(
                part if part.endswith("\n") else f"{part}\n" for part in parts if part
            )
            + "\n"
        )

    return call


@pytest.mark.parametrize(
    "command", ["", *COMMANDS], ids=lambda name: name or "ffnbench"
)
def test_help(
    command: str, golden: Golden, told: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    asked = [f"{command} --help".strip(), *[f"{command} --help-all"] * bool(command)]
    golden(f"help/{command or 'ffnbench'}.txt", "".join(map(told, asked)))


@pytest.mark.parametrize("path", SAVED, ids=name_of)
def test_report(
    path: Path, golden: Golden, told: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    run = path.relative_to(ROOT)
    asked = ASKED
    if path.is_relative_to(GOLDEN):
        asked = ASKED + OF_FAKES
    elif path.parent.name == "runtimes":
        asked = OF_RUNTIMES + ASKED
    golden(
        f"report/{name_of(path)}.txt",
        "".join(told(f"report {run} {how}".strip(), width) for width, how in asked),
    )


def repository(folder: Path) -> None:
    """Of a package with three commits after v1.0, the second of them slow; always with
    the same names.
    """
    (folder / "mypkg").mkdir()
    file = folder / "mypkg" / "mlp.py"
    moment = "2026-01-01T00:00:00+0000"
    who = {f"GIT_{role}_{what}": value for role in ("AUTHOR", "COMMITTER")
           for what, value in (("NAME", "n"), ("EMAIL", "e@x"), ("DATE", moment))}  # fmt: skip
    settings = {
        **who,
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "GIT_CONFIG_SYSTEM": "/dev/null",
        "PATH": os.environ["PATH"],
    }

    def git(*words: str) -> None:
        subprocess.run(
            ["git", *words], cwd=folder, env=settings, check=True, capture_output=True
        )

    git("init", "-q", "-b", "main")
    for number, text in enumerate(("fast", "fast", "slow", "slow")):
        file.write_text(f"# {number}: {text}\n")
        git("add", "mypkg")
        git("commit", "-qm", f"change {number}")
        if number == 0:
            git("tag", "v1.0")


def furnished(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The current folder: code of the user's, and the runs of tests/golden."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("HF_HUB_CACHE", "hub")
    monkeypatch.setattr(
        tempfile, "tempdir", "/tmp"
    )  # JSON breaks its lines by the length of the path of a checkout
    (folder / "mlp.py").touch()
    (folder / "old" / "mypkg").mkdir(parents=True)
    (folder / "old" / "mypkg" / "mlp.py").touch()
    (folder / "config.json").write_text(json.dumps(LLAMA))
    write_weights(folder / "weights.safetensors")
    for run in GOLDEN.glob("runs/*.json"):
        shutil.copy(run, folder)
    text = (folder / "baseline.json").read_text()
    for name, toml in MACHINE_FILES.items():
        (folder / name).write_text(toml)
    for name, (old, new) in EDITED.items():
        (folder / name).write_text(text.replace(old, new))


def write_weights(file: Path) -> None:
    """Zeros, of the MLP of a model."""
    shapes = {"gate_proj": [96, 64], "up_proj": [96, 64], "down_proj": [64, 96]}
    size = 4 * 64 * 96
    entries = {
        f"mlp.{name}.weight": {
            "dtype": "F32",
            "shape": shape,
            "data_offsets": [number * size, (number + 1) * size],
        }
        for number, (name, shape) in enumerate(shapes.items())
    }
    header = json.dumps(entries).encode()
    file.write_bytes(len(header).to_bytes(8, "little") + header + bytes(3 * size))


@pytest.mark.parametrize("name", TYPED)
def test_command(
    name: str,
    golden: Golden,
    told: Call,
    on_machine,
    made_up_clock,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    furnished(tmp_path, monkeypatch)
    if name.startswith("ab") or name == "compare-arms":
        repository(tmp_path)
    text = ""
    for line in TYPED[name]:
        before = contents(tmp_path)
        on_machine(MACHINES.get(name, Machine)(), PROBERS.get(name, KnownProber))
        text += told(line)
        after = contents(tmp_path)
        for path in sorted(path for path in after if after[path] != before.get(path)):
            content = (
                after[path].decode().replace(str(tmp_path), "FOLDER")
                if path.suffix in SHOWN
                else ""
            )
            shown = readable(content)
            text += f"--- wrote {path.relative_to(tmp_path)}\n{shown}\n"
    for found, said in MOVING.items():
        text = re.sub(found, said, text, flags=re.MULTILINE)
    golden(f"commands/{name}.txt", text)


def contents(folder: Path) -> dict[Path, bytes]:
    """What the files of a folder hold, git's own left out."""
    files = (
        path
        for path in folder.rglob("*")
        if path.is_file() and ".git" not in path.parts
    )
    return {path: path.read_bytes() for path in files}


def test_mistakes(
    golden: Golden,
    in_process,
    on_machine,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """Each is an error and a hint with exit code 2, before anything is measured, and
    leaves no file.
    """
    furnished(tmp_path, monkeypatch)
    repository(tmp_path)
    before, text = contents(tmp_path), ""
    for line in re.findall(r"^\$ ffnbench (.*)", MISTAKES.read_text(), re.MULTILINE):
        launch = Machine()
        on_machine(launch, Describes)
        code, out, err = in_process(*shlex.split(line))
        starts = [said.partition(" ")[0] for said in err.splitlines()]
        assert (code, out, starts) == (2, "", ["error:", "hint:"]), (line, err)
        assert not launch.log, line
        text += f"$ ffnbench {line}\n{err}\n"
    assert contents(tmp_path) == before
    golden(MISTAKES.name, text)


def test_no_golden_is_left_over() -> None:
    expected = {
        "help": ["ffnbench", *COMMANDS],
        "report": map(name_of, SAVED),
        "commands": TYPED,
    }
    for folder, names in expected.items():
        assert sorted(path.name for path in (GOLDEN / folder).iterdir()) == sorted(
            f"{name}.txt" for name in names
        )


# --on measures in processes of its own; the others are shown by no line above
NOT_HELD = {
    "--on", "--help",
}  # fmt: skip
SHORT = {"--format": "-f", "--out": "-o", "--verbose": "-v", "--quiet": "-q"}


def test_every_flag_and_key_stands_in_a_golden() -> None:
    asked = [f"{line} " for lines in TYPED.values() for line in lines]
    for command in COMMANDS:
        shown = (GOLDEN / "help" / f"{command}.txt").read_text()
        everything = shown.rpartition("--help-all")[2]
        flags = re.findall(r"^  (?:-\w, )?(--[\w-]+)", everything, re.MULTILINE)
        words = re.split(
            r"[ =]", "".join(line for line in asked if line.startswith(f"{command} "))
        )
        for flag in set(flags) - NOT_HELD:
            assert flag in words or SHORT.get(flag) in words, (command, flag)
    listed = (GOLDEN / "commands" / "list.txt").read_text()
    examples = listed.partition("ffnbench list keys\n")[2].partition("$ COLUMNS")[0]
    keys = re.findall(r"@(\w+)=", examples)
    assert len(keys) > 30
    for key in keys:
        assert f"@{key}=" in " ".join(asked), key
