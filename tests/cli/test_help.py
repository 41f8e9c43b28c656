"""`--help` at every width, its examples, and what a shell offers at TAB."""

from __future__ import annotations

import re
import sys

import pytest
from shell import COMMANDS, options_of

from ffnbench.app import main as cli


def test_every_flag_is_shown_whole_in_a_narrow_terminal(
    in_process, monkeypatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    for command in COMMANDS:
        _, text, _ = in_process(command, "--help")
        for option in options_of(command).values():
            for name in (option.opts[0], *option.secondary_opts[:1]):
                assert re.search(rf"(?<![\w-]){name}(?![\w-])", text), (command, name)
        told = text.partition("\nExamples:")[0]  # an example is as long as it is
        assert max(map(len, told.splitlines())) <= 60, command


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
        ("fish", "compare ", {"relu", "swiglu", "llama3-8b"}, "float32"),
        ("bash", "compare relu,swi", {"relu,swiglu"}, "swiglu"),
        ("fish", "compare --dtype bf16,fl", {"bf16,float32"}, "bf16,bfloat16"),
        ("zsh", "cost --match fl", {"flops"}, "params"),
        ("fish", "cost --preset mix", {"mixtral-8x7b"}, "gpt2"),
        ("bash", "list p", {"presets"}, "keys"),
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
