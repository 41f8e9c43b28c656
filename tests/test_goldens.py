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
# lines one after another, in a folder of their own that holds what tests/golden/runs
# has: a file holds them beside what they answer, each as `$ COLUMNS=80 ffnbench ...`
TYPED = {
    path.stem: re.findall(r"^\$ COLUMNS=80 ffnbench ?(.*)", path.read_text(), re.M)
    for path in sorted(GOLDEN.glob("commands/*.txt"))
}
# a mistake that is to be told in two lines is a line `$ ffnbench ...` of this file
MISTAKES = GOLDEN / "mistakes.txt"
Golden = Callable[[str, str], None]
Call = Callable[..., str]


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
    "ab-slower": lambda: Machine("SwiGLU"),
    "env": lambda: Machine(trouble={("timer", None): Timer(empty_call_s=1e-7)}),
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
    assert ("exit code 130" in text) == ("interrupted" in name), "a Ctrl-C is no answer"
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
