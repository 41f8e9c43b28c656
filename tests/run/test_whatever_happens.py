"""Whatever happens to a run, in any order: it is interrupted or killed, loses workers,
stands beside load, and goes on. Its file is held against what the workers gave.
"""

from __future__ import annotations

import io
import itertools
import shutil
import signal
import sys
import tempfile
from collections import Counter
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest
from fake_machine import lost
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule
from simulated import ENVIRONMENT
from slow_machine import SAMPLE_S, Machine, latest

from ffnbench.app import main as cli
from ffnbench.record.result import FailureKind, Report, Sample
from ffnbench.report import files as run_file
from ffnbench.report.store import read_report
from ffnbench.run import world

HOW = "compare relu swiglu --d-model 32 --threads 1 --metrics latency -q"
WORKERS, ROUNDS = 3, 2
FIXED = f"--workers {WORKERS} --rounds {ROUNDS}"
KINDS = {
    "a cell": FIXED,
    "a sweep": f"{FIXED} --seq-len 1,2,4",
    "several runs": f"{FIXED} --runs 3",
    "runs of a sweep": f"{FIXED} --runs 2 --seq-len 1,2",
    "a budget": "--budget 12",
    "a sweep in a budget": "--budget 24 --seq-len 1,2",
}
BUDGETS_S = {"a budget": 12, "a sweep in a budget": 24}
SERIAL = itertools.count()  # no two samples, and no two processes, are the same


class Scripted(Machine):
    """Something happens at samples of these numbers."""

    def __init__(
        self,
        file: Path,
        events: dict[int, str],
        slower: int = 1,
        stuck: str = "",
        since: float = 0.0,
    ) -> None:
        super().__init__(slower, lambda what, now: what == stuck and now >= since)
        self.file, self.events, self.seconds = file, events, self.give
        self.asked = 0
        self.process = 0
        # the case of each sample that was recorded, and the process that gave it
        self.given: dict[float, tuple[str, int]] = {}
        self.whole: set[float] = set()  # of the workers before this one
        self.happened: list[str] = []
        self.left: bytes | None = None  # the file when the run was killed

    def give(self, label: str, worker: int, number: int) -> float:
        self.asked += 1
        event = self.events.get(self.asked, "")
        if event:
            self.happened.append(event)
        if event == "kill":
            self.left = self.file.read_bytes() if self.file.exists() else None
        if event in ("kill", "interrupt"):
            raise KeyboardInterrupt
        if event == "terminate":
            signal.raise_signal(signal.SIGTERM)
        if event == "lose":
            raise lost("crash")
        value = SAMPLE_S / 3 * self.slower * (1 + 1e-9 * next(SERIAL))
        if number >= 0:
            self.given[value] = label, self.process
        return value

    def began(self) -> None:
        """Called when a worker begins: what was given before is whole."""
        self.whole = set(self.given)
        self.process = next(SERIAL)


def latencies(report: Report) -> list[Sample]:
    return [one for one in report.samples if one.metric == "latency"]


def values_of(report: Report) -> Counter[float]:
    return Counter(one.value for one in latencies(report))


class Happening(RuleBasedStateMachine):
    """One file, and a command that goes on with it again and again."""

    @initialize(kind=st.sampled_from(sorted(KINDS)))
    def begin(self, kind: str) -> None:
        self.kind, self.folder = kind, Path(tempfile.mkdtemp())
        self.file = self.folder / "a.json"
        self.words = [
            *HOW.split(),
            *KINDS[kind].split(),
            "--resume",
            "-o",
            str(self.file),
        ]
        self.given: dict[float, tuple[str, int]] = {}
        self.is_done = self.has_lost = False

    def teardown(self) -> None:
        if hasattr(self, "folder"):
            shutil.rmtree(self.folder)

    @rule(
        events=st.dictionaries(
            st.integers(1, 50),
            st.sampled_from(["kill", "interrupt", "terminate", "lose"]),
            max_size=2,
        ),
        slower=st.sampled_from([1, 3, 30, 1000]),
        stuck=st.sampled_from(["", "start", "open", "sample", "check", "begin"]),
        since=st.sampled_from([0.0, 4.0, 9.0]),
    )
    def go_on(
        self, events: dict[int, str], slower: int = 1, stuck: str = "", since: float = 0
    ) -> None:
        """`slower` is the load beside it, `stuck` what never ends since then."""
        if self.kind in BUDGETS_S:
            machine = Scripted(self.file, events, slower, stuck, since)
        else:
            machine = Scripted(self.file, events)
        before = self.runs()
        code = self.command(machine)
        ends = [one for one in machine.happened if one != "lose"]
        if "kill" in ends:
            self.restore(machine.left)
        self.given |= machine.given
        self.has_lost |= "lose" in machine.happened
        after = self.runs()
        self.nothing_is_made_up_or_doubled(after)
        if ends:
            assert code == 130
        elif self.kind in BUDGETS_S:
            assert machine.clock_s <= latest(BUDGETS_S[self.kind])
            # a request that the budget ends is no fault of its row
            kinds = {failure.kind for run in after for failure in run.failures}
            assert FailureKind.TIMEOUT not in kinds
            assert "lose" in machine.happened or "was lost" not in self.told
        else:
            assert code == 0, self.told
            self.everything_is_there(after)
            assert not (self.is_done and machine.asked)
            self.is_done = True
        if self.kind not in BUDGETS_S:
            self.what_was_whole_stays(before, after)
        if "kill" in ends:
            kept = {value for run in after for value in values_of(run)}
            assert machine.whole <= kept

    def command(self, machine: Scripted) -> int:
        machine_of_run = world.World(
            launch=machine,
            now=machine.now,
            describe=lambda *_: ENVIRONMENT,
        )
        told = io.StringIO()
        with (
            pytest.MonkeyPatch.context() as patch,
            redirect_stdout(told),
            redirect_stderr(told),
        ):
            patch.setattr(world, "this_machine", lambda: machine_of_run)
            patch.setattr(run_file, "EVERY_S", 0)
            patch.setattr(run_file, "TIMES_WRITING", 0)
            patch.setattr(sys, "argv", ["ffnbench", *self.words])
            with pytest.raises(SystemExit) as ended:
                cli.main()
        self.told = told.getvalue()
        assert "Traceback" not in self.told
        return ended.value.code or 0

    def restore(self, left: bytes | None) -> None:
        """The file as it was when the run was killed."""
        self.file.unlink(missing_ok=True)
        if left is not None:
            self.file.write_bytes(left)

    def runs(self) -> list[Report]:
        assert {path.name for path in self.folder.iterdir()} <= {"a.json"}
        return list(read_report(self.file).runs) if self.file.exists() else []

    def nothing_is_made_up_or_doubled(self, runs: list[Report]) -> None:
        values = sum((values_of(run) for run in runs), Counter())
        assert set(values.values()) <= {1}
        for run in runs:
            processes: dict[int, set[int]] = {}  # by the number of the worker
            for one in latencies(run):
                case, process = self.given[one.value]
                assert case == one.case
                processes.setdefault(one.worker, set()).add(process)
            assert sum(map(len, processes.values())) == len(processes)
            assert len(set.union(set(), *processes.values())) == len(processes)
            places = Counter(
                (one.case, one.worker, one.round) for one in latencies(run)
            )
            if self.kind not in BUDGETS_S:  # there a disturbed sample is taken again
                assert set(places.values()) <= {1}

    def everything_is_there(self, runs: list[Report]) -> None:
        assert len(runs) == {"several runs": 3, "runs of a sweep": 2}.get(self.kind, 1)
        for run in runs:
            assert not run.interrupted
            made = Counter(one.case for one in latencies(run))
            assert set(made) == {case.label for case in run.plan.cases}
            assert min(made.values()) >= WORKERS * ROUNDS
            if not self.has_lost:
                assert max(made.values()) == WORKERS * ROUNDS

    def what_was_whole_stays(self, before: list[Report], after: list[Report]) -> None:
        """Of runs that ended by themselves, and of groups all of whose rows are
        complete.
        """
        kept = {value for run in after for value in values_of(run)}
        for run in before:
            for group in run.plan.groups:
                labels = {case.label for case in group.cases}
                values = [one.value for one in latencies(run) if one.case in labels]
                if len(values) >= WORKERS * ROUNDS * len(labels):
                    assert set(values) <= kept


TestWhateverHappens = Happening.TestCase
TestWhateverHappens.settings = settings(max_examples=14, stateful_step_count=5)


@pytest.mark.parametrize(
    ("kind", "events"),
    [
        ("several runs", {21: "kill"}),  # in the first worker of the second run
        ("runs of a sweep", {60: "kill"}),  # in the second group of the second run
        ("a sweep", {5: "lose", 40: "terminate"}),
        ("a cell", {4: "interrupt"}),
    ],
)
def test_what_is_lost_is_measured_again_and_nothing_else(
    kind: str, events: dict[int, str]
) -> None:
    machine = Happening()
    machine.begin(kind)
    for happens in (events, {}, {}):
        machine.go_on(happens)
    machine.teardown()


@pytest.mark.parametrize("stuck", ["open", "sample", "check"])
def test_a_request_that_the_budget_ends_is_no_loss(stuck: str) -> None:
    machine = Happening()
    machine.begin("a budget")
    machine.go_on({}, stuck=stuck, since=4.0)
    machine.teardown()
