"""`ffnbench bisect`: the posterior against brute force, and real repositories whose
timing alone is scripted.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import random
import re
import shutil
from pathlib import Path

import gate_world
import pytest
from fake_machine import FakeLaunch, KnownProber
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from repositories import MODULE, TARGET, git

from ffnbench.cli.commands import FILES, options_of
from ffnbench.common.errors import FfnbenchError
from ffnbench.extras.bisect.posterior import (
    NO_STEP,
    STEP_SD,
    ProbeResult,
    posterior_of,
    result_of,
)
from ffnbench.plan import THIS_INTERPRETER, Arm, Case
from ffnbench.result import Agreement

SMALL = ("--d-model", "16", "--seq-len", "32", "--threads", "1")


def by_brute_force(count: int, probes: list[ProbeResult]) -> list[float]:
    """The posterior by the plain rule of Bayes: every commit, and every size of the
    step on a fine grid.
    """
    grid = [STEP_SD * (place - 1500) / 250 for place in range(3001)]

    def likelihood(first: int, step: float) -> float:
        return math.prod(
            math.exp(-(((p.log - step * (p.commit >= first)) / p.error) ** 2) / 2)
            for p in probes
        )

    weights = [math.exp(-((step / STEP_SD) ** 2) / 2) for step in grid]
    probabilities = [NO_STEP * likelihood(count + 1, 0.0)]
    for first in range(1, count + 1):
        mean = math.fsum(
            w * likelihood(first, s) for w, s in zip(weights, grid, strict=True)
        ) / math.fsum(weights)
        probabilities.append((1 - NO_STEP) / count * mean)
    return [chance / math.fsum(probabilities) for chance in probabilities]


def test_the_posterior_is_that_of_bayes() -> None:
    measured = ((6, 0.05, 0.012), (3, 0.01, 0.02), (5, 0.045, 0.01), (3, -0.004, 0.015))
    probes = [ProbeResult(*one) for one in measured]
    for known in (probes[:1], probes):
        assert posterior_of(6, known).probabilities == pytest.approx(
            by_brute_force(6, known), rel=1e-6
        )


def test_the_next_commit_is_the_one_that_tells_most() -> None:
    """Held against the entropy that is to be expected after a probe, by a thousand
    simulated answers a commit.
    """
    known, dice = (
        [ProbeResult(12, 0.05, 0.008), ProbeResult(6, 0.012, 0.015)],
        random.Random(1),
    )
    posterior = posterior_of(12, known)

    def entropy(commit: int) -> float:
        found = 0.0
        for _ in range(300):
            first = dice.choices(range(13), posterior.probabilities)[0] or 13
            log = dice.gauss(0.05 * (commit >= first), 0.01)
            after = posterior_of(
                12, [*known, ProbeResult(commit, log, 0.01)]
            ).probabilities
            found -= math.fsum(chance * math.log(chance) for chance in after if chance)
        return found / 300

    expected = [entropy(commit) for commit in range(1, 13)]
    assert expected[posterior.next_probe - 1] < min(expected) + 0.05
    assert posterior_of(12, []).next_probe == 12


def simulated(dice: random.Random, step: float, worst: float) -> str:
    """A bisect of 64 commits by probes whose errors are drawn, within 10 of them."""
    truth = dice.randint(1, 64) if step else 65
    probes: list[ProbeResult] = []
    for _ in range(10):
        commit = posterior_of(64, probes).next_probe
        error = math.exp(dice.uniform(math.log(0.005), math.log(worst)))
        log = (
            math.log1p(step) * (commit >= truth)
            + dice.gauss(0, error)
            + dice.gauss(0, 0.0045)
        )
        probes.append(
            result_of(commit, math.exp(log - 2 * error), math.exp(log + 2 * error))
        )
        posterior = posterior_of(64, probes)
        if posterior.without_step(0.03):
            return "none"
        if found := posterior.first_slow():
            return "found" if truth in found else "wrong"
    return "open"


@pytest.mark.parametrize(("step", "answer"), [(0.05, "found"), (0.0, "none")])
def test_a_step_is_found_in_nineteen_of_twenty(step: float, answer: str) -> None:
    told = [simulated(random.Random(2 * seed), step, 0.012) for seed in range(40)]
    assert told.count(answer) >= 38, told


def test_a_probe_has_to_tell_a_step_from_none_and_the_last_commit_from_its_limit() -> (
    None
):
    assert posterior_of(8, []).tolerance(0.02) == 0.02
    wide, narrow = (
        posterior_of(8, [ProbeResult(8, math.log1p(step), 0.001)])
        for step in (0.2, 0.03)
    )
    assert wide.next_probe == narrow.next_probe != 8
    assert wide.tolerance(0.02) == pytest.approx(
        0.1, rel=0.01
    )  # as far from 0 as from 20 %
    assert narrow.tolerance(0.04) == 0.02  # no step below the limit is looked for


def test_a_commit_that_can_not_be_probed_stays_with_the_next_one() -> None:
    known = [
        ProbeResult(8, 0.05, 0.003),
        ProbeResult(3, 0.0, 0.003),
        ProbeResult(5, 0.05, 0.003),
    ]
    posterior = posterior_of(8, known, skipped={4, 7})
    assert posterior.groups[3:] == (range(4, 6), range(6, 7), range(7, 9))
    assert posterior.first_slow() == range(4, 6)
    assert posterior_of(8, known[:2]).credible_range.stop - 1 == 8


def test_no_step_is_said_only_where_the_whole_interval_is_below_the_limit() -> None:
    """+2 % with a standard error of 1 % may well be +3 %; with one of 0.2 % it is
    not.
    """
    unsure, sure = (
        posterior_of(4, [ProbeResult(4, 0.02, error)]) for error in (0.01, 0.002)
    )
    assert not unsure.without_step(0.03)
    assert sure.without_step(0.03)


class Revisions(FakeLaunch):
    """Workers whose time is what the checked out file says."""

    def __init__(self) -> None:
        self.seconds_of_head, self.measured = 0.01, []
        machine = gate_world.machine(scatter=0.002)
        super().__init__(
            lambda label, *of: machine.seconds(label, *of) * self.factor(label)
        )

    def factor(self, label: str) -> float:
        return self.seconds_of_head / 0.004 if label == "SwiGLU" else 1.0

    def __call__(self, arm: Arm = THIS_INTERPRETER) -> object:
        if arm.name == "head":
            text = Path(arm.source, "mypkg", "mlp.py").read_text()
            self.seconds_of_head = float(re.search(r"SECONDS = ([0-9.]+)", text)[1])
            self.measured.append(self.seconds_of_head)
        return super().__call__(arm)


class Reads(KnownProber):
    """Looks at the file: `broken` can't be imported, `changed` computes something
    else.
    """

    def within(self, arm: Arm) -> KnownProber:
        return Reads(1.0, arm) if arm != THIS_INTERPRETER else self

    def origin(self, target: str) -> Path:
        found = super().origin(target)
        if self._arm.source and "not_there" in found.read_text():
            raise FfnbenchError(
                f"{self._arm.name}: cannot import 'mypkg.mlp': ModuleNotFoundError", ""
            )
        return found

    def compare_output(self, case: Case, seed: int, folder: str) -> Agreement:
        apart = "gelu" in Path(self._arm.source, "mypkg", "mlp.py").read_text()
        return Agreement(error=0.4 if apart else 1e-7, tolerance=1e-4, exact_error=None)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """16 commits after v1.0: the 11th is slower by 8 %, the 8th can't be imported, from
    the 12th on it is gelu.
    """
    folder = tmp_path_factory.mktemp("sixteen")
    git(folder, "init", "-q")
    file = folder / "mypkg" / "mlp.py"
    file.parent.mkdir()
    (folder / "mypkg" / "__init__.py").touch()
    for number in range(17):
        text = MODULE.format(
            seconds=0.00432 if number >= 11 else 0.004,
            act="gelu" if number >= 12 else "silu",
        )
        file.write_text(f"{text}# {number}\n{'import not_there' * (number == 8)}\n")
        git(folder, "add", ".")
        git(folder, "commit", "-qm", f"change {number}")
        git(folder, "tag", f"c{number}")
    git(folder, "tag", "v1.0", "c0")
    git(folder, "checkout", "-qb", "aside", "c3")
    git(folder, "commit", "-qm", "aside", "--allow-empty")
    git(folder, "checkout", "-q", "main")
    return folder


@pytest.fixture
def kept(made: Path) -> Path:
    """Where results of probes are kept; none are at first."""
    path = made / ".git" / "ffnbench" / "bisect.jsonl"
    path.unlink(missing_ok=True)
    return path


@pytest.fixture
def call(on_fakes, made: Path, kept: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(made)

    def run(*arguments: object, launch: FakeLaunch):
        return on_fakes(
            "bisect", TARGET, *arguments, *SMALL, launch=launch, prober=Reads
        )

    return run


def test_the_commit_is_found_and_kept(call, made: Path) -> None:
    launch = Revisions()
    code, out, err = call("--good v1.0 --tolerance 3%", launch=launch)
    short = git(made, "rev-parse", "--short", "c11")
    assert code == 0, err
    assert f"first slow commit: {short} change 11 (n, " in out
    assert f"git show {short}" in out
    assert re.search(r"\+8\.\d% \[\+[67]\.\d%, \+(8|9)\.\d%\]", out)
    assert "skipped" in out
    assert "cannot import 'mypkg.mlp'" in err
    assert re.search(
        r"probe 1 of at most 20: \w+ \+8.*; 1[56] of 16 left",
        err.replace(" commits", ""),
    )
    assert 4 <= len(set(re.findall(r"probe (\d+) of at most", err))) <= 8
    again = Revisions()
    code, told, err = call("--good v1.0 --bad HEAD --tolerance 3% --json", launch=again)
    assert (code, again.measured) == (0, []), err
    found = json.loads(told)
    assert (found["answer"], found["commits"]) == (
        "found",
        [git(made, "rev-parse", "c11")],
    )
    assert found["change_low"] < 1.08 < found["change_high"]
    assert not re.search(
        "of earlier", call("--good c1 --bad c2 --tolerance 3%", launch=Revisions())[2]
    )


@pytest.fixture
def two_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with two folders, each with its mypkg, and 8 commits after c0. That
    of `one` is slower from c6 on and is missing in c4, that of `other` from c2 on.
    """
    git(tmp_path, "init", "-q")
    for number in range(9):
        for name, first_slow in (("one", 6), ("other", 2)):
            package = tmp_path / name / "mypkg"
            package.mkdir(parents=True, exist_ok=True)
            seconds = 0.00432 if number >= first_slow else 0.004
            text = MODULE.format(seconds=seconds, act="silu")
            (package / "mlp.py").write_text(f"{text}# {number}\n")
        if number == 4:
            shutil.rmtree(tmp_path / "one")
        git(tmp_path, "add", "-A")
        git(tmp_path, "commit", "-qm", f"change {number}")
        git(tmp_path, "tag", f"c{number}")
    monkeypatch.chdir(tmp_path / "one")
    return tmp_path


def bisected_in(on_fakes, folder: Path) -> tuple[str, str]:
    """The answer in a folder, and what was told on stderr."""
    with contextlib.chdir(folder):
        flags = ("--good c0 --tolerance 3%", *SMALL)
        code, out, err = on_fakes(
            "bisect", TARGET, *flags, launch=Revisions(), prober=Reads
        )
    assert code == 0, err
    return out, err


def test_a_commit_without_the_folder_is_probed_once(
    two_folders: Path, on_fakes
) -> None:
    out, err = bisected_in(on_fakes, two_folders / "one")
    assert err.count("has no folder 'one/'") == 1
    assert f"first slow commit: {git(two_folders, 'rev-parse', '--short', 'c6')}" in out


def test_a_target_of_the_same_name_in_another_folder_is_another_one(
    two_folders: Path, on_fakes
) -> None:
    bisected_in(on_fakes, two_folders / "one")
    out, err = bisected_in(on_fakes, two_folders / "other")
    assert "of earlier bisects" not in err
    assert f"first slow commit: {git(two_folders, 'rev-parse', '--short', 'c2')}" in out
    assert "of earlier bisects" in bisected_in(on_fakes, two_folders / "other")[1]


def test_no_samples_of_a_probe_are_kept_beside_the_answer(call, tmp_path: Path) -> None:
    """A journal, were the command killed, would show the samples of one probe as if
    they were the answer.
    """
    beside: set[str] = set()

    class Looking(Revisions):
        def __call__(self, arm: Arm = THIS_INTERPRETER) -> object:
            beside.update(path.name for path in tmp_path.iterdir())
            return super().__call__(arm)

    call(
        "--good v1.0 --tolerance 3% --probes 1 -o",
        tmp_path / "found.json",
        launch=Looking(),
    )
    assert beside <= {"found.json"}
    assert [path.name for path in tmp_path.iterdir()] == ["found.json"]


def test_a_file_may_set_its_flags() -> None:
    """None of them runs, writes or trusts anything that a command line did not name."""
    of_core = {name for one in FILES for name in options_of(one)}
    assert options_of("bisect").keys() - of_core == {"good", "bad", "probes"}


def test_a_range_without_a_step_is_called_so(call) -> None:
    code, out, err = call("--good v1.0 --bad c10 --tolerance 3%", launch=Revisions())
    assert code == 0, err
    assert "c10 is not slower than v1.0 by more than 3.0%" in out
    assert "v1.0 is too: name an older one as --good" in out


def test_the_budget_of_probes_ends_with_what_is_left(call) -> None:
    code, out, err = call("--good v1.0 --tolerance 3% --probes 2", launch=Revisions())
    assert code == 3
    assert re.search(
        r"the first slow commit is one of \d+: \w+ to \w+ \(95%\) the likeliest is \w+ change \d+ \(",
        out,
    )
    assert "the same command again goes on from here" in err


def test_an_interruption_keeps_what_was_probed(call, kept: Path) -> None:
    class Stopped(Revisions):
        def __call__(self, arm: Arm = THIS_INTERPRETER) -> object:
            if len(self.measured) > 6:
                raise KeyboardInterrupt
            return super().__call__(arm)

    code, out, _ = call("--good v1.0 --tolerance 3%", launch=Stopped())
    lines = kept.read_text().splitlines()
    assert (code, "is one of" in out, len(lines) >= 1) == (130, True, True)


ENDS = st.sampled_from(
    (None, "1.2", -1.0, 0.0, 5e-324, 0.9, 1.3, 1.79e308, math.nan, math.inf, True)
)
NO_TEXT = st.sampled_from((3, ["x"], {"x": 1}))
EDITS = st.one_of(
    st.fixed_dictionaries({"low": ENDS, "high": ENDS}),
    st.fixed_dictionaries({}, optional={"skipped": NO_TEXT, "commit": NO_TEXT}).filter(
        bool
    ),
    st.just({"skipped": "x"}),  # and measured
).filter(
    lambda edit: (
        (edit.get("low"), edit.get("high")) not in [(0.9, 1.3), (0.9, 0.9), (1.3, 1.3)]
    )
)


@pytest.fixture
def probed(call, kept: Path) -> dict:
    """What is kept of a probe of the last commit."""
    call("--good v1.0 --tolerance 3% --probes 1", launch=Revisions())
    return json.loads(kept.read_text())


@given(edit=EDITS)
@settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_line_that_was_edited_is_none(
    call, made: Path, kept: Path, probed: dict, edit: dict[str, object]
) -> None:
    kept.write_text(json.dumps(probed | edit) + "\n")
    code, told, err = call(
        "--good v1.0 --bad HEAD --tolerance 3% --json", launch=Revisions()
    )
    assert (code, "of earlier bisects" in err) == (0, False), err
    assert json.loads(told)["commits"] == [git(made, "rev-parse", "c11")]


def test_commits_that_are_all_said_to_be_skipped_leave_the_last_one(
    call, made: Path, kept: Path, probed: dict
) -> None:
    line = probed | {"skipped": "x", "low": None, "high": None}
    every = [
        line | {"commit": git(made, "rev-parse", f"c{number}")}
        for number in range(1, 17)
    ]
    kept.write_text("".join(json.dumps(one) + "\n" for one in every))
    code, out, err = call("--good v1.0 --tolerance 3%", launch=Revisions())
    assert (code, "the first slow commit is one of 16" in out) == (0, True), err


@pytest.mark.parametrize("kind", ["a pipe", "a folder", "no text"])
def test_what_is_no_file_of_probes_is_passed_over(call, kept: Path, kind: str) -> None:
    kept.parent.mkdir(exist_ok=True)
    if kind == "a pipe":
        os.mkfifo(kept)
    elif kind == "a folder":
        kept.mkdir()
    else:
        kept.write_bytes(b"\xff\xfe\0{[" * 1000 + b"[" * 100_000)
    try:
        assert call("--good v1.0 --tolerance 3% --probes 1", launch=Revisions())[0] == 3
    finally:
        (kept.rmdir if kind == "a folder" else kept.unlink)()


@pytest.mark.parametrize(
    ("arguments", "error", "hint"),
    [
        ("--good aside", "'HEAD' does not come after 'aside'", "where the two part"),
        (
            "--good c8",
            "c8 can't be measured: cannot import 'mypkg.mlp'",
            "another one as --good",
        ),
    ],
)
def test_mistakes_are_found_before_measuring(
    call, arguments: str, error: str, hint: str
) -> None:
    launch = Revisions()
    code, out, err = call(arguments, launch=launch)
    assert (code, out, launch.log) == (2, "", [])
    assert error in err.splitlines()[0]
    assert hint in err.splitlines()[1]


def test_a_name_that_is_mistyped_is_told_before_measuring(
    made: Path, on_fakes, monkeypatch
) -> None:
    class Mistyped(Reads):
        def within(self, arm: Arm) -> KnownProber:
            return Mistyped(1.0, arm) if arm != THIS_INTERPRETER else self

        def origin(self, target: str) -> Path:
            raise FfnbenchError(
                f"{self._arm.name}: 'mypkg.mlp' has no 'SwiGLUU'",
                "did you mean 'SwiGLU'?",
            )

    monkeypatch.chdir(made)
    launch = Revisions()
    code, _, err = on_fakes(
        "bisect", f"{TARGET}U", "--good v1.0", *SMALL, launch=launch, prober=Mistyped
    )
    assert (code, launch.measured, "did you mean 'SwiGLU'?" in err) == (2, [], True)
