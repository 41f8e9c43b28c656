"""Whatever is typed, stands in a file or happens in a worker: what is promised of every
command holds.

The promises: an exit code that means what it says; no traceback; nothing that a
terminal obeys; one `error:` and at most one `hint:`, both short; no file but those that
were asked for, whole, and none at all where the code is 2; strict JSON, CSV with as
many cells in each row, XML that parses. Lines that are answered are drawn, and most are
then changed: a word, a flag, a letter, the JSON of a file that is read, the worker.
Real workers and signals: test_faults.py.
"""

from __future__ import annotations

import csv
import io
import itertools
import json
import math
import os
import random
import re
import shutil
import sys
import tempfile
import warnings
import xml.etree.ElementTree as xml
from collections.abc import Iterator
from contextlib import chdir
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from fake_machine import FakeLaunch, KnownProber, lost
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mutations import mutated
from paths import ROOT
from shell import COMMANDS

from ffnbench.app import main as cli
from ffnbench.common.errors import Unfinished
from ffnbench.report.store import read_report
from ffnbench.run import world

LONGEST_LINE = 520
# C0 but for the end of a line, C1, half surrogates, marks of direction, separators of
# lines, what is no character
OBEYED = re.compile(
    "[\x00-\x09\x0b-\x1f\x7f-\x9f\ud800-\udfff\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ufffe\uffff]"
)
WHOLE = {
    ".png": b"IEND\xaeB`\x82",
    ".pdf": b"%%EOF\n",
}  # how files end that are no text
LONG = "x" * 5000
EVIL = (
    "\x1b[31mred\x1b[0m", "two\nlines", "carriage\rreturn", "\x9b31m", "\u202eright", "[bold red]x[/]", "[/x]",
    "::error file=x::boo", "<script>alert(1)</script>", "a|b", "$\\frac{1}{0}$", "\udcff", LONG, "", "日本語", "=1+1",
    "--", "a\nTraceback (most recent call last):\n", "%s%d{0}", "'", "../..", "~",
)  # fmt: skip
NUMBERS = (
    "0", "-1", "nan", "inf", "1e400", "1e-400", "1" * 400, "0x10", "３", "²", "1_0", "1.5", "1,2", "1e",
    "9223372036854775808", "3%",
)  # fmt: skip
FORMS = (
    "relu", "gelu", "swiglu", "bilinear", "swish@beta=0.5", "silu@gate=output", "b=relu@dropout=0.1",
    "l=swiglu@rule=llama", "t=relu@mode=train", "h16=swiglu@dtype=bf16@batch=2@seq_len=16", "[/x]=gelu", "日本=silu",
    "$x$=gelu", "s=relu@moe=4x1@shared=16@routing=skewed", "own=mlp.py:Net@d_ff=32",
)  # fmt: skip
OUTPUTS = (
    "out.csv",
    "out.json",
    "out.md",
    "OUT.CSV",
    "a b.csv",
    "é\u202e.json",
    "here/../out.csv",
    "kept.json",
    "o/",
)
BAD_OUTPUTS = (
    "out.xlsx", "out", "no/where.csv", "folder.csv", LONG + ".csv", ".", "kept.json/x.csv", "baseline.json",
    "a\x1b[31m.csv", "mlp.py",
)  # fmt: skip
# what is valid for a flag wherever it may be typed
VALUES: dict[str, tuple[str, ...]] = {
    "--variants": FORMS, "--preset": ("gpt2", "mixtral-8x7b"), "-o": (*OUTPUTS, *BAD_OUTPUTS), "--d-ff": ("64", "100"),
    "--d-model": ("16", "768"), "--batch": ("7",), "--seq-len": ("1", "16", "1,128"),
    "--threads": ("1", "3"), "--dtype": ("float32", "bf16"), "--mode": ("train", "backward"), "--backend": ("compile",),
    "--workers": ("3", "5"), "--rounds": ("2", "6"), "--precision": ("50",), "--seed": ("77130259",),
    "--match": ("flops", "none"), "--metrics": ("latency,memory", "memory,sparsity"),
    "--format": ("csv", "json", "markdown", "github"), "--tolerance": ("latency=5%", "params=1%"),
    "--on-unclear": ("fail",), "-v": ("",),
}  # fmt: skip
ANSWERED = """
    compare relu,own=mlp.py:Net --d-model 64 --workers 3 --rounds 6
    compare swiglu,s=relu@moe=4x1 --d-model 64 --workers 3 --rounds 6
    compare relu,gelu --d-model 64 --seq-len 16,128 --quick
    compare relu --d-model 64 --metrics memory
    compare --preset gpt2 --quick
    cost --preset gpt2
    cost relu,swiglu --match flops --seq-len 1,16
    cost --preset mixtral-8x7b
    block --d-model 64 --heads 2 --seq-len 16 --workers 3
    block --preset gpt2 --cost-only
    check baseline.json
    check baseline.json again.json
    check baseline.json --exact-only
    check baseline.json --update
    check baseline.json -o out.xml
    check baseline.json -f github
    report baseline.json
    report groups.json
    report failed.json
    ab swiglu --base-env A:1 --d-model 64
    activations relu,gelu
    inspect gpt2
    inspect gpt2
    list keys
    list presets --json
    env
"""
LINES = [line.split() for line in ANSWERED.strip().splitlines()]
LINES = [
    words for words in LINES if words[0] in COMMANDS
]  # a feature may have been deleted
FILES: dict[str, bytes | None] = {  # None: a folder
    "mlp.py": b"", "kept.json": b'{"a file": "of somebody"}', "folder.csv/x": b"x", "here": None,
    "llama.json": json.dumps({
        "model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
        "hidden_act": "silu", "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 100,
        "attention_bias": False, "mlp_bias": False,
    }).encode(),
    **{path.name: path.read_bytes() for path in sorted((ROOT / "tests" / "golden" / "runs").glob("*.json"))},
}  # fmt: skip
BROKEN = (
    b"", None, b"\xff\xfe", b"\xef\xbb\xbf{}", b"null", b"[1]", b"[" * 100_000, b'{"a":' * 5000, b'{"plan": NaN}',
    b'{"plan": 1e400}', b'{"plan": ' + b"1" * 5000 + b"}",
)  # fmt: skip
OF_A_CASE = ("open", "sample", "memory", "sparsity")
REQUESTS = [
    (request, label) for request in OF_A_CASE for label in ("relu", "gelu", "swiglu")
]


@dataclass
class Typed:
    """One command line with all that it meets."""

    words: list[str]
    encoding: str
    columns: str
    changed: dict[str, bytes | None] = field(default_factory=dict)  # of FILES
    scatter: float = 0.002
    trouble: dict[tuple[str, str | None], Any] = field(default_factory=dict)


def changed_json(text: bytes | None, seed: int) -> bytes:
    """A file of ours with one place changed."""
    changed, _ = mutated(json.loads(text or b""), random.Random(seed))
    return json.dumps(changed).encode()


@st.composite
def typed_lines(draw: st.DrawFn) -> Typed:
    """A line that is answered, or one that was changed in up to three ways."""
    line = Typed(
        [*draw(st.sampled_from(LINES))],
        encoding=draw(st.sampled_from(("utf-8", "utf-8", "ascii", "latin-1"))),
        columns=draw(st.sampled_from(("80", "1", "0", "20", "200", "-3", "x"))),
        scatter=draw(st.sampled_from((0.002, 0.02, 0.0, 3.0))),
    )
    anything = st.sampled_from((*NUMBERS, *EVIL)) | st.text(max_size=8)
    for _ in range(draw(st.integers(0, 3))):
        way = draw(
            st.sampled_from(
                ("word", "flag", "output", "letters", "key", "file", "trouble")
            )
        )
        place = draw(st.integers(0, len(line.words) - 1))
        word = line.words[place]
        read = [name for name in line.words if name in FILES and name.endswith(".json")]
        if way == "word":
            line.words[place : place + 1] = draw(
                st.lists(anything, min_size=int(place == 0), max_size=1)
            )
        elif way == "flag":
            name = draw(st.sampled_from(sorted(VALUES)))
            line.words += [name, draw(st.sampled_from(VALUES[name]) | anything)]
        elif way == "output":
            line.words += ["-o", draw(st.sampled_from(OUTPUTS))]
        elif way == "letters":
            cut = draw(st.integers(0, len(word)))
            line.words[place] = (
                word[:cut]
                + draw(st.text("@=,:/.-_ x[]{}%$\\'\"~*\n\x1b²é019", max_size=2))
                + word[cut:]
            )
        elif way == "key":
            key = draw(
                st.sampled_from(
                    (
                        "d_ff",
                        "bias",
                        "beta",
                        "up",
                        "up_limit",
                        "subnorm",
                        "gate",
                        "moe",
                        "dtype",
                        "backend",
                        "mode",
                        "x",
                    )
                )
            )
            line.words[place] = f"{word}@{key}={draw(anything)}"
        elif way == "file" and read:
            name = draw(st.sampled_from(read))
            broken = draw(st.integers(0, 4)) == 0
            line.changed[name] = (
                draw(st.sampled_from(BROKEN))
                if broken
                else changed_json(FILES[name], draw(st.integers(0, 9999)))
            )
        else:
            problem = draw(
                st.sampled_from(("oom", "unsupported", "crash", KeyboardInterrupt()))
                | st.builds(
                    lost, st.sampled_from(("crash", "timeout")), st.sampled_from(EVIL)
                )
                | st.builds(Unfinished, st.sampled_from(EVIL), st.just("a hint"))
            )
            line.trouble[draw(st.sampled_from(REQUESTS))] = problem
    line.words = [
        word.replace("\0", "") for word in line.words
    ]  # no argument of a process holds one
    return line


class Driven:
    """What became of a line: exit code, streams, files before and after; it runs in a
    folder of its own.
    """

    def __init__(self, line: Typed, root: Path) -> None:
        self.line, self.work, self.temporary = line, root / "w", root / "tmp"
        for folder in (self.work, self.temporary):
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
        for name, content in (FILES | line.changed).items():
            path = self.work / name
            (path if content is None else path.parent).mkdir(
                parents=True, exist_ok=True
            )
            if content is not None:
                path.write_bytes(content)
        self.before = self.files()
        environment = {
            "PATH": os.environ["PATH"], "HOME": str(root), "TMPDIR": str(self.temporary), "COLUMNS": line.columns,
            "XDG_STATE_HOME": os.environ["XDG_STATE_HOME"],
        }  # fmt: skip
        raw = io.BytesIO(), io.BytesIO()
        out, err = (
            io.TextIOWrapper(stream, encoding=line.encoding, newline="\n")
            for stream in raw
        )
        with (
            chdir(self.work), patch.dict(os.environ, environment, clear=True), patch.object(tempfile, "tempdir", None),
            patch.object(sys, "argv", ["ffnbench", *line.words]), patch.object(sys, "stdout", out),
            patch.object(sys, "stderr", err), patch.object(world, "this_machine", self.machine),
            warnings.catch_warnings(action="error"), pytest.raises(SystemExit) as end,
        ):  # fmt: skip
            cli.main()
        for stream in (out, err):
            stream.flush()
        self.code = end.value.code or 0
        self.out, self.err = (stream.getvalue().decode(line.encoding) for stream in raw)
        self.after = self.files()

    def machine(self) -> world.World:
        """Workers that are not real, by a clock of their own."""
        dice, ticks = random.Random(0), itertools.count(step=0.005)
        launch = FakeLaunch(
            lambda *_: 0.01 * math.exp(dice.gauss(0, self.line.scatter)),
            self.line.trouble,
        )
        return world.World(launch=launch, prober=KnownProber, now=lambda: next(ticks))

    def files(self) -> dict[Path, bytes | None]:
        """All that there is, but the folder that torch makes for its compiler."""
        found = [path for top in (self.work, self.temporary) for path in top.rglob("*")]
        return {
            path: path.read_bytes() if path.is_file() else None
            for path in found
            if not path.name.startswith("torchinductor_")
        }

    def named(self) -> set[Path]:
        """The files that the line names as outputs."""
        words = self.line.words
        texts = [
            value
            for flag, value in itertools.pairwise(words)
            if flag in ("-o", "--out")
        ]
        texts += [word.partition("=")[2] for word in words if word.startswith("--out=")]
        texts += [word[2:] for word in words if word.startswith("-o")]
        if "--update" in words:
            texts += words[1:]
        return {
            Path(os.path.abspath(self.work / os.path.expanduser(text)))
            for text in texts
        }


def in_content(suffix: str, content: bytes) -> None:
    """A file of ours is whole."""
    if suffix in WHOLE:
        assert content.endswith(WHOLE[suffix])
        return
    text = content.decode()
    assert text
    assert not OBEYED.search(text)
    if suffix == ".json":
        json.loads(text, parse_constant=pytest.fail, object_pairs_hook=each_once)
    elif suffix == ".csv":
        rows = list(csv.reader(io.StringIO(text, newline=""), strict=True))
        assert len({len(row) for row in rows}) == 1
        assert len({*rows[0]}) == len(rows[0])
    elif suffix in (".svg", ".xml"):
        xml.fromstring(text)


def each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    assert len(dict(pairs)) == len(pairs)
    return dict(pairs)


def in_streams(done: Driven) -> None:
    words = done.line.words
    decides = words[0] in ("check", "ab")
    assert done.code in (0, 1, 2, 3, 4, 130)
    assert done.code != 1 or (decides and "REGRESSED" in re.sub(r"\s", "", done.out))
    assert done.code != 4 or (decides and any("fail" in word for word in words))
    assert done.code != 2 or not done.out
    lines = done.err.split("\n")
    errors = [line for line in lines if line.startswith("error: ")]
    hints = [line for line in lines if line.startswith("hint: ")]
    assert "Traceback (most recent call last):" not in lines
    assert "this is a bug" not in done.err
    assert all(len(line) <= LONGEST_LINE for line in errors + hints)
    assert done.code != 2 or len(errors) == 1
    assert done.code != 0 or not errors
    assert done.code == 1 or max(len(errors), len(hints)) <= 1
    for text in (done.out, done.err):
        assert not OBEYED.search(text)
    form = [
        value for flag, value in itertools.pairwise(words) if flag in ("--format", "-f")
    ][-1:]
    if done.code == 0 and form in (["json"], ["csv"]) and "--help" not in words:
        in_content(f".{form[0]}", done.out.encode())


def changes(done: Driven) -> Iterator[Path]:
    for path in done.before.keys() | done.after.keys():
        if (path in done.before) != (path in done.after) or done.before.get(
            path
        ) != done.after.get(path):
            yield path


def in_files(done: Driven) -> None:
    """Only what was asked for is written, and whole; what a run that could not finish
    leaves behind is told.
    """
    named = done.named()
    for path in changes(done):
        assert done.code != 2, path
        assert path in done.after, path
        content = done.after[path]
        if path.is_relative_to(done.temporary):
            assert done.code == 3, path
            assert path.name in done.err
        elif content is None:
            assert any(output.is_relative_to(path) for output in named), path
        else:
            assert {path, path.parent} & named, path
            in_content(path.suffix.lower(), content)
            if content.startswith(b'{\n "plan"'):
                read_report(path)


def holds(line: Typed) -> None:
    with tempfile.TemporaryDirectory(prefix="promises-") as folder:
        done = Driven(line, Path(folder).resolve())
        in_streams(done)
        in_files(done)


@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow])
@given(typed_lines())
def test_no_line_breaks_a_promise(line: Typed) -> None:
    holds(line)


@pytest.mark.slow
@settings(max_examples=3000, suppress_health_check=[HealthCheck.too_slow])
@given(typed_lines())
def test_no_line_of_many_breaks_a_promise(line: Typed) -> None:
    holds(line)
