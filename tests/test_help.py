"""`--help` at every width, its examples, and what a shell offers at TAB."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from conftest import ROOT

from ffnbench import cli

GROUP = typer.main.get_command(cli.app)
COMMANDS = GROUP.commands  # type: ignore[attr-defined]


def help_of(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], columns: int, *words: str) -> str:
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setattr(sys, "argv", ["ffnbench", *words, "--help"])
    with pytest.raises(SystemExit):
        cli.main()
    return capsys.readouterr().out


@pytest.mark.parametrize("columns", [60, 120])
@pytest.mark.parametrize("command", [None, *COMMANDS])
def test_no_name_is_cut_and_no_line_too_long(monkeypatch, capsys, columns: int, command: str | None) -> None:
    text = help_of(monkeypatch, capsys, columns, *([command] if command else []))
    for param in (COMMANDS[command] if command else GROUP).params:
        for name in (param.opts[0], *param.secondary_opts[:1]) if param.param_type_name == "option" else ():
            assert re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", text), name
    assert "…" not in text
    assert "<bool>" not in text
    assert "{" not in text
    lines = text.splitlines()
    # an example is as long as it is, but for what can be wrapped between words
    assert max(map(len, lines)) <= columns
    assert not [line for line in lines if line != line.rstrip()]


@pytest.mark.parametrize("command", COMMANDS)
def test_three_examples_that_can_be_typed_and_a_place_to_read_on(command: str) -> None:
    told, _, place = COMMANDS[command].epilog.partition("\n\nMore: ")
    examples = [line.strip() for line in told.splitlines()[1:]]
    assert len(examples) == 3
    for example in examples:
        program, name, *words = shlex.split(example)
        assert (program, name) == ("ffnbench", command)
        context = COMMANDS[command].make_context(command, words)  # raises for what there is not
        context.close()
    path, _, heading = place.partition("#")
    headings = [line.lstrip("# ").lower() for line in (ROOT / path).read_text().splitlines() if line.startswith("#")]
    assert heading in {re.sub(r"[^\w -]", "", line).replace(" ", "-") for line in headings}


# Completion, asked for as the shells ask


def offered(shell: str, typed: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """What a shell is told, where `typed` stands before the cursor."""
    monkeypatch.setenv("_FFNBENCH_COMPLETE", f"complete_{shell}")
    if shell == "bash":
        words = words_of_bash(typed)
        monkeypatch.setenv("COMP_WORDS", "\n".join(words))
        monkeypatch.setenv("COMP_CWORD", str(len(words) - 1))
    else:
        monkeypatch.setenv("_TYPER_COMPLETE_ARGS", typed)
        monkeypatch.setenv("_TYPER_COMPLETE_FISH_ACTION", "get-args")
    monkeypatch.setattr(sys, "argv", ["ffnbench"])
    with pytest.raises(SystemExit):
        cli.main()
    lines = capsys.readouterr().out.splitlines()
    if shell == "zsh":  # _arguments '*: :(("name":"help"
        return [found[1] for line in lines if (found := re.search(r'"([^"]*)"', line))]
    return [line.partition("\t")[0] for line in lines]


def words_of_bash(typed: str) -> list[str]:
    """COMP_WORDS: bash breaks words at `@ = :` too, and each of these is a word; the last one is that at the cursor.

    Seen in bash 5.2. What it replaces by an answer begins with the last `@`, and behind the last `=` or `:`.
    """
    words = [part for word in typed.split() for part in re.split(r"([@=:]+)", word) if part]
    return [*words, ""] if typed.endswith(" ") else words


@pytest.fixture(autouse=True)
def nothing_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(cli.completing._OF_BASH, "prefix", "")


@pytest.mark.parametrize(
    "environment",
    [{"_FFNBENCH_COMPLETE": "zzz"}, {"_FFNBENCH_COMPLETE": "complete_zzz"}, {"_FFNBENCH_COMPLETE": "source_zzz"},
     {"_FFNBENCH_COMPLETE": "complete_bash"},
     {"_FFNBENCH_COMPLETE": "complete_bash", "COMP_WORDS": "ffnbench", "COMP_CWORD": "zz"},
     {"_FFNBENCH_COMPLETE": "complete_bash", "COMP_WORDS": "ffnbench cost --d", "COMP_CWORD": "-9"}],
)  # fmt: skip
def test_garbage_for_completion_is_2(environment: dict, monkeypatch, capsys: pytest.CaptureFixture[str]) -> None:
    """1 is a regression and nothing else."""
    for name in ("COMP_WORDS", "COMP_CWORD"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "argv", ["ffnbench"])
    with pytest.raises(SystemExit) as caught:
        cli.main()
    out, err = capsys.readouterr()
    assert (caught.value.code, out) == (2, "")
    assert re.search(r"^error: .*\nhint: .*\n$", err, re.MULTILINE)


def test_fish_hears_that_there_is_nothing_by_a_code_that_is_not_1(monkeypatch, capsys) -> None:
    asked = {"_FFNBENCH_COMPLETE": "complete_fish", "_TYPER_COMPLETE_FISH_ACTION": "is-args",
             "_TYPER_COMPLETE_ARGS": "ffnbench cost zzz"}  # fmt: skip
    for name, value in asked.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "argv", ["ffnbench"])
    with pytest.raises(SystemExit) as caught:
        cli.main()
    assert (caught.value.code, *capsys.readouterr()) == (2, "", "")


def test_a_shell_that_nobody_knows_is_2(tmp_path: Path) -> None:
    (tmp_path / "lines").write_text(f"{sys.executable} -m ffnbench --install-completion; exit $?\n")
    told = {**os.environ, "HOME": str(tmp_path), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(["sh", "lines"], cwd=tmp_path, env=told, capture_output=True, text=True, check=False)
    if "completion installed" in done.stdout:
        pytest.skip("sh is a shell that can be completed")
    assert done.returncode == 2
    assert "error: nothing can be completed for this shell" in done.stderr


@pytest.mark.parametrize(
    ("typed", "some", "none"),
    [
        ("ffnbench c", {"compare", "cost", "check"}, "list"),
        ("ffnbench compare --pre", {"--preset", "--precision"}, "--dtype"),
        ("ffnbench compare --variants ", {"relu", "swiglu", "llama3-8b"}, "d_ff="),
        ("ffnbench compare --variants swi", {"swiglu", "swish"}, "relu"),
        ("ffnbench compare --preset lla", {"llama3-8b"}, "bert-base"),
        ("ffnbench compare --config gpt", {"gpt2"}, "bert-base"),
        ("ffnbench compare --dtype fl", {"float32", "float64"}, "bfloat16"),
        ("ffnbench compare --mode ", {"forward", "train", "backward"}, "eager"),
        ("ffnbench compare --backend pack", {"packed", "packed-up-gate"}, "eager"),
        ("ffnbench cost --rule ll", {"llama"}, "palm"),
        ("ffnbench activations --activations ge", {"gelu", "gelu_tanh"}, "geglu"),
        ("ffnbench list r", {"rules"}, "presets"),
        ("ffnbench inspect mix", {"mixtral-8x7b"}, "gpt2"),
        ("ffnbench ab swi", {"swiglu"}, "relu"),
        ("ffnbench report --format m", {"markdown"}, "csv"),
    ],
)
def test_names_are_offered(typed: str, some: set, none: str, monkeypatch, capsys) -> None:
    shell = ("bash", "zsh", "fish")[len(typed) % 3]
    found = offered(shell, typed, monkeypatch, capsys)
    assert some <= set(found), found
    assert none not in found


@pytest.mark.parametrize(
    ("typed", "some", "bash"),
    [
        ("--variants relu,swi", "relu,swiglu", "relu,swiglu"),
        ("--variants mine=swi", "mine=swiglu", "swiglu"),
        ("--variants relu,swiglu@", "relu,swiglu@d_ff=", "@d_ff="),
        ("--variants relu,swiglu@d_", "relu,swiglu@d_ff=", "@d_ff="),
        ("--variants swiglu@bias=true@dt", "swiglu@bias=true@dtype=float32", "@dtype=float32"),
        ("--variants swiglu@dtype=", "swiglu@dtype=bfloat16", "bfloat16"),
        ("--variants swiglu@dtype=bf", "swiglu@dtype=bfloat16", "bfloat16"),
        ("--variants swiglu@backend=comp", "swiglu@backend=compile", "compile"),
        ("--backend eager,co", "eager,compile", "eager,compile"),
    ],
)
@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_lists_and_keys_are_offered_in_the_middle_of_a_value(
    shell: str, typed: str, some: str, bash: str, monkeypatch, capsys
) -> None:
    found = offered(shell, f"ffnbench compare {typed}", monkeypatch, capsys)
    assert (bash if shell == "bash" else some) in found
    assert not [one for one in found if one.count("@bias") > 1]


def test_bash_hands_over_a_flag_with_its_value(monkeypatch, capsys) -> None:
    assert "float32" in offered("bash", "ffnbench compare --dtype=fl", monkeypatch, capsys)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_there_is_a_script_for_each_shell(shell: str, monkeypatch, capsys) -> None:
    monkeypatch.setenv("_FFNBENCH_COMPLETE", f"source_{shell}")
    monkeypatch.setattr(sys, "argv", ["ffnbench"])
    with pytest.raises(SystemExit) as caught:
        cli.main()
    assert not caught.value.code
    assert f"complete_{shell}" in capsys.readouterr().out


def test_what_is_offered_needs_no_torch() -> None:
    code = (
        "import sys; sys.argv = ['ffnbench']\n"
        "from ffnbench.cli import main\n"
        "try: main()\n"
        "finally: assert not {'torch', 'numpy', 'pandas', 'matplotlib'} & set(sys.modules)"
    )
    shell = {"_FFNBENCH_COMPLETE": "complete_bash", "COMP_WORDS": "ffnbench ab swi", "COMP_CWORD": "2"}
    run = [sys.executable, "-c", code]
    done = subprocess.run(run, env={**os.environ, **shell}, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert "swiglu" in done.stdout
