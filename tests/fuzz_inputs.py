"""What tests/fuzz.py types: command lines with their files, valid as often as not. What is odd is written by hand.

A valid input is built first; then, in about half of the cases, a value, a word, a flag or a file of it is changed.
"""

from __future__ import annotations

import copy
import hashlib
import json
import random
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from fuzz_world import FAILURES, JOBS, LOSSES, Trouble

from ffnbench.planning.variant_text import ARM_KEYS, SPEC_KEYS, WORKLOAD_KEYS

LONG = "x" * 5000
EVIL = (
    "\x1b[31mred\x1b[0m", "\x1b]0;owned\x07", "two\nlines", "carriage\rreturn", "\x9b31m", "\u202eright\u202c",
    "\u2066iso\u2069", "\u200emark", "[/x]", "[bold red]x[/]", "[link=http://evil]x[/link]", "::error file=x::boo",
    "::stop-commands::x", "<script>alert(1)</script>", "[a](http://evil)", "`x`", "a|b", "$\\frac{1}{0}$", "_hidden",
    "\udcff", LONG, " ", "\t", "\ufeffx", "\uffff", "\u2028", "\x7f", "日本語", "🙂", "é", "=1+1", "--", "-", "%s%d{0}",
    "a\nTraceback (most recent call last):\n", "a\nerror: not ours", "\\", "'", '"', "#", "> x", "../..", "~", "*",
)  # fmt: skip
NUMBERS = (
    "0", "-1", "-0", "nan", "inf", "-inf", "1e400", "1e-400", "1" + "0" * 30, "1" + "0" * 400, "1" * 5000, "0x10", " 3",
    "３", "٣", "²", "", "1_0", "+5", "1.5", "½", "True", "None", "3;4", "1,2", "1e", "9223372036854775808", "-1e9",
    "1" + "0" * 12, "1" + "0" * 13, "\x1b[31m3", "3%", "3\n",
)  # fmt: skip
NONSENSE = "nonsense!"
# a flag that takes one of few words: any other is a mistake
ENUMERATED = frozenset({
    "--format", "-f", "--mode", "--dtype", "--match", "--rule", "--init", "--routing", "--backend", "--on-unclear",
    "--device", "--metrics", "--export", "--tolerance", "--range",
})  # fmt: skip
# flags that make a run long where they are large: no large value that is valid
SLOW = frozenset({"--budget", "--workers", "--rounds", "--runs", "--repeats", "--elements", "--seq-len"})

FORMS = (
    "relu", "gelu", "silu", "swiglu", "geglu", "reglu", "glu", "bilinear", "mish", "relu2", "gelu_tanh", "tanh",
    "swish@beta=0.5", "swiglu@beta=2", "swiglu_oai", "silu@gate=output", "relu@gate=output@bias=true", "mish_glu",
    "swiglu@bias=true", "b=relu@dropout=0.1", "h=relu@init=he_xavier", "n=swiglu@init=normal", "l=swiglu@rule=llama",
    "t=relu@mode=train", "h16=swiglu@dtype=bf16@batch=2@seq_len=16", "GELU", "gelu_new", "squared_relu", "wide=relu",
    "w=swiglu@d_ff=64", "swiglu_oai@limit=5@offset=0", "é=relu", "[/x]=gelu", "日本=silu", "a b=relu", "$x$=gelu",
    "mine.py:Net", "own=mine.py:Net@d_ff=32", "mine.py:act", "mine.py:act@gate=inner", "env=relu@env=A:1",
    "swiglu@slowdown=0.1", "x=relu@threads=1", "swiglu@experts=eager@moe=4x2",
)  # fmt: skip
EXPERTS = ("swiglu@moe=4x2", "g=swiglu@moe=4x2@experts=grouped@d_ff=64", "s=relu@moe=4x1@shared=16@routing=skewed")
KEYS = (*SPEC_KEYS, *WORKLOAD_KEYS, *ARM_KEYS, "x")
SIGNS = "@=,:/.-_ xX[]{}()%$\\'\"~*?;&|<>!#^`\n\t\x1b\x07\u202e\u0660²é0123456789"
OWN_FORMS = tuple(form for form in FORMS if "mine.py" not in form)
PRESETS = ("gpt2", "bert-base", "t5-base", "llama3-8b", "mixtral-8x7b", "deepseek-v3", "gpt-oss-120b", "vit-b16")
CURVES = ("relu", "gelu", "silu", "mish", "swish@beta=0.5", "mine.py:act", "relu2", "identity", "my=gelu", "tanh")
SURFACES = ("swiglu", "geglu", "reglu", "silu", "glu", "bilinear")

# what is valid for a flag wherever it may be typed
VALUES: dict[str, tuple[str, ...]] = {
    "--d-model": ("16", "64", "96", "128", "256", "768"), "--d-ff": ("16", "64", "128", "100"),
    "--multiple-of": ("1", "8", "64"), "--ratio": ("4", "2", "8"), "--ffn-dim-multiplier": ("1.3", "1"),
    "--dropout": ("0", "0.1", "0.5"), "--batch": ("1", "2", "7"), "--seq-len": ("1", "16", "128", "512"),
    "--dtype": ("float32", "bfloat16", "bf16", "float16", "float64", "FP32"),
    "--mode": ("forward", "train", "backward"),
    "--device": ("cpu", "auto", "CPU"), "--threads": ("1", "2", "3"),
    "--backend": ("eager", "compile", "eager,onednn", "all"),
    "--workers": ("3", "4", "5"), "--rounds": ("2", "6", "9"), "--precision": ("1", "0.5", "5", "50"),
    "--budget": ("5", "15", "40"), "--seed": ("0", "1", "77130259"), "--timeout": ("5", "300", "0.5"),
    "--runs": ("1", "2", "3"), "--pause": ("0", "0.5", "60"), "--init": ("torch", "he_xavier", "normal"),
    "--routing": ("uniform", "skewed", "trained-like"), "--match": ("params", "flops", "none"),
    "--rule": ("llama", "palm", "classic", "notes", "dinov2"), "--metrics": ("latency", "memory", "latency,memory",
    "latency,sparsity", "memory,sparsity", "ceilings,latency"), "--heads": ("1", "2", "4"), "--kv-heads": ("1", "2"),
    "--head-dim": ("8", "16", "64"), "--elements": ("1024", "1,64", "1048576"), "--range": ("-4:4", "-1:1e3", "0:0.1"),
    "--format": ("table", "csv", "json", "markdown"), "--tolerance": ("latency=5%", "params=1%", "latency=0.08"),
    "--export": ("bencher", "github-action-benchmark=gab.json"), "--on-unclear": ("pass", "fail"),
    "--fail-above": ("5%", "0.1"), "--repeats": ("1", "2"),
    "--preset": PRESETS, "--activations": ("relu,gelu", "silu", "swish@beta=0.5,relu"), "--variant": ("gelu", "swiglu"),
    "--base-env": ("A:1",), "--head-env": ("A:2",), "--base-source": ("old",), "--head-source": (".",),
}  # fmt: skip
FOLDER_NAMES = ("old", ".", "mine.py", "~nobody-there", "/", LONG, "", "here")
REVISIONS = ("v1", "HEAD", "HEAD~9", "--upload-pack=x", "\x1b[31m", "", "@{1}", LONG)
VARIABLES = ("A:1", "A", ":", "1:2", "A:\x1b[31m", "PATH:", f"A:{LONG}", "A:\n")
SIDES = {  # what may be typed of a side of `ab`
    f"--{side}-{what}": known for side in ("base", "head")
    for what, known in (("source", FOLDER_NAMES), ("python", FOLDER_NAMES), ("rev", REVISIONS), ("env", VARIABLES))
}  # fmt: skip
OUTPUTS = (
    "out.csv", "out.json", "out.md", "OUT.CSV", "a b.csv", "é\u202e.json", "here/../out.csv", "null.json", "kept.json",
    "measured.json", "link.csv", "dangling.csv", "./out.csv",
)  # fmt: skip
FOLDERS = ("o/", "deep/er/", "here")  # all formats, pictures too, which take their time
PICTURES = ("out.png", "out.svg", "out.pdf")
BAD_OUTPUTS = (
    "out.xlsx", "out", "no/where.csv", "folder.csv", LONG + ".csv", "x" * 254 + ".csv", "~nobody-there/x.csv", "",
    ".", "/proc/x.csv", "/dev/full", "full.csv", "pipe.csv", "loop.csv", "kept.json/x.csv", "a\x1b[31m.csv",
    "out.csv\n", "mine.py", "config.json", "base.json",
)  # fmt: skip
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
    {"model_type": "gpt2", "n_embd": 64, "n_layer": 2, "n_inner": None, "activation_function": "gelu_new", "n_head": 2},
    {"model_type": "t5", "d_model": 64, "d_ff": 128, "num_layers": 2, "num_heads": 2, "d_kv": 32,
     "feed_forward_proj": "gated-gelu"},
    LLAMA | {"model_type": "qwen2_moe", "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 32,
             "shared_expert_intermediate_size": 64, "decoder_sparse_step": 2, "mlp_only_layers": [3],
             "num_hidden_layers": 6},
    LLAMA | {"model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 2},
    LLAMA | {"model_type": "gpt_oss", "num_local_experts": 4, "num_experts_per_tok": 2, "head_dim": 16,
             "swiglu_limit": 7.0},
    {"model_type": "llava", "text_config": LLAMA, "vision_config": VISION},
)  # fmt: skip
ODD: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2, 3, 7, 0.0, -0.5, 1e308, 1e-308, 2**63 - 1, 10**12, 10**18, "", "x", "relu", "gelu",
    "512", [], {}, [1, 2], [[]], {"x": 1}, {"model_type": ["x"]}, [None], "\ud800", LONG, *EVIL[:12],
)  # fmt: skip


@dataclass(frozen=True)
class File:
    """What stands under a name: text, folder, link, pipe, repository; `data` is its content, or where a link goes."""

    kind: str
    data: bytes | str = b""


@dataclass
class Input:
    """One command line with all that it meets. `meant` tells whether it was built to be answered."""

    command: str
    words: list[str] = field(default_factory=list)  # arguments without a flag
    flags: list[list[str]] = field(default_factory=list)
    files: dict[str, File] = field(default_factory=dict)
    env: dict[str, str] = field(default_factory=dict)
    encoding: str = "utf-8"
    world: dict[str, Any] = field(default_factory=dict)
    meant: bool = True

    @property
    def argv(self) -> list[str]:
        """As it is typed."""
        return [self.command, *self.words, *(word for flag in self.flags for word in flag)]

    def flag(self, name: str, value: str | None = None) -> None:
        """Type a flag; a value that begins with a dash is joined to it."""
        if value is None:
            self.flags.append([name])
        elif value.startswith("-") and name.startswith("--"):
            self.flags.append([f"{name}={value}"])
        else:
            self.flags.append([name, value])

    def has(self, *names: str) -> bool:
        """Whether one of these is typed."""
        return any(flag[0].partition("=")[0] in names for flag in self.flags)


@dataclass(frozen=True)
class Option:
    """A flag as the command line itself tells it."""

    spelled: tuple[str, ...]
    takes_value: bool
    metavar: str


Commands = dict[str, list[Option]]
Dice = random.Random


# what is typed to be answered: how often, lines with {what} is filled in, and flags that may stand beside each of them
CHECKED = ("base", "several", "memory", "block", "time", "control")  # saved runs that a check can be made of
LOAD = "--batch --dtype --mode --dropout --multiple-of"
RUN = "--seed --timeout --device --threads --format --wide --quiet"
EFFORT = ("", "--quick", "--workers 3 --rounds 6", "--precision 5", "--budget 15", "--precision 1 --budget 40",
          "--workers 4 --runs 2 --pause 0.5")  # fmt: skip
LINES: dict[str, tuple[int, tuple[str, ...], str]] = {
    "compare": (24, (
        "--variants {forms} {size} {effort}", "--variants {forms} {effort} --match none", "{model} --quick",
        "--variants {experts},relu --d-model 64 --quick --routing skewed", "--variants {forms} --control --workers 4",
        "{forms} {size} --metrics memory", "{forms} --backend compile --quick", "{forms} --seq-len 16,128 --quick",
    ), f"{LOAD} {RUN} --init --sort --columns"),
    "cost": (16, ("--variants {own} {size}", "{model}", "{own} --match flops", "{own} --ratio 2", "{own},{experts}",
                  "{own} {size} --seq-len 1,16", "{own} --bias", "{own} --rule llama"), f"{LOAD} --format --wide"),
    "block": (12, (
        "{model} --whole-model", "{size} --cost-only --seq-len 16,32", "{model} --cost-only --seq-len 128,1024",
        "--d-model 16 --heads 2 --seq-len 16 {effort}", "--d-model 64 --variant {own} --no-textbook --quick",
        "{model} --seq-len 1 --quick",
    ), "--format --wide --quiet --causal --dtype"),
    "check": (22, (
        "{saved}", "base.json again.json", "several.json base.json", "{saved} --exact-only", "ci.json --exact-only",
        "base.json --update", "several.json --append", "{saved} --format github", "base.json --tolerance latency=5%",
        "{saved} --across-machines", "base.json --budget 40 -o out.xml",
    ), "--on-unclear --export --quiet --wide"),
    "report": (18, ("{any}",) * 6 + ("base.json again.json",), "--format --wide"),
    "ab": (8, (
        "mine.py:Net --base-rev v1 --d-model 16", "mine.py:Net --base-rev HEAD --head-env A:2 --d-model 16",
        "mine.py:act --base-source old --d-model 64", "pkg.mod:Net --base-env A:1 --d-model 16",
        "swiglu --base-env OMP_NUM_THREADS:1 --d-model 64", "mine.py:Net --base-env A:1 --d-model 16 --exact-only",
    ), "--batch --seq-len --dtype --mode --threads --seed --allow-mismatch --fail-above --on-unclear --export"),
    "activations": (8, ("", "--activations {curves}", "--activations {curves} --time --workers 3 --elements 1,64"),
                    "--format --wide --quiet"),
    "plot-activations": (1, (
        "--activations {curves} --dpi 50", "--gated --activations {surfaces} --dpi 20 -o out.png",
        "--activations {curves} --no-derivative -o points.csv", "--activations {curves} -o out.svg -o out.pdf",
    ), "--range --size --style"),
    "inspect": (12, ("{preset}", "{config}", "{config}", "{config} --whole-model"), "--format --wide"),
    "list": (3, ("", "variants", "activations", "rules", "presets", "dtypes"), "--format --wide"),
    "env": (2, ("", "--timer"), "--format --wide"),
    "selftest": (1, ("--repeats 1 --budget 5", "--repeats 2 --budget 5 --d-model 64"), "--threads --seed"),
}  # fmt: skip


class Maker:
    """Makes inputs of dice. `saved` are files that commands wrote, by name."""

    def __init__(self, commands: Commands, saved: dict[str, bytes]) -> None:
        self.commands, self.saved = commands, saved

    def make(self, dice: Dice) -> Input:
        """One input."""
        given = Input(command=dice.choices(list(LINES), [weight for weight, _, _ in LINES.values()])[0])
        given.files["mine.py"] = given.files["old/mine.py"] = File("text", MODULE.encode())
        _, lines, beside = LINES[given.command]
        self.type(dice, given, dice.choice(lines))
        for name in beside.split():
            if dice.random() < 0.12 and self.knows(given, name) and not given.has(name):
                given.flag(name, dice.choice(VALUES[name]) if name in VALUES else None)
        self.written(dice, given)
        self.around(dice, given)
        if dice.random() < 0.52:
            given.meant = False
            for _ in range(dice.choice((1, 1, 1, 2, 3))):
                self.change(dice, given)
        dice.shuffle(given.flags)
        return given

    def type(self, dice: Dice, given: Input, line: str) -> None:
        """The words of a line, filled in; a word behind a flag that takes one is its value."""
        takes = {name for one in self.commands[given.command] if one.takes_value for name in one.spelled}
        words = [part for word in line.split() for part in self.filled(dice, given, word)]
        while words:
            word = words.pop(0)
            if not word.startswith("--") and word != "-o":
                given.words.append(word)
            else:
                given.flag(word, words.pop(0) if word in takes else None)
        for word in given.words:
            if word.removesuffix(".json") in self.saved:
                self.file(given, word.removesuffix(".json"))
        if given.has("--base-rev"):
            given.files["."] = File("repository")

    def filled(self, dice: Dice, given: Input, word: str) -> list[str]:
        """The words that stand for one with {what} in it."""
        found = re.fullmatch(r"(?P<before>[^{]*)\{(?P<what>\w+)\}(?P<after>.*)", word)
        if found is None:
            return [word]
        what = found["what"]
        if what == "effort":
            return dice.choice(EFFORT).split()
        if what == "size":
            return dice.choice((["--d-model", dice.choice(VALUES["--d-model"])], [], self.model(dice, given)))
        if what == "model":
            return self.model(dice, given)
        text = {
            "forms": lambda: self.forms(dice), "own": lambda: ",".join(dice.sample(OWN_FORMS, dice.randint(1, 3))),
            "experts": lambda: dice.choice(EXPERTS), "preset": lambda: dice.choice(PRESETS),
            "config": lambda: self.config(dice, given), "curves": lambda: ",".join(dice.sample(CURVES, 2)),
            "surfaces": lambda: ",".join(dice.sample(SURFACES, 2)),
            "any": lambda: f"{dice.choice(list(self.saved))}.json", "saved": lambda: f"{dice.choice(CHECKED)}.json",
        }[what]()  # fmt: skip
        return self.filled(dice, given, f"{found['before']}{text}{found['after']}")

    def knows(self, given: Input, name: str) -> bool:
        """Whether the command has the flag."""
        return any(name in option.spelled for option in self.commands.get(given.command, []))

    def forms(self, dice: Dice) -> str:
        """A list of variants."""
        return ",".join(dice.sample(FORMS, dice.randint(1, 3)))

    def model(self, dice: Dice, given: Input) -> list[str]:
        """A model, as it is typed."""
        if dice.random() < 0.5:
            return ["--preset", dice.choice(PRESETS)]
        return ["--config", self.config(dice, given)]

    def config(self, dice: Dice, given: Input) -> str:
        """The path of a config.json."""
        text = json.dumps(dice.choice(CONFIGS))
        if dice.random() < 0.2:
            given.files["model/config.json"] = File("text", text.encode())
            return "model"
        given.files["config.json"] = File("text", text.encode())
        return "config.json"

    def file(self, given: Input, name: str) -> str:
        """A saved file, beside the input."""
        given.files[f"{name}.json"] = File("text", self.saved[name])
        return f"{name}.json"

    def written(self, dice: Dice, given: Input) -> None:
        """Which files are written, and what stands there."""
        if self.knows(given, "-o") and given.command != "plot-activations":
            while dice.random() < 0.2:
                given.flag("-o", dice.choice(OUTPUTS))
            if dice.random() < 0.03:
                given.flag("-o", dice.choice(FOLDERS))
        given.files |= {
            "kept.json": File("text", b'{"a file": "of somebody"}'), "folder.csv/x": File("text", b"x"),
            "here/x": File("text", b"x"), "link.csv": File("link", "target.csv"), "target.csv": File("text", b"old"),
            "dangling.csv": File("link", "new.csv"), "null.json": File("link", "/dev/null"),
            "full.csv": File("link", "/dev/full"), "loop.csv": File("link", "loop.csv"), "pipe.csv": File("pipe"),
            "measured.json": File("text", self.saved["base"]) if dice.random() < 0.1 else File("text", b"{}"),
        }  # fmt: skip

    def around(self, dice: Dice, given: Input) -> None:
        """The machine, the terminal, and what becomes of the workers."""
        given.encoding = dice.choice(("utf-8",) * 6 + ("ascii", "latin-1", "cp437"))
        if dice.random() < 0.4:
            given.env["COLUMNS"] = dice.choice(("1", "0", "20", "60", "100", "200", "1000", "-3", "x"))
        if dice.random() < 0.1:
            given.env["NO_COLOR"] = "1"
        if dice.random() < 0.3:
            given.env["GITHUB_STEP_SUMMARY"] = dice.choice(("summary.md", "summary.md", "here", "no/where.md"))
        given.world = {
            "scatter": dice.choice((0.002, 0.002, 0.002, 0.002, 0.02, 0.0, 3.0)),
            "slow": dice.choice((1.0, 1.0, 1.0, 1.3, 0.7)),
            "waited": dice.choice((0.003, 0.003, 0.003, None, 0.5)),
        }

    # what is changed of it

    def change(self, dice: Dice, given: Input) -> None:
        """One change."""
        ways: list[tuple[int, Callable[[Dice, Input], None]]] = [
            (5, self.change_value), (4, self.add_flag), (2, self.drop), (3, self.change_text), (1, self.repeat),
            (6, self.change_file), (2, self.trouble), (1, self.change_word), (1, self.swap), (1, self.nonsense),
        ]  # fmt: skip
        dice.choices([way for _, way in ways], [weight for weight, _ in ways])[0](dice, given)

    def change_value(self, dice: Dice, given: Input) -> None:
        """Another value for a flag that is typed."""
        valued = [i for i, flag in enumerate(given.flags) if len(flag) == 2]
        if not valued:
            return self.add_flag(dice, given)
        place = dice.choice(valued)
        name = given.flags[place][0]
        given.flags.pop(place)
        given.flag(name, self.value(dice, name, ""))

    def value(self, dice: Dice, name: str, metavar: str) -> str:
        """A value that may be anything."""
        choice = dice.random()
        if name in VALUES and choice < 0.2:
            return dice.choice(VALUES[name])
        if choice < 0.7 and (metavar in ("", "INT", "X", "P", "PCT", "SECONDS") or name in VALUES):
            number = dice.choice(NUMBERS)
            return "-1" if name in SLOW and number in ("1" + "0" * 12, "1_0", "1e3") else number
        return dice.choice(EVIL)

    def add_flag(self, dice: Dice, given: Input) -> None:
        """Any flag of the command, valid or not."""
        option = dice.choice(self.commands.get(given.command) or [Option(("-x",), False, "")])
        name = dice.choice(option.spelled)
        if name in ("--help", "-h", "--version") and dice.random() < 0.8:
            return
        if not option.takes_value:
            given.flag(name)
        elif name in VALUES and dice.random() < 0.6:
            given.flag(name, dice.choice(VALUES[name]))
        elif name in ("-o", "--out"):
            given.flag(name, dice.choice((*OUTPUTS, *BAD_OUTPUTS, *FOLDERS[:1])))
        elif name in ("--config", "--preset"):
            given.flag(name, self.config(dice, given))
        elif name == "--variants":
            given.flag(name, self.forms(dice))
        elif name == "--export":
            given.flag(
                name,
                f"{dice.choice(('bencher', 'x'))}={dice.choice((*OUTPUTS, *BAD_OUTPUTS))}",
            )
        elif name in SIDES:
            given.flag(name, dice.choice(SIDES[name]))
        else:
            given.flag(name, self.value(dice, name, option.metavar))

    def drop(self, dice: Dice, given: Input) -> None:
        """A flag, a value or a word less."""
        if given.words and dice.random() < 0.3:
            given.words.pop()
        elif given.flags:
            place = dice.randrange(len(given.flags))
            flag = given.flags.pop(place)
            if len(flag) == 2 and dice.random() < 0.3:
                given.flags.insert(place, flag[:1])

    def repeat(self, dice: Dice, given: Input) -> None:
        """A flag twice, or a word."""
        if given.flags:
            given.flags.append(list(dice.choice(given.flags)))
        elif given.words:
            given.words.append(given.words[0])

    def change_text(self, dice: Dice, given: Input) -> None:
        """A few letters of a value; of a list of variants also a key."""
        valued = [flag for flag in given.flags if len(flag) == 2]
        if not valued:
            return self.change_word(dice, given)
        flag = dice.choice(valued)
        if flag[0] in ("--variants", "--activations", "--variant") and dice.random() < 0.6:
            extra = f"@{dice.choice(KEYS)}={dice.choice((*NUMBERS, *EVIL, *(v for of in VALUES.values() for v in of)))}"
            parts = flag[1].split(",")
            place = dice.randrange(len(parts))
            parts[place] += extra
            if dice.random() < 0.2:
                parts[place] = f"{dice.choice(EVIL)}={parts[place]}"
            flag[1] = ",".join(parts)
        else:
            flag[1] = edited(dice, flag[1])

    def change_word(self, dice: Dice, given: Input) -> None:
        """Another word in place of an argument."""
        if not given.words:
            given.words.append(dice.choice(EVIL))
            return
        place = dice.randrange(len(given.words))
        others = ("", ".", "/", "~nobody-there/x.json", "no.json", "folder.csv", "loop.csv", "/dev/null", LONG)
        given.words[place] = dice.choice((edited(dice, given.words[place]), *others, dice.choice(EVIL)))

    def swap(self, dice: Dice, given: Input) -> None:
        """The flags of one command typed for another."""
        given.command = dice.choice((*self.commands, "comprae", "", "-h", "--version", dice.choice(EVIL)))

    def nonsense(self, dice: Dice, given: Input) -> None:
        """A word that no flag knows."""
        names = [n for option in self.commands.get(given.command, []) for n in option.spelled if n in ENUMERATED]
        if names:
            given.flag(dice.choice(names), NONSENSE)

    def trouble(self, dice: Dice, given: Input) -> None:
        """Something goes wrong in a worker."""
        how = dice.choice(("failure", "failure", "lost", "unfinished", "interrupt"))
        given.world["trouble"] = Trouble(
            job=dice.choice(JOBS), how=how, kind=dice.choice(FAILURES if how == "failure" else LOSSES),
            text=dice.choice(EVIL), after=dice.choice((1, 1, 2, 5, 30)), once=dice.random() < 0.5,
        )  # fmt: skip

    def change_file(self, dice: Dice, given: Input) -> None:
        """What stands in a file that is read."""
        read = [name for name, file in given.files.items() if file.kind == "text" and name.endswith(".json")
                and name not in ("kept.json", "measured.json")]  # fmt: skip
        if not read:
            return self.change_value(dice, given)
        name = dice.choice(read)
        text = given.files[name].data
        assert isinstance(text, bytes)
        choice = dice.random()
        if choice < 0.12:
            given.files[name] = broken_file(dice, text)
        elif choice < 0.25:
            given.files[name] = File("text", broken_text(dice, text))
        else:
            given.files[name] = File("text", changed_json(dice, text))


def edited(dice: Dice, text: str) -> str:
    """A few letters changed, taken out or put in."""
    for _ in range(dice.choice((1, 1, 2, 4))):
        place = dice.randrange(len(text) + 1)
        sign = dice.choice((dice.choice(SIGNS), "", dice.choice(SIGNS)))
        text = text[:place] + sign + text[place + dice.randrange(2) :]
    return text


def broken_file(dice: Dice, text: bytes) -> File:
    """Something else under the name."""
    return dice.choice((
        File("text", b""), File("folder"), File("link", "no.json"), File("link", "/dev/null"), File("text", b"\n"),
        File("text", text[: dice.randrange(len(text) + 1)]), File("text", b"\xff\xfe" + text), File("text", b"null"),
        File("text", text.decode("utf-8", "replace").encode("utf-16")), File("text", b"\xef\xbb\xbf" + text),
        File("text", b"[" * 100_000), File("text", b'{"a":' * 5000), File("text", b"\x00" * 100), File("text", b"[]"),
        File("text", b"[1]"), File("text", b"3"), File("text", b'"x"'), File("text", b"{}"), File("link", "loop.csv"),
    ))  # fmt: skip


def broken_text(dice: Dice, text: bytes) -> bytes:
    """JSON that no writer of ours makes."""
    told = text.decode("utf-8", "replace")
    numbers = [i for i, sign in enumerate(told) if sign in " [" and i + 1 < len(told) and told[i + 1].isdigit()]
    if numbers and dice.random() < 0.8:
        place = dice.choice(numbers) + 1
        end = place
        while end < len(told) and told[end] in "0123456789.e+-":
            end += 1
        number = dice.choice(("NaN", "Infinity", "-Infinity", "1e400", "1" + "0" * 400, "1" * 5000, "-5", "0", "1e-400",
                              "9223372036854775807", "9223372036854775808", "01", "0x1", "-0.0", "1e15"))  # fmt: skip
        return (told[:place] + number + told[end:]).encode()
    return dice.choice((told + "x", told + told, told.replace(",", ",,", 1), '{"plan": 1,' + told[1:])).encode()


def changed_json(dice: Dice, text: bytes) -> bytes:
    """One to three places changed; a report's seal is made anew more often than not."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        return broken_text(dice, text)
    if not isinstance(data, dict | list):
        return broken_text(dice, text)
    if dice.random() < 0.2:
        label = dice.choice(EVIL)
        for old in ("swiglu", "gelu", "relu"):
            if dice.random() < 0.5:
                data = json.loads(json.dumps(data).replace(f'"{old}"', json.dumps(label)))
                break
    else:
        for _ in range(dice.choice((1, 1, 2, 3))):
            change_place(dice, data)
    if isinstance(data, dict) and "seal" in data and dice.random() < 0.7:
        try:
            asked = json.dumps([data["plan"]["cases"], data["costs"]], sort_keys=True)
            data["seal"] = hashlib.sha256(asked.encode()).hexdigest()[:16]
        except (KeyError, TypeError):
            pass
    return json.dumps(data).encode()


def change_place(dice: Dice, data: Any) -> None:
    """Change one place of a JSON value, found by walking down from its top."""
    while True:
        keys: list[Any] = list(data) if isinstance(data, dict) else list(range(len(data)))
        if not keys:
            return
        key = dice.choice(keys)
        if not isinstance(data[key], dict | list) or not data[key] or dice.random() < 0.15:
            break
        data = data[key]
    way = dice.randrange(9)
    old = data[key]
    if way <= 3:
        data[key] = copy.deepcopy(dice.choice(ODD))
    elif way == 4:
        del data[key]
    elif way == 5:
        data[key] = [old] if dice.random() < 0.5 else {"x": old}
    elif way == 6 and isinstance(data, list):
        data.insert(dice.randrange(len(data) + 1), copy.deepcopy(old))
    elif way == 7 and isinstance(old, int | float) and not isinstance(old, bool):
        data[key] = old * dice.choice((0, -1, 2, 0.5, 1000, 1e-9, 1e9))
    elif isinstance(data, dict):
        data[dice.choice((f"{key}_", LONG, "\x1b[31m", "", "label"))] = data.pop(key) if dice.random() < 0.5 else old
    else:
        dice.shuffle(data)
