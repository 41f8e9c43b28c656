"""`--help` at every width, its examples, and what a shell offers at TAB."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from urllib.request import url2pathname

import pytest
from paths import ROOT
from shell import COMMANDS, options_of

from ffnbench.app import main as cli


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_every_flag_is_shown_whole_and_no_line_of_ours_is_too_long(
    in_process, monkeypatch, columns: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    for command in ("", *COMMANDS):
        _, text, _ = in_process(*command.split(), "--help")
        assert text.count("\n  ffnbench ") >= 3, command
        told, _, _ = text.partition("\nMore: ")  # an address is as long as it is
        assert max(map(len, told.splitlines())) <= 80, command  # examples among them
        for option in options_of(command).values() if command else ():
            for name in (option.opts[0], *option.secondary_opts[:1]):
                assert re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", text), (
                    command,
                    name,
                )
        told = text.partition("\nExamples:")[0]  # an example is as long as it is
        assert max(map(len, told.splitlines())) <= columns, command
        assert not re.search(r"\\|<bool>", told), command


def test_a_wheel_brings_the_pages_that_its_help_names(tmp_path: Path) -> None:
    """Built, and laid into a folder that was empty: what an installer does with a wheel
    of Python alone.
    """
    builders = pytest.importorskip("hatchling.builders.wheel")
    (wheel,) = builders.WheelBuilder(str(ROOT)).build(
        directory=str(tmp_path), versions=["standard"]
    )
    home = tmp_path / "an empty folder"
    zipfile.ZipFile(wheel).extractall(home)
    code = (
        "from ffnbench.app.main import app, run_command_line\n"
        "from typer.main import get_command\n"
        "for words in [], *([name] for name in get_command(app).commands): run_command_line([*words, '--help'])"
    )
    done = subprocess.run([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": str(home)},
                          capture_output=True, text=True, cwd=home)  # fmt: skip
    assert done.returncode == 0, done.stderr
    pages = [
        Path(url2pathname(path))
        for path in re.findall(r"^More: file://([^#\s]+)", done.stdout, re.MULTILINE)
    ]
    assert len(pages) == len(COMMANDS) + 1
    for page in pages:
        assert page.is_relative_to(home)
    for page in (home / "ffnbench").rglob("*.md"):
        for link in re.findall(
            r"\]\(([^):#]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")
        ):
            assert (page.parent / link).exists(), f"{page.name}: {link}"


@pytest.fixture
def offered(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """What a shell is told, where `typed` stands before the cursor."""

    def ask(shell: str, typed: str) -> list[str]:
        words = typed.split() + [""] * typed.endswith(" ")
        asked = {"_FFNBENCH_COMPLETE": f"complete_{shell}", "COMP_WORDS": "\n".join(words),
                 "COMP_CWORD": str(len(words) - 1), "_TYPER_COMPLETE_ARGS": typed,
                 "_TYPER_COMPLETE_FISH_ACTION": "get-args"}  # fmt: skip
        for name, value in asked.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(sys, "argv", ["ffnbench"])
        with pytest.raises(SystemExit) as caught:
            cli.main()
        assert not caught.value.code
        lines = capsys.readouterr().out.splitlines()
        if shell == "zsh":  # _arguments '*: :(("name":"help"
            return [
                found[1] for line in lines if (found := re.search(r'"([^"]*)"', line))
            ]
        return [line.partition("\t")[0] for line in lines]

    return ask


def test_names_are_offered_in_every_shell_and_lists_go_on(offered) -> None:
    for shell, typed, some, none in (
        ("bash", "c", {"compare", "cost", "check"}, "list"),
        ("zsh", "compare --pre", {"--preset", "--precision"}, "--dtype"),
        ("bash", "compare --ro", {"--rounds"}, "--seed"),
        ("fish", "compare ", {"relu", "swiglu", "llama3-8b"}, "float32"),
        ("bash", "compare relu,swi", {"relu,swiglu"}, "swiglu"),
        ("zsh", "compare swi", {"swiglu", "swish"}, "relu"),
        (
            "fish",
            "compare --dtype bf16,fl",
            {"bf16,float32", "bf16,float64"},
            "bf16,bfloat16",
        ),
        (
            "bash",
            "compare --backend eager,pack",
            {"eager,packed", "eager,packed-up-gate"},
            "packed",
        ),
        ("zsh", "cost --match fl", {"flops"}, "params"),
        ("fish", "cost --preset mix", {"mixtral-8x7b"}, "gpt2"),
        ("bash", "list p", {"presets"}, "keys"),
        ("fish", "report --format m", {"markdown"}, "csv"),
        ("bash", "compare -f ", {"csv"}, "github"),
        ("bash", "check -f ", {"csv", "github"}, "png"),
    ):
        found = offered(shell, f"ffnbench {typed}")
        assert some <= set(found), (typed, found)
        assert none not in found, typed


def test_what_completion_does_not_know_is_never_1(
    monkeypatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """1 is a regression and nothing else."""
    monkeypatch.setattr(sys, "argv", ["ffnbench"])
    for asked in ("zzz", "complete_zzz", "source_zzz"):
        monkeypatch.setenv("_FFNBENCH_COMPLETE", asked)
        with pytest.raises(SystemExit) as caught:
            cli.main()
        assert (caught.value.code, capsys.readouterr().out) == (2, "")


def test_what_is_offered_needs_no_torch() -> None:
    code = (
        "import sys; sys.argv = ['ffnbench']\n"
        "from ffnbench.app.main import main\n"
        "try: main()\n"
        "finally: assert not {'torch', 'numpy', 'pandas', 'matplotlib'} & set(sys.modules)"
    )
    shell = {
        "_FFNBENCH_COMPLETE": "complete_bash",
        "COMP_WORDS": "ffnbench ab swi",
        "COMP_CWORD": "2",
    }
    run = [sys.executable, "-c", code]
    done = subprocess.run(
        run, env={**os.environ, **shell}, capture_output=True, text=True, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr
    assert "swiglu" in done.stdout
