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
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pandas as pd

D_MODEL, TOKENS, BASE_WIDTH = 512, 128, 3200  # a percent of the width is 32 columns
LIMIT = 5  # percent, of all tools
# the command line, with 5 s between the runs of a baseline
SOON = """
from ffnbench.app.main import main
from ffnbench.run import world

world.PAUSE_S = 5.0
main()
"""
BASELINE_RUNS, BASELINE_RUN_S = 3, 15.0  # the default budget of so few rows
TRUTH_PROCESSES = 12
# of 12 sorted values, what holds the median in 96 %: the binomial distribution
TRUTH_LOW, TRUTH_HIGH = 2, -3
ASV_ROUNDS = 2  # asv's own default
PYPERF_PROCESSES = 3  # of 20, its default: each has to import torch
VALUE_S = 0.15  # of pyperf: at least 0.1 s by default, in powers of two calls
LEAST_SAMPLING_S = 1.0
REGRESSED, PASSED, UNDECIDED, FAILED = "regressed", "passed", "undecided", "failed"

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


Said = tuple[str, str]  # the verdict, and the tool's own words


class Repository:
    """Two commits, and the commands that run in it."""

    def __init__(self, folder: Path, effects: Sequence[int]) -> None:
        self.folder, self.effects, self.work = folder, effects, folder / "work"
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        self.environment = {
            **os.environ,
            "HOME": str(folder),  # asv keeps what it knows of the machine there
            "PATH": path,
            "PYTHONPATH": str(self.work),
            "ASV_PYTHONPATH": str(self.work),
        }
        self.work.mkdir()
        self.git("init", "-q", "-b", "main")
        self.git("config", "user.name", "bench")
        self.git("config", "user.email", "bench@localhost")
        for name, text in FILES.items():
            file = self.work / name
            file.parent.mkdir(exist_ok=True)
            file.write_text(text, encoding="utf-8")
        self.base = self.commit("base", 0)
        self.heads = {effect: self.commit(effect, effect) for effect in effects}

    def commit(self, name: int | str, percent: int) -> str:
        """The commit of the module with so many more columns; its file stands beside
        the tree too.
        """
        if name != "base":
            self.git("checkout", "-q", self.base)
        text = MODULE.format(
            effect=name,
            base=BASE_WIDTH,
            width=BASE_WIDTH * (100 + percent) // 100,
            full=BASE_WIDTH * (100 + max(self.effects)) // 100,
        )
        for file in (self.work / "mlp.py", self.folder / f"{name}.py"):
            file.write_text(text, encoding="utf-8")
        self.git("add", "-A")
        self.git("commit", "-q", "-m", str(name))
        return self.git("rev-parse", "HEAD")

    def git(self, *arguments: str) -> str:
        """What git says."""
        return self.run("git", *arguments).stdout.strip()

    def run(self, *command: str, good: Sequence[int] = (0,)) -> Any:
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

    def python(self, *arguments: str, good: Sequence[int] = (0,)) -> Any:
        """Run a module of this interpreter, or its code after -c."""
        words = arguments if arguments[0] == "-c" else ("-m", *arguments)
        return self.run(sys.executable, *words, good=good)


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
    for effect, ratios in zip(
        effects[1:], list(zip(*by_process, strict=True))[1:], strict=True
    ):
        ordered = sorted(ratios)
        ends = [ordered[TRUTH_LOW], ordered[TRUTH_HIGH]]
        truth[effect] = [statistics.median(ordered), *ends]
    return truth


FFN = "mlp.py:FFN"
PASSES = ("OK", "IMPROVED")
SHAPE = ("--d-model", str(D_MODEL), "--seq-len", str(TOKENS))


def make_baseline(repository: Repository, seconds: float) -> None:
    """The stored runs of base that `check` compares with."""
    repository.git("checkout", "-q", repository.base)
    run = ("compare", f"relu@d_ff={BASE_WIDTH},ffn={FFN}", *SHAPE, "--match", "none")
    kept = ("--metrics", "latency", "--runs", str(BASELINE_RUNS), "-o", "baseline.json")
    budget = ("--budget", f"{max(BASELINE_RUN_S, seconds):g}s", "-q")
    repository.python("-c", SOON, *run, *kept, *budget, good=(0, 3))


def judged(repository: Repository, head: str, sampling_s: float, *words: str) -> Said:
    """What a command of ffnbench says of the latency of the working tree, at head."""
    repository.git("checkout", "-q", head)
    limits = ("--tolerance", f"{LIMIT}%", "--budget", f"{sampling_s:g}s")
    run = ("ffnbench", *words, *limits, "--format", "json", "-q")
    done = repository.python(*run, good=(0, 1, 3))
    if done.returncode == 3:  # busy, or it took too long
        return UNDECIDED, done.stderr.partition("\n")[0]
    findings = json.loads(done.stdout)["findings"]
    [status] = [row["status"] for row in findings if row["metric"] == "latency"]
    if status == "REGRESSED":
        return REGRESSED, status
    return (PASSED if status in PASSES else UNDECIDED), status


def by_ab(repository: Repository, head: str, sampling_s: float) -> Said:
    """`ffnbench ab` of base and the working tree."""
    words = ("ab", FFN, "--base-rev", repository.base, *SHAPE)
    return judged(repository, head, sampling_s, *words)


def by_check(repository: Repository, head: str, sampling_s: float) -> Said:
    """`ffnbench check` against the runs of base."""
    words = ("check", "baseline.json", "--trust", FFN)
    return judged(repository, head, sampling_s, *words)


def by_asv(repository: Repository, head: str, sampling_s: float) -> Said:
    """`asv run` of both commits, `asv compare` of their results."""
    repository.python("asv", "machine", "--yes")
    repeat = f"repeat=(1,100000,{sampling_s / 2 / ASV_ROUNDS:.2f})"
    attributes = ("-a", f"rounds={ASV_ROUNDS}", "-a", repeat)
    for commit in (repository.base, head):
        repository.git("checkout", "-q", commit)
        at = ("--python=same", f"--set-commit-hash={commit}", "--record-samples")
        repository.python("asv", "run", *at, *attributes)
    factor = f"--factor={1 + LIMIT / 100}"
    done = repository.python("asv", "compare", factor, repository.base, head)
    [row] = [line for line in done.stdout.splitlines() if "time_ffn" in line]
    mark = row.strip("| ").split("|")[0].strip()
    return (REGRESSED if mark == "+" else PASSED), " ".join(row.split())


def by_pytest(repository: Repository, head: str, sampling_s: float) -> Said:
    """pytest-benchmark: base is saved, head compared with it."""
    for saved in (repository.work / ".benchmarks").glob("*/*.json"):
        saved.unlink()
    run = ("pytest", "test_ffn.py", "-q", "-p", "no:cacheprovider")
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


def by_pyperf(repository: Repository, head: str, sampling_s: float) -> Said:
    """`pyperf timeit` of both commits, `pyperf compare_to` of their files."""
    values = max(3, round(sampling_s / 2 / PYPERF_PROCESSES / VALUE_S))
    size = ("-p", str(PYPERF_PROCESSES), "-n", str(values), "-q")
    timeit = ("pyperf", "timeit", "--inherit-environ=PYTHONPATH", *size)
    call = ("-s", "from subject import call", "call()")
    files = ("pyperf-base.json", "pyperf-head.json")
    for name, commit in zip(files, (repository.base, head), strict=True):
        repository.git("checkout", "-q", commit)
        (repository.work / name).unlink(missing_ok=True)
        repository.python(*timeit, "-o", name, *call)
    compare = ("pyperf", "compare_to", f"--min-speed={LIMIT}", *files)
    said = " ".join(repository.python(*compare).stdout.split())
    slower = "slower" in said and "ot significant" not in said
    return (REGRESSED if slower else PASSED), said


TOOLS = {
    "ffnbench ab": by_ab,
    "ffnbench check": by_check,
    "asv": by_asv,
    "pytest-benchmark": by_pytest,
    "pyperf": by_pyperf,
}


def sampling_of(
    decisions: Sequence[dict[str, Any]], tool: str, seconds: float
) -> float:
    """How long a tool is to sample: what its last decision left of the wall time.

    ffnbench's own budget is that of the whole command.
    """
    if tool.startswith("ffnbench"):
        return seconds
    of_tool = [one for one in decisions if one["tool"] == tool]
    if not of_tool:
        return max(LEAST_SAMPLING_S, seconds / 2)
    last = of_tool[-1]
    return max(LEAST_SAMPLING_S, last["sampling_s"] + seconds - last["wall_s"])


def measure(head: dict[str, Any], path: Path, each: int, tools: list[str]) -> None:
    """All decisions of these tools that the file lacks; each is a line of it. Its first
    line is `head`: the settings, the machine, and how much the time truly grew.
    """
    settings, decisions = head["settings"], []
    if path.exists():
        head, *decisions = read(path)
    with tempfile.TemporaryDirectory(prefix="ffn-rates-") as folder:
        repository = Repository(Path(folder), settings["effects"])
        if not path.exists():
            head["truth"] = truth_of(repository, settings["seconds"])
            path.write_text(json.dumps(head) + "\n", encoding="utf-8")
        for turn in range(each):
            done = {(d["effect"], d["tool"]) for d in decisions if d["turn"] == turn}
            wanted = [(e, t) for e in settings["effects"] for t in tools]
            random.Random(turn).shuffle(wanted)
            wanted = [one for one in wanted if one not in done]
            if any(tool == "ffnbench check" for _, tool in wanted):
                make_baseline(repository, settings["seconds"])
            for effect, tool in wanted:
                sampling_s = sampling_of(decisions, tool, settings["seconds"])
                start = time.monotonic()
                try:
                    commit = repository.heads[effect]
                    verdict, said = TOOLS[tool](repository, commit, sampling_s)
                except RuntimeError as error:
                    verdict, said = FAILED, str(error)
                decision = {
                    "turn": turn,
                    "effect": effect,
                    "tool": tool,
                    "verdict": verdict,
                    "said": said,
                    "wall_s": round(time.monotonic() - start, 2),
                    "sampling_s": sampling_s,
                }
                decisions.append(decision)
                with path.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(decision) + "\n")
                print(f"turn {turn + 1} of {each}:", decision, file=sys.stderr)


def machine() -> dict[str, str]:
    """What the figures belong to."""
    cpuinfo = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    name = re.search(r"model name\s*: (.*)", cpuinfo)
    cpus = len(os.sched_getaffinity(0))
    packages = ("torch", "ffnbench", "asv", "pytest-benchmark", "pyperf")
    return {
        "cpu": f"{cpus} CPUs of {name[1] if name else 'an unknown kind'}",
        "python": sys.version.split()[0],
        **{package: version(package) for package in packages},
    }


def read(path: Path) -> list[dict[str, Any]]:
    """The first line of a file, and its decisions."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def rates_of(decisions: Sequence[dict[str, Any]]) -> pd.DataFrame:
    """By tool and effect, of how many decisions (`of`) how many are REGRESSED (`hits`),
    and the interval of Wilson of their share in percent (`low`, `high`).
    """
    from scipy.stats import binomtest

    frame = pd.DataFrame(decisions)
    verdicts = frame[frame.verdict != FAILED].groupby(["tool", "effect"], sort=False)
    rows = {}
    for cell, of_cell in verdicts.verdict:
        hits, of = int((of_cell == REGRESSED).sum()), len(of_cell)
        low, high = binomtest(hits, of).proportion_ci(0.95, "wilson")
        rows[cell] = {"hits": hits, "of": of, "low": 100 * low, "high": 100 * high}
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis(["tool", "effect"])


def report(head: dict[str, Any], decisions: Sequence[dict[str, Any]]) -> str:
    """Work beside time, and the rates of all tools."""
    truth = pd.DataFrame(head["truth"], index=["time", "low", "high"]).T
    frame, rates = pd.DataFrame(decisions), rates_of(decisions)
    texts = [
        f"{row.hits:.0f} of {row.of:.0f} [{row.low:.0f}, {row.high:.0f} %]"
        for row in rates.itertuples()
    ]
    table = pd.Series(texts, rates.index).unstack().reindex(head["settings"]["tools"])
    by_tool = frame.groupby("tool")
    table["can't tell"] = by_tool.verdict.agg(lambda of: (of == UNDECIDED).sum())
    table["failed"] = by_tool.verdict.agg(lambda of: (of == FAILED).sum())
    table["a decision, s"] = by_tool.wall_s.median().round()
    about = ", ".join(f"{name} {value}" for name, value in head["machine"].items())
    work = (100 * (truth - 1)).add_prefix("+", axis="index").round(1).to_string()
    return f"{about}\n\npercent of work beside percent of time\n{work}\n\n{table.to_string()}"


def draw(head: dict[str, Any], decisions: Sequence[dict[str, Any]], path: Path) -> None:
    """The chart: what each tool calls a regression, by what the work grew by."""
    from matplotlib.figure import Figure

    settings, rates = head["settings"], rates_of(decisions)
    figure = Figure(figsize=(8, 3.6), layout="constrained")
    axes = figure.subplots()
    seconds = pd.DataFrame(decisions).groupby("tool").wall_s.median()
    tools = [tool for tool in settings["tools"] if tool in rates.index]
    for place, tool in enumerate(tools):
        of_tool = rates.loc[tool]
        share = 100 * of_tool.hits / of_tool.of
        axes.errorbar(
            of_tool.index + 0.17 * (place - (len(tools) - 1) / 2),
            share,
            yerr=[share - of_tool.low, of_tool.high - share],
            marker="osD^v"[place],
            label=f"{tool}\n{of_tool.of.min()} decisions\n{seconds[tool]:.0f} s each",
            linestyle="",
        )
    axes.axvline(LIMIT, color="0.6", linestyle=":")
    axes.text(LIMIT, 101, " limit that all tools were given: 5 %", color="0.4")
    labels = [
        f"+{e} %" if e else "unchanged\n(false alarms)" for e in settings["effects"]
    ]
    axes.set_xticks(settings["effects"], labels)
    axes.set_ylim(-4, 110)
    axes.set_ylabel("called a regression, %")
    axes.set_xlabel("work that was added (best: 0 % below the limit, 100 % above it)")
    figure.legend(
        loc="outside upper center",
        ncols=5,
        frameon=False,
        fontsize=8,
        title="How often do decisions call a change a regression? (bars: 95 % intervals)",
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
    parser.add_argument("--tools", default=",".join(TOOLS), help="of this sitting")
    parser.add_argument("-o", dest="out", type=Path, default=Path("rates.jsonl"))
    parser.add_argument("--report", type=Path, help="show this file, measure nothing")
    parser.add_argument("--chart", type=Path, help="draw the file of --report")
    asked = parser.parse_args(arguments)
    if not asked.report:
        settings = {
            "seconds": asked.seconds,
            "effects": [int(effect) for effect in asked.effects.split(",")],
            "tools": list(TOOLS),
        }
        if asked.out.exists() and read(asked.out)[0]["settings"] != settings:
            parser.error(f"{asked.out} has other settings")
        try:
            head = {"settings": settings, "machine": machine()}
            measure(head, asked.out, asked.each, asked.tools.split(","))
        except KeyboardInterrupt:
            print("interrupted: the same command goes on", file=sys.stderr)
    head, *decisions = read(asked.report or asked.out)
    if asked.chart:
        draw(head, decisions, asked.chart)
    print(report(head, decisions))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
