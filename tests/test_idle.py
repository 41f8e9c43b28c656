"""A typed flag that would do nothing is refused, and no other: found out by trying, without a look at the rules.

Every flag of every command is typed with several values into several combinations. What a command then shows, writes
and has measured is held against what it does without the flag; what only the world decides (the machine, the terminal,
a file that is there) is tried in a second world. Where no value changes anything it must refuse, and only there.
"""

from __future__ import annotations

import csv
import io
import json
import os
import random
import re
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer
from conftest import FACTS, FakeLaunch, FakeWorker, KnownProber
from test_pictures import FACTS as FACTS_OF_ACTIVATION
from test_pictures import curve

from ffnbench import api, jsonable
from ffnbench.activations.user_activation import OwnActivation
from ffnbench.bench.environment import describe
from ffnbench.bench.runner import run as real_run
from ffnbench.cli import app
from ffnbench.cli.idle import Asked
from ffnbench.errors import FfnbenchError
from ffnbench.ffn.cost import Cost
from ffnbench.report import output
from ffnbench.report.listing import records_view
from ffnbench.report.output import Ending
from ffnbench.report.store import report_text
from ffnbench.request import CompareRequest
from ffnbench.result import Agreement
from ffnbench.selftest import exam

GROUP: Any = typer.main.get_command(app)
COMMANDS: dict[str, Any] = GROUP.commands
MOE = "swiglu@moe=4x2"
KEYS = "relu@batch=2@seq_len=8@dtype=bf16@mode=train@device=cpu@threads=1@backend=compile"
OWN_KEYS = f"{KEYS}@bias=true@init=normal@dropout=0.1"
COMBINATIONS = {
    "compare": [
        "", "--d-ff 96", "--variants relu", "--variants swiglu", "--variants swiglu --match none", "--rule llama",
        "--variants swiglu --rule lfm2", "--variants relu --rule llama", "--variants swiglu --rule classic",
        "--match none",
        "--match none --d-ff 96", "--match none --d-ff 96 --variants relu@d_ff=8,swiglu",
        "--variants relu@d_ff=8,swiglu@d_ff=8",
        "--variants relu@d_ff=8,swiglu@d_ff=8 --match none", "--preset bert-base",
        "--preset bert-base --variants preset",
        "--preset bert-base --match none", "--variants gpt2,relu", "--variants mypkg.mlp:SwiGLU",
        "--variants relu,mypkg.mlp:SwiGLU", "--variants relu,mypkg.mlp:SwiGLU --d-ff 96", "--variants own.py:act",
        "--variants own.py:bare",
        "--mode train", "--mode backward", "--metrics memory", "--metrics memory --backend compile",
        "--variants relu --backend eager,onednn", "--variants relu@compile=max-autotune",
        "--workers 4 --rounds 6",
        "--workers 4", "--quick", f"--variants {OWN_KEYS}", f"--variants {OWN_KEYS},gelu", f"--variants {MOE}",
        f"--variants {MOE}@routing=skewed", f"--variants relu,{MOE}", "--runs 2 --pause 0", "--runs 2 --metrics memory",
        "-f csv", "--control", "--variants relu --control", "--variants relu@rule=llama,swiglu@ratio=2", "--ratio 2",
        "--variants swiglu@multiple_of=16", "--variants relu,swiglu --rule llama --ffn-dim-multiplier 1.3",
        "--device cuda --variants relu", "--device cuda --variants mypkg.mlp:SwiGLU", "--device cpu", "-o a.json",
        "--seq-len 16,32", "--d-model 64,96 --dtype float32,bf16 --variants swiglu,relu",
        "--variants gelu --threads 1,2",
    ],
    "cost": [
        "", "--d-ff 96", "--variants relu", "--match none --d-ff 96", "--preset gpt2 --variants preset", "--mode train",
        "--variants gpt2", "-f json", "-o x.json", "-o x.csv", "-o x.json -o x.csv", "--rule llama --ratio 2",
        "--variants swiglu --rule lfm2 --ffn-dim-multiplier 1.3", f"--variants {MOE}",
        "--variants relu@dropout=0.1 --mode train", "--d-model 64,96", "--variants gelu --mode forward,train",
    ],
    "block": [
        "", "--preset gpt2", "--cost-only", "--preset gpt2 --cost-only", "--preset gpt2 --whole-model",
        "--seq-len 16,32",
        "--variant mypkg.mlp:SwiGLU --cost-only", "--variant mypkg.mlp:SwiGLU", "--workers 3 --rounds 6",
        "--no-textbook",
        f"--variant {KEYS}",
        "--preset deepseek-v3 --cost-only",
        "--preset t5-base --whole-model", "--quick", "-f csv", "--cost-only --backend compile", "--device cuda",
    ],
    "activations": ["", "--activations gelu", "--time --activations gelu", "--activations gelu -f json",
                    "--time --activations gelu --workers 3 --rounds 6", "--time --device cuda --activations gelu",
                    "--time --activations gelu --runs 2"],
    "plot-activations": ["--activations relu", "--activations relu --gated", "--activations relu -o a.csv",
                         "--activations relu -o a.svg", "--activations relu -o a.png -o a.csv",
                         "--activations relu --gated -o a.svg", "--activations relu -o folder/",
                         "--activations relu --no-derivative"],
    "check": ["timed.json", "timed.json --exact-only", "counted.json", "timed.json now.json", "timed.json --absolute",
              "timed.json -f json", "counted.json counted.json", "timed.json now.json --exact-only"],
    "ab": ["swiglu --base-env A:1", "swiglu --base-env A:1 --exact-only", "mypkg.mlp:SwiGLU --base-env A:1",
           "gpt2 --base-env A:1", f"{OWN_KEYS} --base-env A:1", "swiglu --base-env A:1 --mode train",
           "own.py:act --base-env A:1",
           "swiglu --base-env A:1 --device cuda"],
    "selftest": ["", "--gate", "--live", "--live --gate", "--from live.json", "--gate --from live.json", "-f csv",
                 "--live --world quiet", "--judge"],
    "list": ["", "rules", "-f csv"],
    "env": ["", "-f json"],
    "inspect": ["gpt2", "gpt2 -f csv", "gpt2 -o a.json"],
    "report": ["timed.json", "timed.json -f markdown", "counted.json"],
}  # fmt: skip
MODELS = ("gpt2", "llama-7b")
VALUES: dict[str, tuple[str, ...]] = {  # by field; each a flag's whole choice where it has few
    "variants": ("gelu,silu", "relu"), "preset": MODELS, "config": MODELS, "d_model": ("64", "768"),
    "d_ff": ("64", "200"),
    "match": ("params", "flops", "none"), "multiple_of": ("1", "8", "96"), "rule": ("llama", "classic", "palm"),
    "ratio": ("4", "2", "2.1"), "ffn_dim_multiplier": ("1.3", "2"), "dropout": ("0.1", "0.5"),
    "reference": ("relu", "swiglu", "SwiGLU", "preset", "gpt2", MOE), "batch": ("1", "3"), "seq_len": ("512", "64"),
    "dtype": ("float32", "bf16"), "mode": ("forward", "train", "backward"), "device": ("auto", "cpu", "cuda"),
    "threads": ("1", "2", "3"), "backend": ("eager", "compile", "eager,compile"),
    "workers": ("3", "5"), "rounds": ("6", "9"),
    "precision": ("1", "2"), "budget": ("15", "60", "120"), "seed": ("0", "7"), "timeout": ("300", "60"),
    "runs": ("1", "2", "3", "40"),
    "pause": ("0", "5"), "init": ("torch", "normal"), "routing": ("uniform", "skewed"),
    "metrics": ("latency,memory", "memory", "latency"), "format": ("table", "csv", "json"),
    "out": ("a.csv", "a.json", "a.svg"),
    "variant": ("relu", "swiglu"), "heads": ("4", "6"), "kv_heads": ("2", "4"), "head_dim": ("32", "64"),
    "activations": ("relu", "gelu,silu"), "elements": ("100", "1048576"), "range_": ("-2:2", "-4:4"),
    "size": ("6x4", "8x5"),
    "columns": ("label", "params", "latency", "seq_len", "forward"), "sort": ("-label", "-seq_len", "-activation"),
    "dpi": ("60", "100"), "style": ("ggplot", "default"), "on_unclear": ("pass", "fail"),
    "export": ("bencher", "go-bench"),
    "base_rev": ("HEAD",), "head_rev": ("HEAD",), "base_python": (sys.executable,), "head_python": (sys.executable,),
    "base_source": (".",), "head_source": (".",), "base_env": ("B:1",), "head_env": ("B:1", "A:1"),
    "fail_above": ("4%", "6%"),
    "world": ("spinner", "bursts 1 s"), "repeats": ("2", "20"), "saved": ("live.json",),
    "time": ("wall", "device"), "cache": ("hot", "cold"), "matmul_precision": ("highest", "high", "medium"),
}  # fmt: skip
# a tolerance is of one metric: each is held to account by itself
TOLERANCES = tuple((f"{name}=4%", f"{name}=7%") for name in
                   ("latency", "seconds", "params", "saved_bytes", "peak_bytes", "flops_elementwise"))  # fmt: skip
# what is written and does nothing: the textbook's form of attention is counted as attention is
DECIDED = {("block", "textbook", "--cost-only")}


@dataclass(frozen=True)
class World:
    """What a command meets: a second one where what may come does."""

    name: str
    columns: int = 80
    gpus: int = 0
    strange: bool = False  # baselines of another machine, outputs that differ, forms that can't be counted, files there


HERE, ELSEWHERE = World("here"), World("elsewhere", columns=20, strange=True)
GPU, GPU_ELSEWHERE = replace(HERE, name="gpu", gpus=1), replace(ELSEWHERE, name="gpu elsewhere", gpus=1)


class Worker(FakeWorker):
    """One that can have a GPU and times its harness."""

    gpus = 0

    def greeting(self) -> dict:
        return {**FACTS, "gpus": self.gpus}

    def ask(self, request: dict, timeout_s: float) -> dict:
        if request["do"] == "timer":
            return {"empty_call_s": 1e-6, "resolution_s": 1e-9}
        return super().ask(request, timeout_s)


def seconds(label: str, worker: int, number: int) -> float:
    return 1e-3 * (3 + len(label) % 5) * (1 + 0.001 * ((worker * 7 + number * 3 + len(label)) % 5))


class Launch(FakeLaunch):
    """Starts such workers."""

    def __init__(self, gpus: int = 0) -> None:
        super().__init__(seconds)
        self.gpus = gpus

    def __call__(self, arm: object = None) -> Worker:
        worker = Worker(self, len(self.workers))
        worker.gpus = self.gpus
        self.workers.append(worker)
        return worker


class Probe(KnownProber):
    """Remembers what it is asked, and how long it would wait. Modules round their d_ff by themselves."""

    log: list[tuple[Any, ...]]
    strange = False

    def within(self, arm: Any) -> Probe:
        return type(self)(self._timeout_s, arm)

    def describe(self, target: str) -> OwnActivation | None:
        self.log.append(("describe", target, self._timeout_s))
        if target.endswith(":bare"):  # declares nothing
            return OwnActivation(target=target)
        return OwnActivation(target=target, flops=3, flops_backward=4) if target.endswith(":act") else None

    def count(self, spec: Any, workload: Any) -> Cost:
        self.log.append(("count", spec, workload.dtype, self._timeout_s))
        return super().count(replace(spec, d_ff=max(64, spec.d_ff // 64 * 64)), workload)

    def facts(self, spec: Any) -> Any:
        self.log.append(("facts", spec, self._timeout_s))
        return FACTS_OF_ACTIVATION

    def curve(self, spec: Any, low: float, high: float, points: int) -> Any:
        self.log.append(("curve", spec, self._timeout_s))
        return curve(lambda x: x.clip(0) * len(spec.activation), low=low, high=high, points=41)

    def keep(self, case: Any, seed: int, folder: str) -> None:
        self.log.append(("keep", seed, self._timeout_s))

    def hold(self, case: Any, seed: int, folder: str) -> Agreement:
        self.log.append(("hold", seed, self._timeout_s))
        if self.strange:
            return Agreement(error=0.4, tolerance=1e-4, apart="of another kind")
        return super().hold(case, seed, folder)


@dataclass
class Seen:
    """What came of a command line, in what can be compared; and which flags were refused on the way."""

    code: int
    what: dict[str, Any]
    refused: list[str]
    said: str

    @property
    def wrong(self) -> bool:
        """Whether it is a mistake for another reason."""
        return self.code == 2


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Baselines that are timed and counted, a run to hold against them; what a live exam saved is never opened."""
    folder = tmp_path_factory.mktemp("files")
    dice = random.Random(0)
    for name in ("timed", "now"):
        launch = FakeLaunch(lambda label, worker, number: 0.01 * dice.uniform(1, 1.004))
        request = CompareRequest(variants="relu,swiglu", d_model=64, threads=1, precision=0.5, metrics="latency")
        (folder / f"{name}.json").write_text(report_text(api.measure(api.prepare(request), launch=launch)))
    counted = api.cost(CompareRequest(variants="relu,swiglu", d_model=64, threads=1))
    (folder / "counted.json").write_text(report_text(counted))
    (folder / "live.json").write_text("[]")
    strange = folder / "strange"
    strange.mkdir()
    for path in folder.glob("*.json"):
        data = json.loads(path.read_text())
        if path.stem in ("timed", "now"):
            data["environment"]["cpu"] = f"another than that of {path.stem}"
        (strange / path.name).write_text(json.dumps(data))
    for name in ("x.json", "a.json"):  # `cost` does not write over what was measured
        (strange / name).write_text((folder / "now.json").read_text())
    return folder


@cache
def environment() -> Any:
    """This machine's, looked at once."""
    return describe(FACTS)


class Bench:
    """Runs command lines in this process; what a flag changes can be read off what it gives."""

    def __init__(self, files: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.files, self.folder, self.monkeypatch = files, folder, monkeypatch
        self.number = 0
        self.known: dict[tuple[World, str, bool], Seen] = {}

    def base(self, world: World, line: str, *, laid_out: bool = False) -> Seen:
        """A combination by itself."""
        if (world, line, laid_out) not in self.known:
            self.known[world, line, laid_out] = self.see(world, line, laid_out=laid_out)
        return self.known[world, line, laid_out]

    def see(self, world: World, line: str, *more: str, laid_out: bool = False, strict: bool = False) -> Seen:
        """What comes of a line; refusals are noted and nothing else happens for them, unless `strict`.

        Tables are compared as they are; `laid_out` in a terminal only where it matters.
        """
        self.number += 1
        place = self.folder / str(self.number)
        place.mkdir()
        source = self.files / "strange" if world.strange else self.files
        for path in source.glob("*.json"):
            os.link(path, place / path.name)
        what: dict[str, Any] = {"plans": [], "views": [], "asked": [], "pauses": [], "exams": []}
        refused: list[str] = []
        with self.monkeypatch.context() as patch:
            self._place(patch, world, place, what)
            if not strict:
                patch.setattr(Asked, "refuse", noting(refused))
            if not laid_out:
                patch.setattr(output, "show", lambda table, console, *, wide=False: print("a table"))
            code, said = self._run([*shlex.split(line), *more], what, laid_out)
        left = {str(path.relative_to(place)): path for path in sorted(place.rglob("*"))}
        what["files"] = {name: path.read_bytes() if path.is_file() and path.suffix != ".json" else
                         path.is_file() and (source / name).exists() and path.samefile(source / name)
                         for name, path in left.items()}  # fmt: skip
        timed = any("latency" in plan["metrics"] for plan in what["plans"])
        what["views"] = [seen_in_view(view, bool(what["plans"]), timed) for view in what["views"]]
        return Seen(code, what, refused, said)

    def _place(self, patch: pytest.MonkeyPatch, world: World, place: Path, what: dict[str, Any]) -> None:
        patch.chdir(place)
        patch.setenv("COLUMNS", str(world.columns))
        patch.setenv("SOURCE_DATE_EPOCH", "0")
        probe = type("Probe", (Probe,), {"log": what["asked"], "strange": world.strange})
        launch = Launch(world.gpus)
        patch.setattr(api, "MACHINE", api.Machine(launch=launch, prober=probe))
        patch.setattr(api, "describe", lambda facts: environment())
        patch.setattr(api, "advice", lambda: [])
        patch.setattr(api, "_pause", lambda pause, ending: what["pauses"].append(pause))
        if world.strange:
            patch.setattr(api, "unpredicted", lambda before, now: True)

        def short(plan: Any, **how: Any) -> Any:
            what["plans"].append(seen_in_plan(plan))
            few = replace(plan.protocol, workers=2, rounds=4, precision=None, budget_s=None)
            here = {"launch": launch, "describe": lambda facts: environment()}
            return real_run(replace(plan, protocol=few), **how | here)

        @contextmanager
        def turn(wait: bool, tell: Any) -> Iterator[str]:
            what["asked"].append(("turn", wait))
            yield ""

        patch.setattr(api, "run", short)
        patch.setattr(api, "turn", turn)
        show = Ending.show

        def shown(ending: Ending, view: Any) -> None:
            found = ending.arranged(view())
            what["views"].append(found)
            show(ending, lambda: found)

        patch.setattr(Ending, "show", shown)
        place_exams(patch, what["exams"])

    def _run(self, argv: list[str], what: dict[str, Any], laid_out: bool) -> tuple[int, str]:
        out, err = io.StringIO(), io.StringIO()
        with redirect_stdout(out), redirect_stderr(err):
            try:
                code, said = GROUP.main(argv, standalone_mode=False) or 0, ""
            except FfnbenchError as problem:
                code, said = problem.exit_code, problem.message
            except typer.BadParameter.__bases__[0] as problem:
                code, said = 2, str(problem)
        what["code"] = code
        for name, of in (("stdout", out), ("stderr", err)):
            what[name] = re.sub(r"  eta \d+:\d\d|measured in \d+ s", "", of.getvalue())
        if what["views"] and not laid_out:  # of the rest the views are compared: its text repeats what was typed
            what["stdout"] = what["stdout"].partition("\n")[0]
        what["stdout"] = re.sub(r'"created": "[^"]*"|"wall_s": [\d.e-]+', "", what["stdout"])
        return code, said


def noting(refused: list[str]) -> Any:
    """In place of refusing."""
    refuse = Asked.refuse

    def note(asked: Asked) -> None:
        try:
            refuse(asked)
        except FfnbenchError as problem:
            refused.append(problem.message)

    return note


def place_exams(patch: pytest.MonkeyPatch, log: list[Any]) -> None:
    """Exams that are not held: only what they were told is kept."""

    def told(name: str, gives: Any) -> Any:
        def held(*given: Any, **named: Any) -> Any:
            log.append((name, [str(one) for one in given if not callable(one)], str(named.get("seed"))))
            if name.startswith("measure"):
                given[-1](0.5, "half")
            if "counting" in named:
                named["counting"](1, 2)
            return gives

        return held

    for name in ("simulate", "total", "failures", "simulate_draws", "broken_by_intervals", "broken_by_checks",
                 "measure",
                 "measure_checks", "measure_cheats", "read_readings"):  # fmt: skip
        patch.setattr(exam, name, told(name, []))
    for name in ("of_readings", "of_alarms", "of_judgements"):
        patch.setattr(exam, name, lambda found: exam.Result())
    patch.setattr(
        api, "selftest_view", lambda result: records_view([{f"column {number}": number for number in range(9)}])
    )


def seen_in_plan(plan: Any) -> dict[str, Any]:
    """What measuring reads of a plan: rounds and budgets are about latency."""
    data = jsonable.encode(plan)
    protocol = data["protocol"]
    if "latency" not in plan.metrics:
        protocol = {key: protocol[key] for key in ("seed", "timeout_s")}
    cases = seen_in_cases(data["cases"], True, timed="latency" in plan.metrics)
    return {"protocol": protocol, "cases": cases, "metrics": data["metrics"],
            "reference": data["reference"]}  # fmt: skip


def seen_in_cases(cases: list[dict], measured: bool, *, timed: bool) -> list[dict]:
    """Without what can't be seen: dropout where nothing is trained, where it would run where nothing runs, and how it
    would be timed where nothing is.
    """
    found = []
    for case in cases:
        ffn, work = dict(case["ffn"]), dict(case["workload"])
        if work["mode"] == "forward":
            ffn.pop("dropout", None)
        if not measured:
            for key in ("threads", "device", "matmul_precision", "reduced_reductions"):
                work.pop(key, None)
        if not (measured and timed):
            for key in ("time", "cache"):
                work.pop(key, None)
        found.append({**case, "ffn": ffn, "workload": work})
    return found


CONDITIONS = ("time", "cache", "matmul_precision", "reduced_reductions")


def seen_in_view(view: Any, measured: bool, timed: bool) -> Any:
    """The table, the records without what only repeats a flag, and what the JSON of a run holds beside its plan."""
    rows = list(csv.DictReader(io.StringIO(view.stdout["csv"]())))
    for row in rows:
        if row.get("mode") == "forward":
            row.pop("dropout", None)
        if not measured:
            for key in ("threads", "device", *CONDITIONS):
                row.pop(key, None)
        if not timed:
            for key in ("time", "cache"):
                row.pop(key, None)
    data = json.loads(view.files[".json"]())
    kept = []
    for part in (data, data.get("now"), data.get("again")) if isinstance(data, dict) else ():
        if isinstance(part, dict) and "costs" in part:
            keys = ("costs", "measured", "comparisons", "failures", "warnings")
            plan = part["plan"]
            cases = seen_in_cases(plan["cases"], part["environment"] is not None, timed=timed)
            kept.append([part[key] for key in keys])
            kept.append([cases, plan["reference"], plan["metrics"], len(part.get("repeats") or ())])
    return view.table, rows, kept or data


@pytest.fixture
def bench(files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    import matplotlib

    with matplotlib.rc_context({"svg.hashsalt": "the same"}):
        yield Bench(files, tmp_path, monkeypatch)


def options_of(command: str) -> list[Any]:
    left_out = ("help", "json")  # --json is --format json, of which there are combinations
    return [one for one in COMMANDS[command].params if one.param_type_name == "option" and one.name not in left_out]


def typings(command: str, option: Any) -> list[tuple[str, ...]]:
    """What is typed of a flag: groups of values, of which one that does something speaks for all."""
    name = next(opt for opt in option.opts if opt.startswith("--"))
    if option.is_flag:
        return [(name, *option.secondary_opts)]
    if option.name == "tolerance":
        return [tuple(f"{name}={value}" for value in group) for group in TOLERANCES]
    assert option.name in VALUES, f"{command} {name} is new: give it two values or more in VALUES"
    values = [f"{name}={value}" for value in VALUES[option.name]]
    return [(value,) for value in values] if repeatable(option) else [tuple(values)]


def repeatable(option: Any) -> bool:
    """Whether each value stands for itself; those of a list add up to one."""
    return option.multiple and option.metavar != "LIST"


def hold(bench: Bench, command: str, combination: str, option: Any, *, quick: bool = False) -> None:
    """Every value of a flag in one combination: refused if none does anything, and only then. Where it is to be `quick`
    the first value that does something is the last that is tried.
    """
    line, laid_out = f"{command} {combination}", option.name in ("wide", "columns", "sort")
    on_gpu = "cuda" in combination or option.name == "time"  # a CPU has one time
    worlds = (GPU, GPU_ELSEWHERE) if on_gpu else (HERE, ELSEWHERE)
    base = bench.base(worlds[0], line, laid_out=laid_out)
    assert (base.wrong, base.refused) == (False, []), f"{line}: {base.said} {base.refused}"
    words = combination.split()
    if any((command, option.name, word) in DECIDED for word in words) or (option.is_flag and {*words} & {*option.opts}):
        return
    for group in typings(command, option):
        flags = {typed.partition("=")[0] for typed in group}
        seen: list[tuple[str, World, Seen]] = []
        effect = False
        for world in worlds:
            for typed in group:
                if repeatable(option) and typed.partition("=")[2] in words:
                    continue
                found = bench.see(world, line, typed, laid_out=laid_out)
                seen.append((typed, world, found))
                before = bench.base(world, line, laid_out=laid_out)
                effect = effect or (not found.wrong and found.what != before.what)
                if effect and quick:
                    break
            if effect:
                break
        for typed, world, found in seen:
            own = [text for text in found.refused if re.split(r"[ =]", text)[0] in flags]
            if effect:
                assert own == [], f"`{line} {typed}` ({world.name}) is refused, and {group} do something"
            elif not found.wrong:
                assert own, f"`{line} {typed}` ({world.name}) does nothing and is not refused"
                assert "would do nothing: " in own[0]


EVERY = [
    (command, line, option)
    for command, lines in COMBINATIONS.items()
    for line in lines
    for option in options_of(command)
]
QUICK = {"plot-activations": 2, "compare": 40}  # of each command, in the default run; 10 where nothing is said


def sample() -> list[tuple[str, str, Any]]:
    dice = random.Random(20261122)
    found = []
    for command in COMBINATIONS:
        own = [one for one in EVERY if one[0] == command]
        found += dice.sample(own, min(len(own), QUICK.get(command, 10)))
    return found


@pytest.mark.parametrize("command", COMBINATIONS)
def test_what_is_refused_does_nothing_and_what_does_nothing_is_refused(command: str, bench: Bench) -> None:
    for _, line, option in (one for one in sample() if one[0] == command):
        hold(bench, command, line, option, quick=True)


@pytest.mark.slow
@pytest.mark.parametrize(("command", "line"), [(c, line) for c, lines in COMBINATIONS.items() for line in lines])
def test_every_flag_in_every_combination(command: str, line: str, bench: Bench) -> None:
    for option in options_of(command):
        hold(bench, command, line, option)


def test_every_command_is_held() -> None:
    assert set(COMBINATIONS) == set(COMMANDS)


REFUSED = {
    "cost --json --format json": "--json would do nothing: --format says it",
    "env --quiet": "--quiet would do nothing: without --ceilings nothing is measured",
    "cost --d-ff 100 --ratio 3": "--ratio would do nothing: --d-ff gives the width",
    "cost --preset gpt2 --ratio 4": "--ratio would do nothing: every width is given, or matched to one that is",
    "cost --d-ff 100 --match none --multiple-of 8": "--multiple-of would do nothing: no width is rounded",
    "compare --variants relu --rule llama --ffn-dim-multiplier 1.3": "--ffn-dim-multiplier would do nothing",
    "compare --preset gpt2 --variants preset --rule llama": "--rule would do nothing: every variant says itself",
    "compare --variants relu@d_ff=8 --match none --d-ff 9": "--d-ff would do nothing: every variant says itself",
    "cost --variants relu --match flops": "--match would do nothing: there is one variant",
    "cost --variants relu --reference relu": "--reference would do nothing: there is one variant",
    "compare --preset bert-base --d-model 768": "--d-model would do nothing: the model sets it",
    "compare --variants relu@dropout=0.2 --dropout 0.1": "--dropout would do nothing: no variant takes it",
    "compare --variants mypkg.mlp:SwiGLU --init normal": "--init would do nothing: no variant takes it from the flag",
    "cost --variants relu@bias=true --no-bias": "--no-bias would do nothing: no variant takes it from the flag",
    f"compare --variants {MOE}@routing=uniform --routing skewed": "--routing would do nothing: every variant with",
    "cost --variants relu@seq_len=8 --seq-len 9": "--seq-len would do nothing: every variant has its own",
    "compare --variants relu@compile=max-autotune --backend eager": "--backend would do nothing: every variant has its",
    "compare --variants relu --backend eager,onednn --match flops": "--match would do nothing: there is one variant",
    "compare --metrics memory --precision 1": "--precision would do nothing: latency is not measured",
    "compare --quick --workers 4 --rounds 9": "--quick would do nothing: --workers and --rounds say how much",
    "block --cost-only --no-textbook": "--no-textbook would do nothing: nothing is measured",
    "block --cost-only --timeout 9": "--timeout would do nothing: nothing is measured",
    "block --preset gpt2 --whole-model --cost-only": "--cost-only would do nothing: a whole model is counted",
    "block --preset gpt2 --whole-model --batch 1": "--batch would do nothing: a whole model is counted for one",
    "activations --seed 0": "--seed would do nothing: without --time nothing is measured",
    "plot-activations --gated --derivative": "--derivative would do nothing: --gated draws surfaces",
    "plot-activations -o a.csv --style ggplot": "--style would do nothing: a .csv holds points alone",
    "check counted.json --tolerance latency=5%": "--tolerance latency=5% would do nothing: no row is held to it",
    "check counted.json --exact-only": "--exact-only would do nothing: the baseline has no latencies",
    "check counted.json --absolute": "--absolute would do nothing: nothing is timed",
    "check counted.json --budget 60": "--budget would do nothing: nothing is timed",
    "check timed.json --exact-only --on-unclear fail": "--on-unclear would do nothing: nothing is timed",
    "check timed.json --tolerance relu:latency=5%": "--tolerance relu:latency=5% would do nothing: no row is held",
    "check timed.json --tolerance latency=5% --tolerance latency=6%": "--tolerance latency=5% would do nothing",
    "check timed.json now.json --budget 60": "--budget would do nothing: a saved run is not measured",
    "ab swiglu --base-env A:1 --exact-only --fail-above 5%": "--fail-above would do nothing: nothing is timed",
    "compare --device cpu --time wall": "--time would do nothing: nothing runs on a GPU",
    "compare --metrics memory --cache cold": "--cache would do nothing: latency is not measured",
    "compare --dtype bf16 --matmul-precision high": "--matmul-precision would do nothing: nothing is computed in float",
    "compare --no-reduced-reductions": "--no-reduced-reductions would do nothing: nothing is computed in 16 bits on",
    "compare --dtype bf16 --device cpu --no-reduced-reductions": "--no-reduced-reductions would do nothing: nothing",
    "ab swiglu --base-env A:1 --base-env A:2": "--base-env A:1 would do nothing: the last value of a variable counts",
    "selftest --budget 60": "--budget would do nothing: it is about --live",
    "selftest --from live.json --seed 1": "--seed would do nothing: what --from names is only shown",
    "selftest --live --world quiet --world spinner --world quiet": "--world quiet would do nothing: it stands twice",
    "selftest --live --runs 40": "--runs would do nothing: it is about simulated runs",
    "cost --force -o a.csv": "--force would do nothing: only a .json can hold what was measured",
    "list --format csv --wide": "--wide would do nothing: only --format table leaves columns out",
    "cost -o a.csv -o a.csv": "--out a.csv would do nothing: it stands twice",
}  # fmt: skip


@pytest.mark.parametrize("line", REFUSED)
def test_a_flag_that_would_do_nothing_is_one_line_and_nothing_is_measured_or_written(line: str, bench: Bench) -> None:
    found = bench.see(HERE, line, strict=True)
    assert found.code == 2
    assert found.said.startswith(REFUSED[line])
    assert (found.what["plans"], found.what["views"], found.what["exams"]) == ([], [], [])
    assert set(found.what["files"]) == {path.name for path in bench.files.glob("*.json")}
    assert all(found.what["files"].values())


@pytest.mark.parametrize(
    "line",
    ["compare --seq-len 512", "cost --ratio 4", "compare --threads 2", "compare --bias",
     "compare --device auto --seed 0",
     "check timed.json --budget 120 --on-unclear pass", "compare --variants relu --control", "block --timeout 300"],
)  # fmt: skip
def test_a_default_that_is_typed_is_no_mistake(line: str, bench: Bench) -> None:
    assert bench.see(HERE, line, strict=True).code == 0


def test_what_a_file_of_defaults_says_is_not_typed(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    defaults = {"cost": {"d_ff": "100", "ratio": "3"}}
    assert app(["cost"], standalone_mode=False, default_map=defaults) in (0, None)
    assert "d_ff 100" in capsys.readouterr().out
    with pytest.raises(FfnbenchError, match="--ratio would do nothing"):
        app(["cost", "--ratio", "3"], standalone_mode=False, default_map=defaults)


def test_from_python_nothing_is_typed() -> None:
    assert api.cost(CompareRequest(variants="relu", d_ff=100, ratio=3.0)).plan.cases[0].ffn.d_ff == 100
