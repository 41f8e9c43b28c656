"""ffnbench from Python: types, mistakes, objects as variants, answers, Ctrl-C, what is
printed.
"""

from __future__ import annotations

import io
import os
import pickle
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from fake_machine import FakeLaunch, ProberHere, interrupted_in_the_second_worker
from paths import ROOT
from torch import nn

import ffnbench
from ffnbench.common.choices import WORKER_VARIABLE
from ffnbench.common.errors import FfnbenchError

SMALL = {"d_model": 8, "threads": 1, "workers": 3, "rounds": 2}


class Plain(nn.Module):
    """A class that a worker finds by the name of this module."""

    @classmethod
    def made(cls, d_model: int, d_ff: int) -> nn.Module:
        return cls()


# Signatures and types


def test_a_room_of_the_same_name_does_not_hide_a_function() -> None:
    code = (
        "import ffnbench.activations.facts, ffnbench.block.plan\n"
        "print(callable(ffnbench.activations), callable(ffnbench.block))"
    )
    assert printed_by(code) == "True True\n"


def printed_by(code: str) -> str:
    """What a script prints in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


RIGHT = """
import ffnbench
from pathlib import Path

def mine(d_model: int, d_ff: int) -> object: ...

report = ffnbench.compare(["relu", "swiglu"], d_model=256, dtype="bf16", quick=True)
path: Path = report.save(Path("run.json"))
report.plot().savefig("a.png")
drawn: Path = report.save("a.png")
ffnbench.plot_activations(["relu"]).save("b.png")
ffnbench.block(mode="train", backend="onednn", dtype="float32,bf16")
ffnbench.cost([Path("mine.py:Mine"), "relu"], mode=["forward", "train"], match="none")
found = ffnbench.check(path, tolerance={"latency": "5%"})
done: bool = found.ok
counted = ffnbench.cost({"a": "relu"}, d_model=64).frame()
try:
    ffnbench.ab("relu", base_rev="main", d_model=64)
except ffnbench.Error as problem:
    print(problem.hint)
"""
WRONG = {
    'ffnbench.compare("relu", dmodel=256)': "call-arg",
    'ffnbench.compare("relu", d_model=1.5)': "arg-type",
    'ffnbench.compare("relu", mode="trian")': "arg-type",
    'ffnbench.cost("relu", match="param")': "arg-type",
    'ffnbench.cost("relu").sav("x")': "attr-defined",
    "ffnbench.check()": "call-arg",
    'ffnbench.cost("relu").plot("a.png")': "call-arg",
    'ffnbench.load("run.json").ok': "attr-defined",
}


@pytest.mark.slow
def test_a_type_checker_knows_right_from_wrong(tmp_path: Path) -> None:
    (tmp_path / "right.py").write_text(RIGHT)
    (tmp_path / "wrong.py").write_text("\n".join(["import ffnbench", *WRONG]))
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", f"{tmp_path}/right.py",
         f"{tmp_path}/wrong.py"],
        capture_output=True, text=True, timeout=300, cwd=ROOT, env={**os.environ, "MYPYPATH": ""},
    )  # fmt: skip
    found = re.findall(
        r"(\w+)\.py:(\d+): error: .*\[([\w-]+)\]$", done.stdout, re.MULTILINE
    )
    assert found == [
        ("wrong", str(2 + i), kind) for i, kind in enumerate(WRONG.values())
    ], done.stdout + done.stderr


# Arguments


def test_a_mistake_in_python_is_told_with_a_hint() -> None:
    for given, says in (
        ({"d_model": 64.5}, "--d-model: '64.5' is not a whole number"),
        ({"d_model": True}, "--d-model can't be True"),
        ({"match": ["flops", "params"]}, "match takes one value"),
        ({"match": None}, "match can't be None"),
        ({"dtype": nn.Parameter}, "--dtype can't be <class"),  # it has tolist
        ({"dmodel": 8}, "did you mean 'd_model'"),
        ({"variants": {"a,b": "relu"}}, "'a,b' is no label"),
        ({"variants": {"": "relu"}}, "'' is no label"),
        ({"variants": []}, "--variants has an empty value"),
        ({"variants": {"a": "relu,gelu"}}, "the label 'a' is of one variant"),
        ({"variants": [nn.Identity()]}, "an instance of Identity is no variant"),
        ({"variants": [lambda d_model, d_ff: None]}, "can't import"),
        ({"variants": [3]}, "3 is no variant"),
        ({"preset": "llama3-8b", "d_model": [64, 128]}, "hint: leave --d-model out"),
    ):
        told = told_of(ffnbench.cost, **given)
        assert says in told
        assert "\nhint: " in told
    assert "can't be None\nhint: help()" in told_of(ffnbench.check, None)


def told_of(call, *given: object, **named: object) -> str:
    """What the error of a call says."""
    with pytest.raises(ffnbench.Error) as told:
        call(*given, **named)
    return str(told.value)


def test_what_a_worker_could_not_find_is_refused() -> None:
    hidden = type("Plain", (nn.Module,), {"__module__": __name__})
    with pytest.raises(ffnbench.Error, match="no file has it under this name"):
        ffnbench.cost(hidden)
    code = "import ffnbench\nclass Mine: pass\ntry: ffnbench.cost(Mine)\nexcept ffnbench.Error as e: print(e)"
    assert "no file has it under this name\nhint: save it" in printed_by(code)


SCRIPT = re.search(
    r"```py\n(# mine\.py\n.*?)```",
    (ROOT / "docs" / "python.md").read_text(encoding="utf-8"),
    re.DOTALL,
)


def test_a_class_of_the_script_that_runs_or_of_a_package_beside_it_is_a_variant(
    tmp_path: Path,
) -> None:
    """The script of docs/python.md as it stands there, but that it counts, from another
    folder: with a real worker.
    """
    text = (
        SCRIPT[1]
        .replace("ffnbench.compare(", "ffnbench.cost(")
        .replace(", quick=True", "")
    )
    (tmp_path / "mine.py").write_text(
        f"from kernels.mlp import Up\n{text.replace('Mine]', 'Mine, Up]')}"
    )
    for folder in ("kernels", "elsewhere"):
        (tmp_path / folder).mkdir()
    (tmp_path / "kernels" / "mlp.py").write_text(
        "from torch import nn\n\nclass Up(nn.Linear):\n    def __init__(self, d_model):\n"
        "        super().__init__(d_model, d_model)\n"
    )
    done = subprocess.run(
        [sys.executable, "../mine.py"], capture_output=True, text=True, timeout=300, cwd=tmp_path / "elsewhere",
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "\nMine" in done.stdout
    assert f"{256 * 256 + 256:,}" in done.stdout
    assert (
        done.stdout.count("d_model 256") == 1
    )  # the worker that loaded the file did not run it as a script
    assert done.stderr == ""


def test_a_script_without_a_guard_is_told_what_to_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(WORKER_VARIABLE, "x")
    with pytest.raises(ffnbench.Error, match="__main__"):
        ffnbench.cost("relu")
    assert isinstance(
        ffnbench.build("relu", d_model=8), nn.Module
    )  # a factory in a file may do that


# Answers


def test_an_answer_is_saved_by_suffix_loaded_and_becomes_a_frame(
    on_machine, tmp_path: Path
) -> None:
    on_machine(FakeLaunch(), ProberHere)
    report = ffnbench.compare(["relu", "gelu"], **SMALL)
    loaded = ffnbench.load(report.save(tmp_path / "run.json"))
    assert loaded.frame().equals(report.frame())
    assert loaded.frame()["rate"].dtype == float  # nothing is known of it
    assert report.save(tmp_path / "run.svg").read_text().startswith("<?xml")
    facts = ffnbench.activations(["relu", "gelu"])
    assert facts.frame()["activation"].tolist() == ["relu", "gelu"]
    model, drawn = ffnbench.inspect("gpt2"), ffnbench.plot_activations("relu")
    for answer in (facts, model, drawn, ffnbench.cost("relu", d_model=8)):
        pickle.loads(pickle.dumps(answer)).save(f"{tmp_path}/all/")
    stems = {path.stem for path in (tmp_path / "all").iterdir()}
    assert stems == {"activations", "inspect", "plot-activations", "cost"}


def test_check_from_python(tmp_path: Path) -> None:
    path = ffnbench.cost(["relu", "swiglu"], d_model=8).save(tmp_path / "baseline.json")
    found = ffnbench.check(path, exact_only=True)
    assert found.ok
    assert set(found.frame()["status"]) == {"OK"}
    for size in (0.05, {"latency": 0.05}):
        with pytest.raises(ffnbench.Error, match=r"could mean 0\.05% or 5%"):
            ffnbench.check(path, tolerance=size)
    other = ffnbench.cost(["relu", "swiglu=swiglu@d_ff=30"], d_model=8).save(
        tmp_path / "other.json"
    )
    worse = ffnbench.check(path, other, exact_only=True)
    assert (worse.ok, worse.status) == (False, "REGRESSED")


# Ctrl-C, mistakes, and what is printed


def test_an_interruption_ends_a_loop_with_the_report_attached(on_machine) -> None:
    begun = []
    on_machine(FakeLaunch(interrupted_in_the_second_worker))

    def loop() -> None:
        for turn in range(3):
            begun.append(turn)
            ffnbench.compare("relu,gelu", **SMALL)

    with pytest.raises(KeyboardInterrupt) as caught:
        loop()
    assert begun == [0]
    assert caught.value.report.interrupted
    assert {sample.worker for sample in caught.value.report.samples} == {0}
    assert caught.value.report.frame()["label"].tolist() == ["relu", "gelu"]


def test_a_script_that_is_interrupted_ends_by_the_signal() -> None:
    """So that the loop of a shell around it ends too; 1 would be a regression."""
    code = (
        "import sys; sys.path.insert(0, 'tests')\nimport fake_machine, ffnbench\nfrom ffnbench.run import world\n"
        "fake = world.World(launch=fake_machine.FakeLaunch(fake_machine.interrupted_in_the_second_worker))\n"
        "world.this_machine = lambda: fake\n"
        "ffnbench.compare('relu,gelu', d_model=8, threads=1, workers=3, rounds=2)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=ROOT,
    )
    assert done.returncode == -signal.SIGINT, done.stderr
    assert "its .report holds what was measured by then" in done.stderr


def test_an_error_is_short_in_a_script_and_two_lines_in_a_notebook() -> None:
    with pytest.raises(FfnbenchError) as caught:
        ffnbench.compare("swigul", **SMALL)
    assert str(caught.value).startswith(
        "unknown variant 'swigul'\nhint: did you mean 'swiglu'"
    )
    assert len(caught.traceback) == 2  # this line, and the public function
    assert caught.value.__cause__ is None
    error, hint = caught.value._render_traceback_()
    assert error == "error: unknown variant 'swigul'"
    assert hint.startswith("hint: did you mean")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_nothing_is_printed_but_progress_in_a_terminal(
    on_machine, capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_machine(FakeLaunch())
    ffnbench.compare("relu", **SMALL)
    assert capsys.readouterr() == ("", "")
    stderr = Terminal()
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stderr", stderr)
        patch.setenv("TERM", "xterm")
        ffnbench.compare("relu", **SMALL)
    assert "process" in stderr.getvalue()
    assert capsys.readouterr() == ("", "")
