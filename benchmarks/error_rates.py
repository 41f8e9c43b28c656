"""How often a gate is wrong on this machine, and how often those of other tools are:
`python benchmarks/error_rates.py -o rates.jsonl`, six hours for 60 turns.

The tools of others are needs of this script alone: `pip install asv pytest-benchmark
pyperf`.

**The modules.** A repository of two commits has an FFN of width 3,200 at base, and of
3, 5, 7 or 10 % more columns in use at head (or of the same, with another comment). The
parameters are as many on both sides and those of the added columns of `down` are zero,
so that shapes and output stay the same. Both products, the activation and the memory
that is touched grow by exactly that share. How much the time grows is measured first,
without ffnbench: calls of all widths in shuffled rounds, in fresh processes. The table
shows both.

**The decisions.** In each turn every tool judges every head once, in shuffled order and
in as much wall time (`--seconds`). Each has the same limit of 5 %:

- `ffnbench ab` and `ffnbench check`: the status of the latency row; exact rows, which
  would tell at once, are not asked. "can't tell" and busy count as not found. `check`
  has a new baseline of three runs, 5 s apart, in each turn, whose time is not counted.
  docs/ci.md.
- `asv run --python=same --set-commit-hash` of both commits, and `asv compare
  --factor=1.05`: a line with the mark `+`. That is what `asv continuous` decides, which
  can't use an existing environment.
  https://asv.readthedocs.io/en/stable/commands.html
- `pytest --benchmark-save` of base, and `--benchmark-compare
  --benchmark-compare-fail=mean:5%` of head: it ends with "Performance has regressed".
  https://pytest-benchmark.readthedocs.io/en/stable/comparing.html
- `pyperf timeit` of both, and `pyperf compare_to --min-speed=5`: "slower" without "Not
  significant". https://pyperf.readthedocs.io/en/latest/cli.html#compare-to-cmd

Starting interpreters, importing torch and finding benchmarks counts into a tool's time.
How long each of them may sample is what its last decision left of `--seconds`. A tool
that has a minimum may take longer; the file has the seconds of each decision.

Each decision is a line of the file. Ctrl-C keeps what is done, and the same command
goes on, with a new baseline. `--report FILE` prints the table of a file, `--chart
PICTURE` draws it; the intervals are Wilson's of 95 %.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

from exam.text import table

D_MODEL, TOKENS, BASE_WIDTH = 512, 128, 3200  # a percent of the width is 32 columns
LIMIT = 5  # percent, of all tools
BASELINE_RUNS, BASELINE_RUN_S = 3, 15.0  # the default budget of so few rows
PAUSE = "5s"  # between two of them; 60 s by default, which would be two hours a night
TRUTH_PROCESSES = 12
# of 12 sorted values, what holds the median in 96 %: the binomial distribution
TRUTH_LOW, TRUTH_HIGH = 2, -3
ASV_ROUNDS = 2  # asv's own default
PYPERF_PROCESSES = 3  # of 20, its default: each has to import torch
VALUE_S = 0.15  # of pyperf: at least 0.1 s by default, in powers of two calls
LEAST_SAMPLING_S = 1.0
REGRESSED, PASSED, UNDECIDED, FAILED = "regressed", "passed", "undecided", "failed"
TOOLS = ("ffnbench ab", "ffnbench check", "asv", "pytest-benchmark", "pyperf")

MODULE = """# the FFN at +{effect} %
import torch
from torch import nn
from torch.nn import functional as F

WIDTH = {width}


class FFN(nn.Module):
    def __init__(self, d_model):
        super().__init__()
        self.up = nn.Linear(d_model, {full}, bias=False)
        self.down = nn.Linear({full}, d_model, bias=False)
        with torch.no_grad():
            self.down.weight[:, {base}:] = 0

    def forward(self, x):
        hidden = F.gelu(F.linear(x, self.up.weight[:WIDTH]))
        return F.linear(hidden, self.down.weight[:, :WIDTH])
"""
SUBJECT = f"""import torch
from mlp import FFN

torch.manual_seed(0)
module = FFN({D_MODEL}).eval()
x = torch.randn(1, {TOKENS}, {D_MODEL})


def call():
    with torch.inference_mode():
        module(x)
"""
FILES = {
    "subject.py": SUBJECT,
    "test_ffn.py": "from subject import call\n\n\ndef test_ffn(benchmark):\n    benchmark(call)\n",
    "asv_benchmarks/__init__.py": "",
    "asv_benchmarks/ffn.py": "from subject import call\n\n\ndef time_ffn():\n    call()\n",
    "asv.conf.json": json.dumps(
        {
            "version": 1,
            "project": "ffn",
            "repo": ".",
            "branches": ["main"],
            "environment_type": "existing",
            "benchmark_dir": "asv_benchmarks",
        }
    ),
    ".gitignore": ".asv/\n.benchmarks/\n*.json\n!asv.conf.json\n__pycache__/\n",
}
# prints the time of each width over that of the first, in one process
TRUTH = """
import importlib.util, json, random, statistics, sys, time
import torch

folder, d_model, tokens, seconds, seed, *effects = sys.argv[1:]
random.seed(int(seed))
calls = []
for effect in effects:
    spec = importlib.util.spec_from_file_location("mlp" + effect, f"{folder}/{effect}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    padding = torch.empty(random.randrange(1, 1 << 18))
    ffn = module.FFN(int(d_model)).eval()
    calls.append((ffn, torch.randn(1, int(tokens), int(d_model)), padding))
ratios = [[] for _ in calls]
end = time.perf_counter() + float(seconds)
with torch.inference_mode():
    while time.perf_counter() < end:
        times = [0.0] * len(calls)
        for place in random.sample(range(len(calls)), len(calls)):
            ffn, x, _ = calls[place]
            ffn(x)
            start = time.perf_counter()
            ffn(x)
            ffn(x)
            times[place] = time.perf_counter() - start
        for place, seen in enumerate(times):
            ratios[place].append(seen / times[0])
print(json.dumps([statistics.median(seen[2:] or seen) for seen in ratios]))
"""


@dataclass(frozen=True)
class Decision:
    """What a tool said of one head."""

    turn: int
    effect: int  # percent
    tool: str
    verdict: str  # REGRESSED, PASSED, UNDECIDED or FAILED
    said: str  # in the tool's own words
    wall_s: float
    sampling_s: float  # how long it was to sample


@dataclass
class Record:
    """All that the file has."""

    settings: dict[str, Any]
    machine: dict[str, str]
    truth: dict[str, list[float]] = field(default_factory=dict)  # ratio, low, high
    decisions: list[Decision] = field(default_factory=list)

    def begin(self, path: Path) -> None:
        """Write the first line of the file: all but the decisions."""
        head = asdict(self)
        del head["decisions"]
        path.write_text(json.dumps(head) + "\n", encoding="utf-8")

    def add(self, decision: Decision, path: Path) -> None:
        """One more decision, and its line."""
        self.decisions.append(decision)
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(decision)) + "\n")


def read(path: Path) -> Record:
    """The record of a file."""
    head, *lines = path.read_text(encoding="utf-8").splitlines()
    decisions = [Decision(**json.loads(line)) for line in lines]
    return Record(**json.loads(head), decisions=decisions)


class Repository:
    """Two commits, and the commands that run in it."""

    def __init__(self, folder: Path, effects: Sequence[int]) -> None:
        self.folder, self.effects = folder, effects
        home = folder / "home"  # asv keeps what it knows of the machine there
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        named = {"HOME": str(home), "PATH": path}
        paths = {"PYTHONPATH": str(self.work), "ASV_PYTHONPATH": str(self.work)}
        self.environment = {**os.environ, **named, **paths}
        home.mkdir()
        self.work.mkdir()
        self.git("init", "-q", "-b", "main")
        self.git("config", "user.name", "bench")
        self.git("config", "user.email", "bench@localhost")
        for name, text in FILES.items():
            file = self.work / name
            file.parent.mkdir(exist_ok=True)
            file.write_text(text, encoding="utf-8")
        self.write_module("base")
        self.base = self.commit("base")
        self.heads = {}
        for effect in effects:
            self.git("checkout", "-q", self.base)
            self.write_module(effect)
            self.heads[effect] = self.commit(f"+{effect}%")

    @property
    def work(self) -> Path:
        """The working tree."""
        return self.folder / "work"

    def write_module(self, effect: int | str) -> None:
        """The module at an effect, in the tree and beside it."""
        percent = 0 if effect == "base" else int(effect)
        text = MODULE.format(
            effect=effect,
            base=BASE_WIDTH,
            width=BASE_WIDTH * (100 + percent) // 100,
            full=BASE_WIDTH * (100 + max(self.effects)) // 100,
        )
        (self.work / "mlp.py").write_text(text, encoding="utf-8")
        (self.folder / f"{effect}.py").write_text(text, encoding="utf-8")

    def git(self, *arguments: str) -> str:
        """What git says."""
        return self.run("git", *arguments).stdout.strip()

    def commit(self, message: str) -> str:
        """The hash of a commit of all files."""
        self.git("add", "-A")
        self.git("commit", "-q", "-m", message)
        return self.git("rev-parse", "HEAD")

    def run(self, *command: str, good: Iterable[int] = (0,)) -> Any:
        """Run a command in the tree; raises RuntimeError with its last lines where it
        ends with another code.
        """
        done = subprocess.run(
            command,
            cwd=self.work,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode not in good:
            last = (done.stdout + done.stderr).strip().splitlines()[-4:]
            raise RuntimeError(f"{' '.join(command[:4])}: {' | '.join(last)}")
        return done

    def python(self, *arguments: str, good: Iterable[int] = (0,)) -> Any:
        """Run this interpreter."""
        return self.run(sys.executable, *arguments, good=good)


def truth_of(repository: Repository, seconds: float) -> dict[str, list[float]]:
    """The median over processes of the time of each head over that of base, with its
    95 % interval. The median, since a neighbour's burst is a process or two.
    """
    effects = ("base", *map(str, repository.effects))
    by_process = []
    for seed in range(TRUTH_PROCESSES):
        place = (str(repository.folder), str(D_MODEL), str(TOKENS), str(seconds / 4))
        done = repository.python("-c", TRUTH, *place, str(seed), *effects)
        by_process.append(json.loads(done.stdout))
    truth = {}
    for effect, ratios in zip(effects, zip(*by_process, strict=True), strict=True):
        if effect != "base":
            ordered = sorted(ratios)
            ends = [ordered[TRUTH_LOW], ordered[TRUTH_HIGH]]
            truth[effect] = [statistics.median(ordered), *ends]
    return truth


FFN = "mlp.py:FFN"
OF_STATUS = {
    "REGRESSED": REGRESSED,
    "UNCLEAR": UNDECIDED,
    "INCOMPARABLE": UNDECIDED,
    "MISSING": UNDECIDED,  # too little time
}
SHAPE = ("--d-model", str(D_MODEL), "--seq-len", str(TOKENS))


def make_baseline(repository: Repository, seconds: float) -> None:
    """The stored runs of base that `check` compares with."""
    repository.git("checkout", "-q", repository.base)
    run = ("compare", f"relu@d_ff={BASE_WIDTH},ffn={FFN}", *SHAPE, "--match", "none")
    kept = ("--metrics", "latency", "--runs", str(BASELINE_RUNS), "-o", "baseline.json")
    budget = ("--budget", f"{max(BASELINE_RUN_S, seconds):g}s", "--pause", PAUSE, "-q")
    repository.python("-m", "ffnbench", *run, *kept, *budget, good=(0, 3))


def judged(
    repository: Repository, head: str, command: Sequence[str], sampling_s: float
) -> tuple[str, str]:
    """What a command of ffnbench says of the latency of the working tree, at head."""
    repository.git("checkout", "-q", head)
    limits = ("--tolerance", f"{LIMIT}%", "--budget", f"{sampling_s:g}s")
    run = ("-m", "ffnbench", *command, *limits, "--format", "json", "-q")
    done = repository.python(*run, good=(0, 1, 3))
    if done.returncode == 3:  # busy, or it took too long
        return UNDECIDED, done.stderr.strip().splitlines()[0]
    findings = json.loads(done.stdout)
    [status] = [row["status"] for row in findings if row["metric"] == "latency"]
    return OF_STATUS.get(status, PASSED), status


def by_ab(repository: Repository, head: str, sampling_s: float) -> tuple[str, str]:
    """`ffnbench ab` of base and the working tree."""
    command = ("ab", FFN, "--base-rev", repository.base, *SHAPE)
    return judged(repository, head, command, sampling_s)


def by_check(repository: Repository, head: str, sampling_s: float) -> tuple[str, str]:
    """`ffnbench check` against the runs of base."""
    command = ("check", "baseline.json", "--trust", FFN)
    return judged(repository, head, command, sampling_s)


def by_asv(repository: Repository, head: str, sampling_s: float) -> tuple[str, str]:
    """`asv run` of both commits, `asv compare` of their results."""
    repository.python("-m", "asv", "machine", "--yes")
    round_s = sampling_s / 2 / ASV_ROUNDS
    attributes = (
        "-a",
        f"rounds={ASV_ROUNDS}",
        "-a",
        f"repeat=(1,100000,{round_s:.2f})",
    )
    for commit in (repository.base, head):
        repository.git("checkout", "-q", commit)
        at = ("--python=same", f"--set-commit-hash={commit}", "--record-samples")
        repository.python("-m", "asv", "run", *at, *attributes)
    factor = f"--factor={1 + LIMIT / 100}"
    done = repository.python("-m", "asv", "compare", factor, repository.base, head)
    [row] = [line for line in done.stdout.splitlines() if "time_ffn" in line]
    mark = row.strip("| ").split("|")[0].strip()
    return (REGRESSED if mark == "+" else PASSED), " ".join(row.split())


def by_pytest(repository: Repository, head: str, sampling_s: float) -> tuple[str, str]:
    """pytest-benchmark: base is saved, head compared with it."""
    for saved in (repository.work / ".benchmarks").glob("*/*.json"):
        saved.unlink()
    run = ("-m", "pytest", "test_ffn.py", "-q", "-p", "no:cacheprovider")
    sampled = f"--benchmark-max-time={sampling_s / 2:.2f}"
    repository.git("checkout", "-q", repository.base)
    repository.python(*run, sampled, "--benchmark-save=base")
    repository.git("checkout", "-q", head)
    compare = ("--benchmark-compare", f"--benchmark-compare-fail=mean:{LIMIT}%")
    done = repository.python(*run, sampled, *compare, good=range(256))
    output = done.stdout + done.stderr
    if "Performance has regressed" in output:
        reason = re.search(r"Field 'mean' has failed.*", output)
        return REGRESSED, reason.group() if reason else "Performance has regressed"
    if done.returncode != 0:
        raise RuntimeError(output.strip().splitlines()[-1])
    return PASSED, "passed"


def by_pyperf(repository: Repository, head: str, sampling_s: float) -> tuple[str, str]:
    """`pyperf timeit` of both commits, `pyperf compare_to` of their files."""
    values = max(3, round(sampling_s / 2 / PYPERF_PROCESSES / VALUE_S))
    for name, commit in (("base", repository.base), ("head", head)):
        repository.git("checkout", "-q", commit)
        file = repository.work / f"pyperf-{name}.json"
        file.unlink(missing_ok=True)
        size = ("-p", str(PYPERF_PROCESSES), "-n", str(values))
        run = ("timeit", "--inherit-environ=PYTHONPATH", *size, "-o", str(file), "-q")
        repository.python(
            "-m", "pyperf", *run, "-s", "from subject import call", "call()"
        )
    files = ("pyperf-base.json", "pyperf-head.json")
    done = repository.python(
        "-m", "pyperf", "compare_to", f"--min-speed={LIMIT}", *files
    )
    said = " ".join(done.stdout.split())
    slower = "slower" in said and "ot significant" not in said
    return (REGRESSED if slower else PASSED), said


BY: dict[str, Callable[[Repository, str, float], tuple[str, str]]] = {
    "ffnbench ab": by_ab,
    "ffnbench check": by_check,
    "asv": by_asv,
    "pytest-benchmark": by_pytest,
    "pyperf": by_pyperf,
}


def sampling_of(record: Record, tool: str, seconds: float) -> float:
    """How long a tool is to sample: what its last decision left of the wall time.

    ffnbench's own budget is that of the whole command.
    """
    if tool.startswith("ffnbench"):
        return seconds
    own = [one for one in record.decisions if one.tool == tool]
    if not own:
        return max(LEAST_SAMPLING_S, seconds / 2)
    last = own[-1]
    return max(LEAST_SAMPLING_S, last.sampling_s + seconds - last.wall_s)


def decide(
    repository: Repository, record: Record, turn: int, effect: int, tool: str
) -> Decision:
    """What a tool says of a head now."""
    sampling_s = sampling_of(record, tool, record.settings["seconds"])
    start = time.monotonic()
    try:
        verdict, said = BY[tool](repository, repository.heads[effect], sampling_s)
    except RuntimeError as error:
        verdict, said = FAILED, str(error)
    wall_s = round(time.monotonic() - start, 2)
    return Decision(turn, effect, tool, verdict, said, wall_s, sampling_s)


def measure(record: Record, path: Path, each: int) -> None:
    """All decisions that the record lacks."""
    effects, seconds = record.settings["effects"], record.settings["seconds"]
    tools = record.settings["tools"]
    with tempfile.TemporaryDirectory(prefix="ffn-rates-") as folder:
        repository = Repository(Path(folder), effects)
        if not record.truth:
            record.truth = truth_of(repository, seconds)
            record.begin(path)
            print(truth_text(record), file=sys.stderr)
        for turn in range(each):
            done = {
                (one.effect, one.tool) for one in record.decisions if one.turn == turn
            }
            wanted = [(effect, tool) for effect in effects for tool in tools]
            random.Random(turn).shuffle(wanted)
            wanted = [one for one in wanted if one not in done]
            if any(tool == "ffnbench check" for _, tool in wanted):
                make_baseline(repository, seconds)
            for effect, tool in wanted:
                decision = decide(repository, record, turn, effect, tool)
                record.add(decision, path)
                print(
                    f"turn {turn + 1} of {each}, +{effect} %, {tool}: {decision.verdict} ({decision.said[:90]}), {decision.wall_s:.0f} s",
                    file=sys.stderr,
                )


def machine() -> dict[str, str]:
    """What the figures belong to."""
    names = [
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        if line.startswith("model name")
    ]
    packages = ("torch", "ffnbench", "asv", "pytest-benchmark", "pyperf")
    versions = {package: version(package) for package in packages}
    cpu = f"{os.process_cpu_count() if sys.version_info >= (3, 13) else len(os.sched_getaffinity(0))} CPUs of {names[0] if names else 'an unknown kind'}"
    return {"cpu": cpu, "python": sys.version.split()[0], **versions}


def truth_text(record: Record) -> str:
    """The share of the work beside that of the time."""
    rows = []
    for effect, (ratio, low, high) in record.truth.items():
        interval = f"{100 * (low - 1):+.1f} to {100 * (high - 1):+.1f} %"
        rows.append((f"+{effect} %", f"{100 * (ratio - 1):+.1f} %", interval))
    return table(("work", "time", "95 %"), rows)


@dataclass(frozen=True)
class Rate:
    """How many of the decisions of a tool at one effect are REGRESSED."""

    hits: int
    of: int
    low: float
    high: float


def rate_of(record: Record, tool: str, effect: int) -> Rate | None:
    """None where the tool has decided nothing."""
    from scipy.stats import binomtest

    verdicts = [
        one.verdict
        for one in record.decisions
        if (one.tool, one.effect) == (tool, effect) and one.verdict != FAILED
    ]
    if not verdicts:
        return None
    hits = verdicts.count(REGRESSED)
    interval = binomtest(hits, len(verdicts)).proportion_ci(0.95, "wilson")
    return Rate(hits, len(verdicts), interval.low, interval.high)


def report(record: Record) -> str:
    """Work beside time, and the rates of all tools."""
    effects, rows = record.settings["effects"], []
    for tool in record.settings["tools"]:
        rates = [rate_of(record, tool, effect) for effect in effects]
        cells = [
            f"{rate.hits} of {rate.of} [{100 * rate.low:.0f}, {100 * rate.high:.0f} %]"
            if rate
            else "-"
            for rate in rates
        ]
        own = [one for one in record.decisions if one.tool == tool]
        undecided = sum(one.verdict == UNDECIDED for one in own)
        failed = sum(one.verdict == FAILED for one in own)
        seconds = (
            f"{statistics.median(one.wall_s for one in own):.0f} s" if own else "-"
        )
        rows.append((tool, *cells, str(undecided), seconds, str(failed)))
    heads = ["unchanged" if effect == 0 else f"+{effect} %" for effect in effects]
    rates_text = table(
        ("REGRESSED", *heads, "can't tell", "a decision", "failed"), rows
    )
    about = ", ".join(f"{name} {value}" for name, value in record.machine.items())
    return f"{about}\n\n{truth_text(record)}\n\n{rates_text}"


def draw(record: Record, path: Path) -> None:
    """The chart: what each tool calls a regression, by what the work grew by."""
    from matplotlib.figure import Figure

    effects, tools = record.settings["effects"], record.settings["tools"]
    colours = ("#0b3c5d", "#328cc1", "#d9a404", "#b5446e", "#5a7d2a")
    figure = Figure(figsize=(8, 3.6), layout="constrained")
    axes = figure.subplots()
    for place, tool in enumerate(tools):
        shift = 0.17 * (place - (len(tools) - 1) / 2)
        for effect in effects:
            rate = rate_of(record, tool, effect)
            if rate is None:
                continue
            share, x = 100 * rate.hits / rate.of, effect + shift
            around = [[share - 100 * rate.low], [100 * rate.high - share]]
            axes.errorbar(
                x,
                share,
                yerr=around,
                marker="osD^v"[place],
                markersize=5,
                color=colours[place],
                label=tool if effect == effects[0] else None,
                linestyle="",
                capsize=2,
            )
    axes.axvline(LIMIT, color="0.6", linewidth=1, linestyle=":")
    axes.text(LIMIT, 106, " limit of all tools", color="0.4", fontsize=8)
    axes.set_xticks(effects)
    axes.set_xticklabels(
        ["unchanged\n(false alarms)" if e == 0 else f"+{e} %" for e in effects]
    )
    axes.set_ylim(-4, 110)
    axes.set_yticks([0, 25, 50, 75, 100])
    axes.set_ylabel("called a regression, %")
    axes.set_xlabel("work that was added")
    axes.spines[["top", "right"]].set_visible(False)
    seconds = record.settings["seconds"]
    figure.legend(
        loc="outside upper center",
        ncols=len(tools),
        frameon=False,
        fontsize=8,
        title=f"{seconds:g} s a decision, {record.machine['cpu']}; bars: 95 %",
        title_fontsize=9,
    )
    figure.savefig(path, dpi=150)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, or show what was measured."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--each", type=int, default=60, help="of a tool and effect")
    parser.add_argument("--seconds", type=float, default=15.0, help="of a decision")
    parser.add_argument("--effects", default="0,3,5,7,10", help="percent of the work")
    parser.add_argument("--tools", default=",".join(TOOLS), help="only these")
    parser.add_argument("-o", dest="out", type=Path, default=Path("rates.jsonl"))
    parser.add_argument("--report", type=Path, help="show this file, measure nothing")
    parser.add_argument("--chart", type=Path, help="draw the file of --report")
    asked = parser.parse_args(arguments)
    if asked.report:
        record = read(asked.report)
        if asked.chart:
            draw(record, asked.chart)
        print(report(record))
        return 0
    settings = {
        "seconds": asked.seconds,
        "effects": [int(effect) for effect in asked.effects.split(",")],
        "tools": asked.tools.split(","),
    }
    record = read(asked.out) if asked.out.exists() else Record(settings, machine())
    if record.settings != settings:
        parser.error(f"{asked.out} has other settings: {record.settings}")
    try:
        measure(record, asked.out, asked.each)
    except KeyboardInterrupt:
        print("interrupted: the same command goes on", file=sys.stderr)
    print(report(record))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
