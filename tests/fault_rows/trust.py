"""Baselines and configs of somebody else: `check` runs no code that they name, and nothing of them is obeyed."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

from fault_rows.kit import LOOSE, QUICK, QUICK_SAMPLES, Scene, fault, relabelled, sealed, steady
from fault_rows.resources import NET

WITNESS = "OWNED"
PROMISE = "check ends 2 and runs nothing of it; report only shows it"
LIBRARY = """
#include <fcntl.h>
#include <unistd.h>
__attribute__((constructor)) static void owned(void) {{ close(open("{path}", O_CREAT | O_WRONLY, 0600)); }}
"""


def evil(scene: Scene) -> str:
    """Code that leaves a witness."""
    return f"open({str(scene.folder / WITNESS)!r}, 'w').close()\n"


def with_case(scene: Scene, **changes: Any) -> dict[str, Any]:
    """A saved run whose second case is changed, with its seal made anew."""
    data = scene.measured()
    data["plan"]["cases"][1] |= changes
    return sealed(data)


def module(target: str, **more: Any) -> dict[str, Any]:
    """The spec of a module of somebody's."""
    return {"target": target, "d_model": 32, "d_ff": 128, "arguments": [], **more}


def arm(**given: Any) -> dict[str, Any]:
    """Where a case runs."""
    return {"python": "", "source": "", "env": [], "name": "", **given}


def harmless(scene: Scene, data: dict[str, Any], *codes: int) -> None:
    """check of it and with it, report of it: nothing runs, nothing is written, nothing is shown raw."""
    scene.write("evil.json", data)
    scene.write("good.json", scene.measured())
    before = files(scene.folder.parent)
    for command in (["check", "evil.json", "--exact-only"], ["check", "evil.json", "--budget", "5", *LOOSE]):
        done = scene.ends(scene.run(*command), *(codes or (2,)))
        scene.plain(done)
        if done.code == 2:
            scene.one_error(done)
        if (scene.folder / WITNESS).exists():
            return scene.expect(False, "its code has run")
    for command in (["report", "evil.json"], ["check", "good.json", "evil.json", *LOOSE]):
        scene.plain(scene.ends(scene.run(*command), 0, 1, 2, 3))
    scene.expect(not (scene.folder / WITNESS).exists(), "its code has run")
    new = {name for name in files(scene.folder.parent) - before if "/logs/" not in name and "__pycache__" not in name}
    scene.expect(not new, f"written: {', '.join(sorted(new)[:2])}")


def files(folder: Path) -> set[str]:
    """All files below a folder."""
    return {str(path) for path in folder.rglob("*")}


@fault("a baseline that names a module in a file", PROMISE, 0, 1, 2, 3)
def a_file(scene: Scene) -> None:
    scene.write("mine.py", evil(scene) + NET)
    harmless(scene, with_case(scene, ffn=module("mine.py:Net")))


@fault("a baseline that names a module of an installed package", PROMISE, 0, 1, 2, 3)
def a_package(scene: Scene) -> None:
    scene.write("installed/evilpkg/__init__.py", evil(scene) + NET)
    scene.environment["PYTHONPATH"] += f":{scene.folder / 'installed'}"
    harmless(scene, with_case(scene, ffn=module("evilpkg:Net")))
    harmless(scene, with_case(scene, ffn=module("os:system", arguments=[["command", f"touch {WITNESS}"]])))


@fault("a baseline that names an interpreter", PROMISE, 0, 1, 2, 3)
def an_interpreter(scene: Scene) -> None:
    path = scene.write("python", f"#!/bin/sh\ntouch {scene.folder / WITNESS}\n")
    path.chmod(0o755)
    harmless(scene, with_case(scene, arm=arm(python=str(path))))
    harmless(scene, with_case(scene, arm=arm(python="./python")))


@fault("a baseline that names a source tree", PROMISE, 0, 1, 2, 3)
def a_source_tree(scene: Scene) -> None:
    for name in ("sitecustomize", "torch", "numpy"):
        scene.write(f"tree/{name}.py", evil(scene))
    harmless(scene, with_case(scene, arm=arm(source="tree")))


@fault("a baseline that sets LD_PRELOAD, PYTHONPATH or PYTHONSTARTUP", PROMISE, 0, 1, 2, 3)
def variables(scene: Scene) -> None:
    scene.write("path/sitecustomize.py", evil(scene))
    harmless(scene, with_case(scene, arm=arm(env=[["PYTHONPATH", str(scene.folder / "path")]])))
    harmless(scene, with_case(scene, arm=arm(env=[["PYTHONHOME", "/nowhere"], ["PATH", str(scene.folder)]])))
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        return scene.tell("LD_PRELOAD skipped: no compiler")
    source = scene.write("evil.c", LIBRARY.format(path=scene.folder / WITNESS))
    library = scene.folder / "evil.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", str(library), str(source)], check=True, capture_output=True)
    harmless(scene, with_case(scene, arm=arm(env=[["LD_PRELOAD", str(library)]])))


@fault("a baseline that names hf:CONFIG", PROMISE, 0, 1, 2, 3)
def a_model(scene: Scene) -> None:
    scene.write("model/modeling.py", evil(scene))
    auto = {"AutoConfig": "modeling.Config", "AutoModel": "modeling.Model"}
    scene.write("model/config.json", {"model_type": "evil", "hidden_size": 32, "auto_map": auto})
    harmless(scene, with_case(scene, ffn=module("hf:model", form=None)))


@fault("a baseline with an activation of its own", PROMISE, 0, 1, 2, 3)
def an_activation(scene: Scene) -> None:
    scene.write("act.py", evil(scene) + "def act(x):\n    return x.tanh()\n")
    own = {"target": "act.py:act", "formula": "tanh", "flops": 1, "flops_backward": 1}
    spec = scene.measured()["plan"]["cases"][1]["ffn"]
    harmless(scene, with_case(scene, ffn={**spec, "activation": "act.py:act", "own": own}))


@fault("a baseline whose request has odd values", "nothing runs; the command that is shown is quoted", 0, 1, 2, 3)
def an_odd_request(scene: Scene) -> None:
    run = f"touch {scene.folder / WITNESS}"
    shown = 0
    for changes in ({"variants": f"relu,$({run})"}, {"variants": f"relu';{run};'"}, {"device": f"`{run}`"},
                    {"variants": "mine.py:Net"}, {"preset": "../../etc/passwd"}, {"metrics": "\x1b[31m"}):  # fmt: skip
        data = scene.measured()
        data["plan"]["request"] |= changes
        data["plan"]["protocol"]["method"] = 2  # then the command that makes it anew is shown
        harmless(scene, sealed(data), 0, 1, 2, 3)
        told = scene.run("check", "evil.json", "--exact-only", env={"COLUMNS": "2000"}).flat
        if command := re.search(r"ffnbench compare .*-o evil\.json", told):
            shown += 1
            typed = ["bash", "-c", "ffnbench() { :; }; " + command[0]]
            subprocess.run(typed, cwd=scene.folder, capture_output=True, check=False)
            scene.expect(not (scene.folder / WITNESS).exists(), "the command that it shows runs something else")
    scene.tell(f"{shown} commands shown, and typed")


@fault("a baseline whose workload would take the machine", "exit 2 or 3: one line, or a row that failed", 2, 3)
def too_much(scene: Scene) -> None:
    for name, value in (("batch", 10**9), ("seq_len", 10**9), ("threads", 10**6)):
        data = scene.measured()
        data["plan"]["cases"][1]["workload"][name] = value
        scene.write("evil.json", sealed(data))
        done = scene.run("check", "evil.json", "--budget", "5", *LOOSE)
        scene.expect(done.code == 2 or "MISSING" in done.out, "there is neither an error nor a row that failed")
    data = scene.measured()
    data["plan"]["cases"][1]["ffn"]["d_ff"] = 10**12
    scene.write("evil.json", sealed(data))
    scene.one_error(scene.run("check", "evil.json", "--budget", "5", *LOOSE))


@fault("a baseline with escapes in its labels, notes and names", "exit 0, 1 or 2; shown with escapes", 0, 1, 2, 3)
def escapes(scene: Scene) -> None:
    text = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202e\r"
    data = relabelled(scene.measured(), "gelu", text)
    data["warnings"] = [{"label": text, "text": text}, {"label": "", "text": text}]
    data["environment"] |= {"cpu": text, "system": text, "git_commit": text}
    data["created"] = data["version"] = text
    harmless(scene, sealed(data), 0, 1, 2, 3)
    relabelled_reference = relabelled(scene.measured(), "relu", text)
    relabelled_reference["plan"]["reference"] = text
    harmless(scene, sealed(relabelled_reference), 0, 1, 2, 3)


@fault("a baseline under a path with a line break and `::error ::`", "no line begins with `::error ::`", 0, 1, 2)
def a_path(scene: Scene) -> None:
    name = "evil\n::error ::owned\r::add-mask::x\x1b[31m.json"
    scene.write(name, scene.measured())
    exact = "--exact-only"
    for more in ([exact], [exact, "--format", "github"], ["nowhere.json"], [exact, "-o", name]):
        done = scene.run("check", name, *more)
        scene.plain(done)
        lines = re.split("[\n\r]", done.said)
        scene.expect(not [line for line in lines if line.startswith(("::error ::", "::add-mask"))], "a line is obeyed")
    scene.plain(scene.ends(scene.run("report", name), 0))


@fault("a config.json that names code", "inspect and cost count, and run nothing of it", 0, 2)
def a_config(scene: Scene) -> None:
    scene.write("model/modeling.py", evil(scene))
    llama = {"model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2}
    auto = {"AutoConfig": "modeling.Config", "AutoModel": "modeling.Model"}
    for kind in ("llama", "evil"):
        scene.write("model/config.json", {**llama, "hidden_act": "silu", "model_type": kind, "auto_map": auto})
        for command in (["inspect", "model"], ["cost", "--config", "model"]):
            scene.run(*command)
    scene.expect(not (scene.folder / WITNESS).exists(), "its code has run")


@fault("a baseline of code that --trust names", "exit 0: it is run and checked", 0)
def vouched_for(scene: Scene) -> None:
    scene.write("mine.py", NET)
    scene.ends(scene.run("compare", *QUICK, "--variants", "mine.py:Net", "-q", "-o", "base.json"), 0)
    scene.write("base.json", steady(scene.whole("base.json", QUICK_SAMPLES * 3 // 2), {}))  # however busy it was here
    scene.ends(scene.run("check", "base.json", "--exact-only", "--trust", "mine.py:Net"), 0)
