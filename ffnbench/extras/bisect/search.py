"""Searches the commit that made a module slower: one commit after another is measured
beside the good one, as in `ab`.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, fields, replace
from pathlib import Path

from ffnbench.api.preparing import with_threads
from ffnbench.common.errors import EXIT_USAGE, FfnbenchError, Unfinished
from ffnbench.common.units import counted
from ffnbench.extras.bisect.commits import (
    OPEN,
    Bisected,
    BisectRepository,
    Commit,
    CommitProbe,
    StoredProbes,
)
from ffnbench.extras.bisect.table import probe_text
from ffnbench.following import Following, ProgressListener
from ffnbench.gate.baseline import policy_of_sides
from ffnbench.gate.checking import ab, environment_here
from ffnbench.gate.decision import Status
from ffnbench.gate.sides import BASE, HEAD, sides_asked, variant_of_sides
from ffnbench.metrics import LATENCY
from ffnbench.plan import METHOD
from ffnbench.planning.effort import LEAST_BUDGET_S
from ffnbench.request import (
    DEFAULT_BUDGET_S,
    ModuleRequest,
    Seconds,
    SidesRequest,
    command_line,
)
from ffnbench.result import Progress
from ffnbench.run.world import World


@dataclass(frozen=True, kw_only=True)
class BisectRequest(ModuleRequest):
    """`ffnbench bisect`: a module, and the good and the bad commit."""

    good: str = ""
    bad: str = "HEAD"
    probes: int = 20
    budget: Seconds = 3600.0


class ProbeProgress(ProgressListener):
    """The progress of one probe as a part of all. All are measured alike, so only that
    of the first one tells how.
    """

    def __init__(self, of_probe: ProgressListener, *, first: bool) -> None:
        self._of_probe = of_probe
        self.tells = of_probe.tells and first

    def __call__(self, event: Progress) -> None:
        self._of_probe(event)

    def tell(self, text: str) -> None:
        """Tell a line that holds for all probes."""
        self._of_probe.tell(f"each probe: {text}")


def search(
    request: BisectRequest, world: World, progress: ProgressListener
) -> Bisected:
    """Probe commits until the first slow one is known, or that there is none, or until
    the probes or the time are used up.
    """
    bisected, asked, stored_probes = _begin(request, world, progress)
    end = time.monotonic() + request.budget
    try:
        for number in range(1, request.probes + 1):
            left_s = end - time.monotonic()
            if bisected.state != OPEN or (number > 1 and left_s < LEAST_BUDGET_S):
                break
            of_probe = ProbeProgress(
                progress.part(number, request.probes, "probe"), first=number == 1
            )
            commit, probe = _next_probe(
                bisected, asked, request, world, of_probe, left_s
            )
            bisected = bisected.with_probes(probe)
            progress.tell(
                f"probe {number} of at most {request.probes}: {probe_text(bisected, commit, probe)}"
            )
            stored_probes.store(probe)
    except KeyboardInterrupt:
        if not bisected.probed:
            raise
        return replace(bisected, interrupted=True)
    return bisected


def _begin(
    request: BisectRequest, world: World, progress: ProgressListener
) -> tuple[Bisected, SidesRequest, StoredProbes]:
    """The answer as it is before the first new probe, what `ab` is asked for each
    probe, and where probes are stored.

    Raises FfnbenchError for every mistake that can be found before measuring.
    """
    if not request.good:
        raise FfnbenchError(
            "--good is not given: a revision that was fast enough",
            "for example --good v1.0",
        )
    if request.probes < 1:
        raise FfnbenchError(
            f"--probes {request.probes} is out of range", "give 1 at least"
        )
    of_module = {
        field.name: getattr(request, field.name) for field in fields(ModuleRequest)
    }
    asked = with_threads(SidesRequest(**of_module, allow_mismatch=True))
    variant = variant_of_sides(asked)
    limit = policy_of_sides(asked, variant.label).of(variant.label, LATENCY)
    with BisectRepository(Path.cwd()) as repository:
        commits = tuple(repository.commits_between(request.good, request.bad))
        asked = replace(
            asked, base_rev=repository.commit(request.good), head_rev=commits[-1].name
        )
        sides_asked(asked, variant)
        if repository.dirty:
            progress.tell(
                "note: changes that are not committed are in no commit, and are not measured"
            )
        git_folder, prefix = repository.git_folder, repository.prefix
    flags = replace(asked, base_rev=None, head_rev=None, tolerance=())
    stored_probes = StoredProbes(
        git_folder,
        folder=prefix,
        target=variant.text,
        flags=command_line(flags),
        good=asked.base_rev,
        machine=environment_here(request.device, world).fingerprint,
        method=METHOD,
    )
    bisected = Bisected(
        variant=variant.text,
        good=request.good,
        bad=request.bad,
        limit=limit,
        commits=commits,
        probed=tuple(stored_probes.of_commits(commits)),
    )
    if bisected.probed:
        progress.tell(
            f"{counted(len(bisected.probed), 'probe')} of earlier bisects: {stored_probes.path}"
        )
    return bisected, asked, stored_probes


def _next_probe(
    bisected: Bisected,
    asked: SidesRequest,
    request: BisectRequest,
    world: World,
    progress: ProgressListener,
    left_s: float,
) -> tuple[Commit, CommitProbe]:
    """Measure the commit whose probe tells most; gives the commit and the probe, which
    says why where it can't be measured.

    Raises FfnbenchError where the last commit can't be measured: without it, nothing
    tells whether there is a step.
    """
    posterior = bisected.posterior
    commit = bisected.commits[posterior.next_probe - 1]
    sides = replace(
        asked,
        head_rev=commit.name,
        tolerance=(f"{100 * posterior.tolerance(bisected.limit):.4g}%",),
        budget=max(LEAST_BUDGET_S, min(DEFAULT_BUDGET_S, left_s)),
    )
    similar_name = ""
    try:
        probe = _probe(sides, commit, world.from_now, progress)
    except FfnbenchError as problem:
        if problem.hint.startswith("did you mean"):
            similar_name = f"{problem.hint} or "
        probe = _not_probed(problem, sides, request)
    if (
        probe.skipped
        and commit is bisected.commits[-1]
        and posterior.change_at_end() is None
    ):
        problem_at_end = f"{request.bad} can't be measured: {probe.skipped}"
        if probe.passing:
            raise Unfinished(problem_at_end, "the same command again, when it is quiet")
        raise FfnbenchError(
            problem_at_end, f"{similar_name}name an earlier one as --bad"
        )
    return commit, probe


def _probe(
    sides: SidesRequest, commit: Commit, world: World, progress: ProgressListener
) -> CommitProbe:
    """Measure one commit beside the good one.

    Raises KeyboardInterrupt where the user interrupted it, and FfnbenchError where one
    of the two can't be measured.
    """
    checked = ab(sides, world, Following(progress=progress))
    if checked.interrupted:
        raise KeyboardInterrupt
    if checked.now.stopped:
        raise Unfinished(checked.now.stopped)
    failure = checked.now.failure(checked.now.plan.reference)
    if failure:
        raise Unfinished(
            f"the good commit can't be measured: {failure.message}",
            "name another one as --good",
        )
    [latency] = [finding for finding in checked.findings if finding.metric == LATENCY]
    if latency.change is None or not latency.change.low:
        passing = latency.status is Status.UNCLEAR
        return CommitProbe(commit=commit.name, skipped=latency.reason, passing=passing)
    return CommitProbe(
        commit=commit.name, low=latency.change.low, high=latency.change.high
    )


def _not_probed(
    problem: FfnbenchError, sides: SidesRequest, request: BisectRequest
) -> CommitProbe:
    """The probe of a commit that `ab` can't measure because of this problem. Raises
    FfnbenchError where the problem is that of the good commit, or of neither.
    """
    base, head = str(sides.base_rev), str(sides.head_rev)
    if problem.message.startswith((BASE, base[:10])):
        reason = problem.message.removeprefix(f"{BASE}: ").replace(base, "it")
        raise FfnbenchError(
            f"{request.good} can't be measured: {reason}", "name another one as --good"
        )
    if problem.exit_code != EXIT_USAGE or not problem.message.startswith(
        (HEAD, head[:10])
    ):
        raise problem
    reason = problem.message.removeprefix(f"{HEAD}: ")
    # another time, as with more space on the disk, its files may be checked out
    is_passing = "can't be checked out" in problem.message
    return CommitProbe(commit=head, skipped=reason, passing=is_passing)
