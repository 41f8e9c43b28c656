"""What tests/fuzz.py types, the files that it meets, and the machine: lines that are answered, half of them changed.

What is odd is written by hand, one of a kind. Everything follows from dice.
"""

from __future__ import annotations

import copy
import json
import math
import random
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch
from zlib import crc32

from conftest import FakeLaunch, FakeWorker

from ffnbench.api import measuring
from ffnbench.cli.commands import command_names
from ffnbench.common.errors import Unfinished
from ffnbench.ffn.cost import Cost
from ffnbench.ffn.user_activation import OwnActivation
from ffnbench.messages import Count, Describe, Described, Failed, Greeting, Located, Trace, Traced, WorkerRequest
from ffnbench.plan import OWN, Arm
from ffnbench.result import Agreement, FailureKind, Timer
from ffnbench.run import world
from ffnbench.run.prober import Prober
from ffnbench.run.session import WorkerLost

Dice = random.Random
LONG = "x" * 5000
EVIL = (
    "\x1b[31mred\x1b[0m", "\x1b]0;owned\x07", "two\nlines", "carriage\rreturn", "\x9b31m", "\u202eright\u202c",
    "[bold red]x[/]", "[/x]", "::error file=x::boo", "<script>alert(1)</script>", "a|b", "$\\frac{1}{0}$", "_hidden",
    "\udcff", LONG, "", "日本語", "=1+1", "--", "a\nTraceback (most recent call last):\n", "%s%d{0}", "'", "../..", "~",
)  # fmt: skip
NUMBERS = (
    "0", "-1", "nan", "inf", "1e400", "1e-400", "1" * 400, "0x10", "３", "²", "", "1_0", "1.5", "1,2", "1e",
    "9223372036854775808", "1" + "0" * 12, "3%",
)  # fmt: skip
ODD: tuple[Any, ...] = (
    None, True, 0, -1, 1, 7, -0.5, 1e308, 2**63 - 1, 10**18, "x", "relu", "512", [], {}, [1, 2], {"x": 1}, "\ud800",
    LONG, *EVIL[:6],
)  # fmt: skip
SIGNS = "@=,:/.-_ x[]{}%$\\'\"~*\n\x1b\u202e²é019"
KEYS = ("d_ff", "bias", "beta", "gate", "dropout", "moe", "dtype", "backend", "batch", "seq_len", "mode", "env", "x")

FORMS = (
    "relu", "gelu", "swiglu", "geglu", "bilinear", "gelu_tanh", "swish@beta=0.5", "swiglu_oai@limit=5@offset=0",
    "silu@gate=output", "relu@gate=output@bias=true", "b=relu@dropout=0.1", "h=relu@init=he_xavier",
    "l=swiglu@rule=llama", "t=relu@mode=train", "h16=swiglu@dtype=bf16@batch=2@seq_len=16", "w=swiglu@d_ff=64",
    "[/x]=gelu", "日本=silu", "$x$=gelu", "swiglu@moe=4x2", "s=relu@moe=4x1@shared=16@routing=skewed", "GELU",
)  # fmt: skip
OWN_CODE = ("mine.py:Net", "own=mine.py:Net@d_ff=32", "mine.py:act@gate=inner", "env=relu@env=A:1", "x=relu@threads=1")
PRESETS = ("gpt2", "llama3-8b", "mixtral-8x7b", "deepseek-v3", "vit-b16")
CURVES = ("relu", "gelu", "mish", "swish@beta=0.5", "mine.py:act", "identity", "my=gelu")
OUTPUTS = ("out.csv", "out.json", "out.md", "OUT.CSV", "a b.csv", "é\u202e.json", "here/../out.csv", "kept.json", "o/")
BAD_OUTPUTS = ("out.xlsx", "out", "no/where.csv", "folder.csv", LONG + ".csv", "", ".", "kept.json/x.csv", "base.json",
               "a\x1b[31m.csv", "mine.py")  # fmt: skip
VALUES: dict[str, tuple[str, ...]] = {  # what is valid for a flag wherever it may be typed
    "--variants": FORMS, "--variant": FORMS[:4], "--activations": CURVES, "--preset": PRESETS, "-o": OUTPUTS,
    "--d-model": ("16", "64", "768"), "--d-ff": ("64", "100"), "--multiple-of": ("1", "64"), "--ratio": ("4", "2"),
    "--dropout": ("0", "0.5"), "--batch": ("1", "7"), "--seq-len": ("1", "16", "512"), "--threads": ("1", "3"),
    "--dtype": ("float32", "bf16", "FP32"), "--mode": ("forward", "train", "backward"), "--device": ("cpu", "auto"),
    "--backend": ("eager", "compile", "eager,onednn", "all"), "--workers": ("3", "5"), "--rounds": ("2", "6"),
    "--precision": ("1", "50"), "--budget": ("5", "40"), "--seed": ("0", "77130259"), "--timeout": ("5", "0.5"),
    "--runs": ("1", "2"), "--pause": ("0", "60"), "--init": ("torch", "normal"), "--routing": ("uniform", "skewed"),
    "--match": ("params", "flops", "none"), "--rule": ("llama", "classic"), "--heads": ("2", "4"),
    "--metrics": ("latency", "latency,memory", "memory,sparsity", "ceilings,latency"), "--elements": ("1024", "1,64"),
    "--range": ("-4:4", "0:0.1"),
    "--format": ("table", "csv", "json", "markdown", "github"), "--tolerance": ("latency=5%", "params=1%"),
    "--on-unclear": ("pass", "fail"),
    "--fail-above": ("5%", "0.1"), "--base-env": ("A:1",), "--head-env": ("A:2",), "--sort": ("latency", "-params"),
    "--columns": ("params,latency",), "--repeats": ("1", "2"),
}  # fmt: skip
SLOW = ("--budget", "--workers", "--rounds", "--runs", "--repeats", "--elements", "--seq-len")  # where large
MODULE = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, dim, hidden_dim):
        super().__init__()
        self.up, self.down = nn.Linear(dim, hidden_dim), nn.Linear(hidden_dim, dim)

    def forward(self, x):
        return self.down(torch.relu(self.up(x)))


def act(x):
    return x * torch.sigmoid(x)
"""
LLAMA: dict[str, Any] = {
    "model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "hidden_act": "silu",
    "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 100, "attention_bias": False, "mlp_bias": False,
}  # fmt: skip
VISION = {"model_type": "clip_vision_model", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
          "hidden_act": "quick_gelu", "num_attention_heads": 2}  # fmt: skip
CONFIGS: tuple[dict[str, Any], ...] = (
    LLAMA,
    LLAMA | {"model_type": "qwen2_moe", "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 32,
             "shared_expert_intermediate_size": 64, "decoder_sparse_step": 2, "num_hidden_layers": 6},
    {"model_type": "llava", "text_config": LLAMA, "vision_config": VISION},
)  # fmt: skip
# how often, and lines with {what} is filled in; a feature may have been deleted
LINES: dict[str, tuple[int, tuple[str, ...]]] = {
    "compare": (24, (
        "--variants {forms} {size} {effort}", "--variants {forms},{own} {effort} --match none", "{model} --quick",
        "--variants {forms} --control --workers 4", "{forms} {size} --metrics memory",
        "{forms} --backend compile --quick", "{forms} --seq-len 16,128 --quick",
    )),
    "cost": (12, ("--variants {forms} {size}", "{model}", "{forms} --match flops", "{forms} --seq-len 1,16 --bias")),
    "block": (10, ("--d-model 16 --heads 2 --seq-len 16 {effort}", "{model} --cost-only")),
    "check": (22, (
        "{saved}", "base.json again.json", "{saved} --exact-only", "ci.json --exact-only", "base.json --update",
        "several.json --append", "{saved} --format github", "base.json --budget 40 -o out.xml",
    )),
    "report": (14, ("{saved}", "counts.json", "base.json again.json")),
    "history": (6, ("base.json again.json", "several.json", "base.json counts.json", ".")),
    "ab": (6, ("pkg.mod:Net --base-env A:1 --d-model 16", "swiglu --base-env A:1 --head-env A:2 --d-model 64")),
    "bisect": (2, ("pkg.mod:Net --good HEAD~1", "pkg.mod:Net --good HEAD --probes 1 --d-model 16")),
    "activations": (6, ("", "--activations {curves}", "--activations {curves} --time --workers 3 --elements 1,64")),
    "plot-activations": (1, ("--activations {curves} --dpi 50", "--gated --activations geglu --dpi 20 -o out.png")),
    "inspect": (8, ("{preset}", "{config}", "{config} --whole-model", "{preset} --length 64")),
    "list": (2, ("", "variants", "activations", "presets")),
    "env": (1, ("",)),
    "selftest": (1, ("--repeats 1 --budget 5",)),
}  # fmt: skip
LINES = {name: lines for name, lines in LINES.items() if name in command_names()}
EFFORT = ("", "--quick", "--workers 3 --rounds 6", "--precision 5", "--workers 4 --runs 2 --pause 0.5")


@dataclass
class Input:
    """One command line with all that it meets. `meant` tells whether it was built to be answered."""

    argv: list[str]
    files: dict[str, bytes | None] = field(default_factory=dict)  # content, None of a folder
    env: dict[str, str] = field(default_factory=dict)
    encoding: str = "utf-8"
    machine: dict[str, Any] = field(default_factory=dict)
    meant: bool = True

    def values(self, *names: str) -> list[str]:
        """What is typed behind these flags."""
        joined = [word.partition("=")[2] for word in self.argv if word.startswith(tuple(f"{n}=" for n in names))]
        return joined + [value for name, value in zip(self.argv, self.argv[1:], strict=False) if name in names]


class Maker:
    """Makes inputs of dice. `flags` are those of each command; `saved` are files that commands wrote, by name."""

    def __init__(self, flags: dict[str, list[str]], saved: dict[str, bytes]) -> None:
        self.flags, self.saved = flags, saved

    def make(self, dice: Dice) -> Input:
        """One input."""
        command = dice.choices(list(LINES), [weight for weight, _ in LINES.values()])[0]
        files: dict[str, bytes | None] = {
            "mine.py": MODULE.encode(), "kept.json": b'{"a file": "of somebody"}', "folder.csv/x": b"x", "here": None,
            "config.json": json.dumps(dice.choice(CONFIGS)).encode(),
        }  # fmt: skip
        words = [self.filled(dice, word) for word in dice.choice(LINES[command][1]).split()]
        given = Input([command, *" ".join(words).split()], files)
        for flag in dice.sample(sorted(VALUES), 4):
            if dice.random() < 0.3 and flag in self.flags[command] and flag not in given.argv:
                given.argv += [flag, dice.choice(VALUES[flag])]
        self.around(dice, given)
        if dice.random() < 0.52:
            given.meant = False
            ways = (self.change_value, self.add_flag, self.change_text, self.change_file, self.trouble)
            for _ in range(dice.choice((1, 1, 1, 2, 3))):
                dice.choices(ways, (5, 4, 5, 6, 2))[0](dice, given)
        for name, text in self.saved.items():
            if f"{name}.json" in given.argv:
                files.setdefault(f"{name}.json", text)
        return given

    def filled(self, dice: Dice, word: str) -> str:
        """The words that stand for one with {what} in it."""
        model = dice.choice((f"--preset {dice.choice(PRESETS)}", "--config config.json"))
        known = {
            "forms": ",".join(dice.sample(FORMS, dice.randint(1, 3))), "own": dice.choice(OWN_CODE), "model": model,
            "size": dice.choice((f"--d-model {dice.choice(VALUES['--d-model'])}", "", model)),
            "effort": dice.choice(EFFORT), "curves": ",".join(dice.sample(CURVES, 2)), "preset": dice.choice(PRESETS),
            "config": "config.json", "saved": f"{dice.choice(('base', 'several', 'memory', 'block', 'time'))}.json",
        }  # fmt: skip
        return re.sub(r"\{(\w+)\}", lambda found: known[found[1]], word)

    def around(self, dice: Dice, given: Input) -> None:
        """The terminal and the machine."""
        given.encoding = dice.choice(("utf-8",) * 6 + ("ascii", "latin-1"))
        if dice.random() < 0.4:
            given.env["COLUMNS"] = dice.choice(("1", "0", "20", "60", "200", "-3", "x"))
        if dice.random() < 0.3:
            given.env["GITHUB_STEP_SUMMARY"] = dice.choice(("summary.md", "summary.md", "here"))
        given.machine = {
            "scatter": dice.choice((0.002, 0.002, 0.002, 0.02, 0.0, 3.0)), "slow": dice.choice((1.0, 1.0, 1.3, 0.7)),
            "waited": dice.choice((0.003, 0.003, None, 0.5)),
        }  # fmt: skip

    # what is changed of it

    def value(self, dice: Dice, flag: str) -> str:
        """A value that may be anything."""
        if flag in VALUES and dice.random() < 0.3:
            return dice.choice(VALUES[flag])
        if flag == "-o":
            return dice.choice((*OUTPUTS, *BAD_OUTPUTS))
        found = dice.choice((*NUMBERS, *EVIL))
        return "-1" if flag in SLOW and re.fullmatch(r"1(0+|_0)", found) else found

    def change_value(self, dice: Dice, given: Input) -> None:
        """Another word, or none, in the place of one."""
        if len(given.argv) == 1:
            return self.add_flag(dice, given)
        place = dice.randrange(1, len(given.argv))
        if given.argv[place].startswith("--") and dice.random() < 0.8 and place + 1 < len(given.argv):
            place += 1
        given.argv[place : place + 1] = [self.value(dice, given.argv[place - 1])] if dice.random() < 0.9 else []

    def add_flag(self, dice: Dice, given: Input) -> None:
        """Any flag of the command, with a value or without."""
        flag = dice.choice(self.flags[given.argv[0]])
        given.argv += [flag, self.value(dice, flag)] if flag in VALUES or dice.random() < 0.5 else [flag]

    def change_text(self, dice: Dice, given: Input) -> None:
        """A few letters of a word; of a list of variants also a key."""
        place = dice.randrange(len(given.argv))
        text = given.argv[place]
        if dice.random() < 0.4 and set(text.split(",")) & {*FORMS, *CURVES}:
            label = f"{dice.choice(EVIL)}=" * (dice.random() < 0.3)
            given.argv[place] = f"{label}{text}@{dice.choice(KEYS)}={dice.choice((*NUMBERS, *EVIL, 'true', '4x2'))}"
            return
        for _ in range(dice.choice((1, 1, 2, 4)) if place else 0):
            at = dice.randrange(len(text) + 1)
            text = text[:at] + dice.choice((dice.choice(SIGNS), "")) + text[at + dice.randrange(2) :]
        given.argv[place] = text

    def change_file(self, dice: Dice, given: Input) -> None:
        """What stands in a file that is read."""
        read = [word for word in given.argv if word == "config.json" or word.removesuffix(".json") in self.saved]
        if not read:
            return self.change_value(dice, given)
        name = dice.choice(read)
        text = given.files.get(name) or self.saved.get(name.removesuffix(".json"), b"{}")
        given.files[name] = broken_text(dice, text) if dice.random() < 0.25 else changed_json(dice, text)

    def trouble(self, dice: Dice, given: Input) -> None:
        """Something goes wrong in a worker."""
        how = dice.choice(("failure", "failure", "lost", "unfinished", "interrupt"))
        kinds = ("oom", "unsupported", "crash", "timeout", "mismatch") if how == "failure" else ("crash", "timeout")
        given.machine["trouble"] = Trouble(
            dice.choice(JOBS), how, dice.choice(kinds), dice.choice(EVIL), dice.choice((1, 1, 2, 30))
        )


def broken_text(dice: Dice, text: bytes) -> bytes | None:
    """What no writer of ours makes; or a folder."""
    numbers = [found.span() for found in re.finditer(rb"(?<=[ \[])[\d.]+", text)]
    if numbers and dice.random() < 0.6:
        start, end = dice.choice(numbers)
        number = dice.choice((b"NaN", b"-Infinity", b"1e400", b"1" * 5000, b"-5", b"0", b"01", b"9223372036854775808"))
        return text[:start] + number + text[end:]
    return dice.choice((
        b"", None, text[: dice.randrange(len(text) + 1)], b"\xff\xfe" + text, b"\xef\xbb\xbf" + text, b"null", b"[1]",
        b"[" * 100_000, b'{"a":' * 5000, b'{"plan": 1,' + text[1:], text + b"x",
    ))  # fmt: skip


def changed_json(dice: Dice, text: bytes) -> bytes | None:
    """One to three places changed, each found by walking down from the top."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        return broken_text(dice, text)
    for _ in range(dice.choice((1, 1, 2, 3))):
        place = data
        while isinstance(place, dict | list) and place:
            key = dice.choice(list(place) if isinstance(place, dict) else range(len(place)))
            if not isinstance(place[key], dict | list) or not place[key] or dice.random() < 0.15:
                change_item(dice, place, key)
                break
            place = place[key]
    return json.dumps(data).encode()


def change_item(dice: Dice, place: Any, key: Any) -> None:
    """Another value, another type, none, once more, or under another name."""
    old, way = place[key], dice.randrange(6)
    if way == 0:
        del place[key]
    elif way == 1:
        place[key] = [old]
    elif way == 2 and isinstance(place, list):
        place.append(copy.deepcopy(old))
    elif way == 2:
        place[dice.choice((f"{key}_", LONG, "\x1b[31m", "", "label"))] = place.pop(key)
    elif way == 3 and isinstance(old, int | float):
        place[key] = old * dice.choice((0, -1, 2, 0.5, 1e-9, 1e9))
    else:
        place[key] = copy.deepcopy(dice.choice(ODD))


# the machine


ANSWERS: dict[str, Any] = {  # to requests that conftest's worker does not know
    "MeasureTimer": Timer(empty_call_s=1e-6, resolution_s=1e-9),
    "CountWhole": Failed(kind=FailureKind.UNSUPPORTED, message="transformers is not installed"),
    "CountLayers": Failed(kind=FailureKind.CRASH, message="transformers is not installed"),
    "HoldOutput": Agreement(error=1e-7, tolerance=1e-4, exact_error=1e-16),
    "Locate": Located(file="mine.py"),
}
JOBS = ("greeting", "Open", "TakeSample", "MeasureMemory", "Describe", "Count", "Trace", "MeasureSparsity", "Begin",
        *ANSWERS)  # fmt: skip


@dataclass(frozen=True)
class Trouble:
    """From its `after`-th question of one job on, a worker fails it, is lost, can't start, or the user interrupts."""

    job: str
    how: str  # failure, lost, unfinished, interrupt
    kind: str
    text: str
    after: int


class FuzzWorker(FakeWorker):
    """A worker that may be in trouble."""

    launch: FuzzLaunch

    def greeting(self, timeout_s: float = 0.0) -> Greeting:
        self.launch.refusal("greeting")
        return super().greeting(timeout_s)

    def ask(self, request: WorkerRequest[Any], timeout_s: float) -> Any:
        name = type(request).__name__
        if refused := self.launch.refusal(name):
            return refused
        match request:
            case Describe():
                return self.described(request)
            case Count():
                return self.counted(request)
            case Trace():
                return self.traced(request)
        return ANSWERS[name] if name in ANSWERS else super().ask(request, timeout_s)

    def described(self, request: Describe) -> Described:
        if request.target.rpartition(":")[2][:1].isupper():
            return Described(activation=None)
        return Described(activation=OwnActivation(target=request.target, formula="x tanh(x)", flops=3))

    def counted(self, request: Count) -> Cost:
        total = 3 * request.spec.d_model * request.spec.d_ff
        return Cost(
            params=total, params_active=total, params_formula=None, flops_forward=2 * total, flops_backward=4 * total,
            flops_elementwise=None, flops_elementwise_backward=None, weight_bytes=4 * total, counted=True,
            counted_how="on the meta device",
        )  # fmt: skip

    def traced(self, request: Trace) -> Traced:
        low, high, points = request.low, request.high, request.points
        x = tuple(low + (high - low) * i / (points - 1) for i in range(points))
        slope = tuple(None if v == 0 else float(v > 0) for v in x)
        return Traced(x=x, y=tuple(max(v, 0.0) for v in x), slope=slope, finite=True)


class FuzzLaunch(FakeLaunch):
    """A machine: its dice and clock, what some rows are slower by, the share that threads wait, what goes wrong."""

    def __init__(
        self, seed: str, *, scatter: float = 0.002, slow: float = 1.0, waited: float | None = 0.003,
        trouble: Trouble | None = None,
    ) -> None:  # fmt: skip
        super().__init__(self.seconds_of)
        self.dice, self.scatter, self.slow, self.waited, self.wrong = Dice(seed), scatter, slow, waited, trouble
        self.layouts: dict[tuple[str, int], float] = {}
        self.asked, self.clock_s = 0, 0.0

    def __call__(self, arm: Arm = OWN) -> FuzzWorker:
        worker = FuzzWorker(self, len(self.workers))
        worker.launch = self
        self.workers.append(worker)
        self.clock_s += 1.5
        return worker

    def seconds_of(self, label: str, worker: int, number: int) -> float:
        """What a sample says, 50 ms later."""
        self.clock_s += 0.05
        layout = self.layouts.setdefault((label, worker), self.dice.gauss(0, self.scatter))
        factor = self.slow if crc32(ascii(label).encode()) % 3 == 1 else 1.0
        return 0.01 * factor * math.exp(layout + self.dice.gauss(0, self.scatter))

    def sleep(self, seconds: float) -> None:
        """Let them pass."""
        self.clock_s += seconds

    def refusal(self, job: str) -> Failed | None:
        """What a worker in trouble answers; raises what a lost one, or an interruption, raises."""
        wrong = self.wrong
        self.asked += wrong is not None and wrong.job == job
        if wrong is None or wrong.job != job or self.asked < wrong.after:
            return None
        if wrong.how == "interrupt":
            raise KeyboardInterrupt
        if wrong.how == "lost" and job != "greeting":
            raise WorkerLost(FailureKind(wrong.kind), wrong.text)
        if wrong.how == "unfinished" or job == "greeting":
            raise Unfinished(wrong.text, "a hint of no use")
        return Failed(kind=FailureKind(wrong.kind), message=wrong.text)


class FuzzProber(Prober):
    """The real prober, its workers those of a machine."""

    def __init__(self, launch: FuzzLaunch, timeout_s: float = 300.0, arm: Arm = OWN) -> None:
        super().__init__(timeout_s, arm)
        self.launch = launch

    def within(self, arm: Arm) -> Prober:
        """As the real one's, on the same machine."""
        return self if arm in (OWN, self._arm) else FuzzProber(self.launch, self._timeout_s, arm)

    def start(self) -> Any:
        """A worker of the machine."""
        self._session = self._session or self.launch()  # type: ignore[assignment]
        return self._session

    def origin(self, target: str) -> Path:
        """The source of the arm."""
        super().origin(target)
        return Path(self._arm.source or ".").resolve() / "mine.py"


@contextmanager
def installed(launch: FuzzLaunch) -> Iterator[None]:
    """Put the machine where every command finds one; the clocks of runs and of pauses are its own, too."""
    clock = {"now": lambda: launch.clock_s}
    with ExitStack() as stack:
        fake = world.World(launch=launch, prober=partial(FuzzProber, launch), **clock)  # type: ignore[arg-type]
        for place, name, value in (
            (world, "this_machine", lambda wait=False: fake),
            (measuring, "time", SimpleNamespace(monotonic=clock["now"], sleep=launch.sleep)),
        ):
            stack.enter_context(patch.object(place, name, value))
        yield
