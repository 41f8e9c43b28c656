"""What users see, as it was: help, saved runs shown again, every command on the fake
machine.

`pytest tests/test_goldens.py --regenerate` writes the files in tests/golden anew; what
has changed is then read in `git diff tests/golden`. Nothing here knows more of ffnbench
than its command line, its files and the fake machine.

tests/golden/runs holds runs that the machine below has measured, with dates by hand,
and cuda.json, whose samples are by hand too.
They stay as they are, files of ffnbench 0.2.0: what is written today stands in
tests/golden/commands.
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
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from fake_machine import (
    FakeLaunch,
    KnownProber,
    ProberHere,
    interrupted_in_the_second_worker,
)
from paths import ROOT

from ffnbench import __version__
from ffnbench.ffn.activations import OwnActivation
from ffnbench.messages import Check, MeasureTimer, Open, Values
from ffnbench.result import Timer

GOLDEN = ROOT / "tests" / "golden"
COMMANDS = (
    "compare", "cost", "estimate", "report", "block", "train", "check", "ab", "history",
    "plot-activations", "activations", "list", "env", "inspect",
)  # fmt: skip
SAVED = [*sorted(ROOT.glob("results/**/*.json")), *sorted(GOLDEN.glob("runs/*.json"))]
PAIRS = {
    "a-week-later": ("tests/golden/runs/baseline.json", "tests/golden/runs/again.json"),
    "same-plan": (
        "results/amd-epyc-2cpu/compare.json",
        "results/amd-epyc-2cpu/compare-again.json",
    ),
    "three": tuple(
        f"results/amd-epyc-2cpu/swiglu-0768-{tokens}.json"
        for tokens in ("0001", "0016", "0512")
    ),
}
ASKED = [
    (80, ""),
    (120, ""),
    (80, "-v"),
    (120, "-v"),
    (80, "-f markdown"),
    (80, "-f csv"),
    (80, "-f json"),
]
# of tables whose columns have to stand at any width
OF_RUNTIMES = [(60, "")]
OF_FAKES = [(60, ""), (40, ""), (80, "-f latex")]  # of runs that are small
LEFT_OUT = {
    "samples",
    "judged",
    "inputs",
    "seal",
}  # of JSON: what stands in the saved run as it was measured
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
    r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00": "THEN",
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
    "compare-busy": [f"compare relu,gelu {SMALL}"],
    "compare-interrupted": [f"compare relu,gelu {SMALL} -o run.csv"],
    "compare-resumed": [f"compare relu,gelu --seq-len 1 {SMALL} -o run.json -q",
                        f"compare relu,gelu --seq-len 1,128 {SMALL} -o run.json --resume"],
    "cost": ["cost relu,gelu,swiglu --d-model 512 -o cost.csv -o cost.md -o cost.json",
             "cost --preset mixtral-8x7b -v"],
    "estimate": ["estimate relu,swiglu --hardware h100,epyc-9654 --seq-len 1,4Ki -v -o bounds.csv"],
    "report": ["report groups.json -o again.json -o again.csv -o again.md -o again.svg -o again.html --sort -latency"],
    "arranged": ["report failed.json --sort -latency", "report compare.json --sort -ratio -f csv",
                 "report compare.json --sort -ratio", "report compare.json --sort -d_ff",
                 "report compare.json --sort GFLOP/s -f md",
                 "report compare.json --columns params,ratio,latency_low_s,gflops",
                 "report compare.json --columns params,ratio,latency_low_s,gflops -f csv",
                 "report compare.json --columns +total", "report compare.json --columns input_bytes,weight_bytes",
                 "report activations.json --sort -latency", "report block.json --sort -seq_len --columns FFN,KV",
                 "report groups.json --sort -seq_len", "report baseline.json again.json --sort label -f csv"],
    "block": [f"block --seq-len 64,256 {SMALL} -o block.csv", "block --preset bert-base --cost-only"],
    "train": ["train relu swiglu --steps 12 --text book.txt -o learnt.csv -o learnt.json"],
    "check": ["check baseline.json -o check.xml -o check.md -o check.json -o check.csv",
              "check baseline.json --exact-only", "check baseline.json --append"],
    "check-slower": ["check baseline.json -f github", "check baseline.json -v", "check baseline.json --update"],
    "check-saved": ["check baseline.json groups.json", "check baseline.json baseline.json"],
    "ab": ["ab mypkg.mlp:SwiGLU v1.0 --d-model 64 -o found.json", "report found.json"],
    "ab-slower": ["ab mypkg.mlp:SwiGLU v1.0 --d-model 64"],
    "ab-confirmed": ["ab mypkg.mlp:SwiGLU v1.0 --d-model 64 -o first.json -q",
                     "ab mypkg.mlp:SwiGLU v1.0 --d-model 64 --confirm first.json -f csv -q",
                     "ab mypkg.mlp:SwiGLU v1.0 --d-model 64 --confirm first.json"],
    "history": ["history baseline.json again.json", "history again.json baseline.json --metric latency -o over.csv",
                "history repeats.json -v"],
    "plot-activations": ["plot-activations relu --range=-1:1 -o curves.csv -o curves.svg"],
    "activations": ["activations relu,gelu,silu,hardswish,softplus,swish@beta=2 -v "
                    "-o facts.csv -o facts.json"],
    "activations-time": ["activations relu,gelu --time --workers 3 --rounds 2 -o times.csv"],
    "list": ["list", *(f"list {what}" for what in ("keys", "activations", "rules", "presets", "dtypes", "backends")),
             "list hardware --json", "list rules -v"],
    "env": ["env", "env --json"],
    "inspect": ["inspect mixtral-8x7b", "inspect mixtral-8x7b --whole-model -o parts.csv", "inspect gpt2 --json",
                "inspect mixtral-8x7b --length 512"],
    "version": ["--version"],
    "nothing": [""],
}  # fmt: skip
SHOWN = (
    ".csv",
    ".md",
    ".json",
    ".xml",
)  # files whose text is held; of others it is their names
MACHINE = {
    "cpu": "Fake CPU", "cpus": 4, "usable_cpus": 4, "memory_bytes": 16 << 30, "usable_bytes": 12 << 30,
    "machine": "x86_64", "system": "Fake 1.0 x86_64", "caches": (), "python": "3.11.0",
}  # fmt: skip
BASE_MS = {
    "gelu": 11.0,
    "swiglu": 12.0,
    "mine": 13.0,
    "attention": 18.0,
    "textbook": 19.0,
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
        return base * math.exp(scatter) * (1.2 if label in self.slower else 1.0)


def crash_of(*labels: str) -> dict[tuple[type, str | None], Any]:
    return {(Open, label): "crash" for label in labels}


def busy() -> Machine:
    """A machine on which threads wait for a CPU nearly all the time."""
    launch = Machine()
    launch.waited = 0.9
    return launch


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
        answers[Check, label] = Values(values={"error": errors[held]})
        slower += [label] * (not held)
    return Machine(*slower, trouble=answers)


MACHINES: dict[str, Callable[[], FakeLaunch]] = {
    "compare-failed": lambda: Machine(
        trouble={(Open, "gelu"): "oom"} | crash_of("swiglu")
    ),
    "compare-all-failed": lambda: Machine(trouble=crash_of("relu", "gelu")),
    "compare-busy": busy,
    "compare-runtimes": of_runtimes,
    "compare-interrupted": interrupted,
    "check-slower": lambda: Machine("gelu"),
    "ab-slower": lambda: Machine("SwiGLU"),
    "ab-confirmed": lambda: Machine("SwiGLU"),
    "env": lambda: Machine(
        trouble={(MeasureTimer, None): Timer(empty_call_s=1e-7, resolution_s=5e-8)}
    ),
}
PROBERS = {
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
    """The same text; JSON of one line laid out."""
    return (
        laid_out(without_samples(json.loads(text)))
        if text.startswith(("{", "["))
        else text
    )


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
        code, out, err = in_process(*line.split())
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


@pytest.mark.parametrize("pair", PAIRS)
def test_report_side_by_side(
    pair: str, golden: Golden, told: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    line = f"report {' '.join(PAIRS[pair])}"
    golden(
        f"report/side-by-side-{pair}.txt",
        "".join(told(f"{line} {how}".strip(), width) for width, how in ASKED),
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
    """The current folder: code of the user's, a text, and the runs of tests/golden."""
    monkeypatch.chdir(folder)
    monkeypatch.setattr(
        tempfile, "tempdir", "/tmp"
    )  # JSON breaks its lines by the length of the path of a checkout
    (folder / "mlp.py").touch()
    (folder / "book.txt").write_text(
        "".join(
            f"{number} is a number, and so is {number**2}.\n" for number in range(20000)
        )
    )
    for run in GOLDEN.glob("runs/*.json"):
        shutil.copy(run, folder)


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
    if name in ("ab", "ab-slower", "ab-confirmed"):
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
    pairs = [f"side-by-side-{pair}" for pair in PAIRS]
    expected = {
        "help": ["ffnbench", *COMMANDS],
        "report": [*map(name_of, SAVED), *pairs],
        "commands": TYPED,
    }
    for folder, names in expected.items():
        assert sorted(path.name for path in (GOLDEN / folder).iterdir()) == sorted(
            f"{name}.txt" for name in names
        )
