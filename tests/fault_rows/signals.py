"""Interruptions and kills: of the parent at any moment, of its workers, once and twice."""

from __future__ import annotations

import os
import re
import signal
import time

from fault_rows.kit import COST, LONG, QUICK, QUICK_SAMPLES, TWO, Done, Running, Scene, fault

OLD = b"precious"
EARLY = [0.04 * number for number in range(1, 11)]  # 40 to 400 ms


def quiet_end(scene: Scene, done: Done) -> bool:
    """An early interruption leaves at most one line; gives whether Python itself had not begun with us."""
    ended = done.code == -signal.SIGINT or "KeyboardInterrupt" in done.err
    if ended and not re.search(r"/ffnbench/(?!__init__|__main__)", done.err):
        scene.codes.pop()
        scene.broken[:] = [text for text in scene.broken if not text.startswith("a traceback")]
        return True
    lines = [line for line in done.err.splitlines() if not line.startswith(("starting", "worker", "wrote"))]
    scene.expect(len(lines) <= 1, f"{len(lines)} lines: {lines[-1][:60] if lines else ''}")
    return False


@fault("SIGINT after 40, 80 ... 400 ms: compare", "exit 130, at most one line", 130)
def early_in_compare(scene: Scene) -> None:
    python = 0
    for delay in EARLY:
        running = scene.start("compare", *LONG, "-o", "a.json")
        time.sleep(delay)
        running.send(signal.SIGINT)
        python += quiet_end(scene, running.end(20))
    scene.expect(not (scene.folder / "a.json").exists(), "a.json is there")
    if python:
        scene.tell(f"{python} while Python itself was starting")


@fault("SIGINT after 40, 80 ... 400 ms: cost", "exit 130, or 0 where it has ended; at most one line", 0, 130)
def early_in_cost(scene: Scene) -> None:
    python = 0
    for delay in EARLY:
        running = scene.start(*COST)
        time.sleep(delay)
        running.send(signal.SIGINT)
        python += quiet_end(scene, running.end(20))
    if python:
        scene.tell(f"{python} while Python itself was starting")


def in_the_middle(scene: Scene, *more: object) -> Running:
    """A long run in its rounds, its output there already with another content."""
    scene.write("a.json", OLD)
    running = scene.start("compare", *LONG, *more, "-o", "a.json")
    running.measuring()
    return running


def saved_early(scene: Scene, done: Done) -> None:
    """What was measured is saved, and says that it ended early."""
    data = scene.whole("a.json")
    scene.expect(data.get("interrupted") is True, "a.json does not say that it was interrupted")
    scene.expect(data.get("samples"), "a.json has no samples")
    scene.says(done, "ended early")


@fault("SIGINT in the middle of a run", "exit 130; whole samples are saved and shown", 130)
def interrupted(scene: Scene) -> None:
    running = in_the_middle(scene)
    running.send(signal.SIGINT)
    saved_early(scene, running.end(20))


@fault("SIGINT twice", "exit 130, and at once; the old file is whole, or the new one", 130)
def interrupted_twice(scene: Scene) -> None:
    running = in_the_middle(scene)
    running.send(signal.SIGINT)
    time.sleep(0.05)
    began = time.monotonic()
    running.send(signal.SIGINT)
    running.end(20)
    spent = time.monotonic() - began
    scene.expect(spent < 1.0, f"it ended {spent:.1f} s after the second")
    if (scene.folder / "a.json").read_bytes() == OLD:
        scene.tell("a.json as it was")
    else:
        scene.whole("a.json")


@fault("SIGINT while the files are written", "exit 130 or 0; every file whole or as it was", 0, 130)
def interrupted_at_the_end(scene: Scene) -> None:
    for delay in (0.0, 0.15, 0.4):
        scene.write("a.json", OLD)
        running = scene.start("compare", *QUICK, "--rounds", "4", "-o", "a.json", "-o", "a.csv")
        running.until("worker 3/")
        time.sleep(delay)
        running.send(signal.SIGINT)
        running.end(20)
        if (scene.folder / "a.json").read_bytes() != OLD:
            scene.whole("a.json", tell=False)


@fault("SIGTERM in the middle of a run", "exit 130; whole samples are saved and shown", 130)
def terminated(scene: Scene) -> None:
    running = in_the_middle(scene)
    running.send(signal.SIGTERM)
    saved_early(scene, running.end(20))


@fault("SIGHUP in the middle of a run", "exit 130; whole samples are saved", 130)
def hung_up(scene: Scene) -> None:
    running = in_the_middle(scene)
    running.send(signal.SIGHUP)
    saved_early(scene, running.end(20))


@fault("SIGHUP under nohup", "it goes on: exit 0, the run is whole", 0)
def hung_up_under_nohup(scene: Scene) -> None:
    how = ("compare", *QUICK, "--rounds", "60", "-o", "a.json")
    running = scene.start(*how, before=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN) and None)
    running.until("worker 1/")
    running.send(signal.SIGHUP)
    running.end()
    scene.whole("a.json", 2 * 3 * 60)


@fault("SIGINT between two runs of --runs", "exit 130; the runs that are whole are saved", 130)
def interrupted_between(scene: Scene) -> None:
    running = scene.start("compare", *QUICK, "--runs", "2", "--pause", "60", "-o", "a.json")
    running.until("waiting for the next run")
    time.sleep(0.3)
    running.send(signal.SIGINT)
    running.end(20)
    scene.whole("a.json", QUICK_SAMPLES)


@fault("SIGKILL of the parent in the middle", "the old file stays; no process of it lives 2 s later", -9, leaves=True)
def killed(scene: Scene) -> None:
    running = in_the_middle(scene)
    running.send(signal.SIGKILL)
    running.end(20)
    scene.nobody()
    scene.same("a.json", OLD)


@fault("SIGKILL of the parent: what was measured", "`report a.json.journal` shows whole rounds", -9, 0, leaves=True)
def killed_and_reported(scene: Scene) -> None:
    running = in_the_middle(scene)
    running.send(signal.SIGKILL)
    scene.ends(running.end(20), -9)
    scene.expect((scene.folder / "a.json.journal").exists(), "there is no a.json.journal")
    done = scene.ends(scene.run("report", "a.json.journal", "-o", "b.json"), 0)
    scene.says(done, "relu", "gelu")
    scene.expect(scene.whole("b.json").get("samples"), "it has no samples")


@fault("SIGKILL of the measuring worker", "exit 0; told, replaced, what it had measured stays", 0)
def worker_killed(scene: Scene) -> None:
    running = scene.start("compare", *QUICK, "--rounds", "60", "-o", "a.json")
    running.measuring()
    for number in scene.workers()[:1]:
        os.kill(number, signal.SIGKILL)
    done = running.end()
    scene.says(done, "was lost: the process was killed (signal 9)")
    data = scene.whole("a.json")
    scene.expect(data.get("failures") == [], "a row failed")


@fault("SIGKILL of every worker at once", "exit 0; told, replaced", 0)
def all_workers_killed(scene: Scene) -> None:
    running = scene.start("compare", *QUICK, "--rounds", "60", "-o", "a.json")
    running.measuring()
    for number in scene.workers():
        os.kill(number, signal.SIGKILL)
    done = running.end()
    scene.says(done, "was lost")
    scene.whole("a.json")


@fault("SIGSTOP of the measuring worker, --timeout 3", "exit 0; its case is a row that failed, the others go on", 0)
def worker_stopped(scene: Scene) -> None:
    three = (*TWO, "--variants", "relu,gelu,silu", "--workers", "3", "--rounds", "60", "--timeout", "3")
    running = scene.start("compare", *three, "-o", "a.json")
    running.measuring()
    for number in scene.workers()[:1]:
        os.kill(number, signal.SIGSTOP)
    running.end()
    failed = [(f["kind"], f["case"]) for f in scene.whole("a.json").get("failures", ())]
    scene.expect([kind for kind, _ in failed] == ["timeout"], f"failures: {failed}")


@fault("SIGSTOP and SIGCONT of the parent", "exit 0; the run is whole", 0)
def stopped_and_continued(scene: Scene) -> None:
    running = scene.start("compare", *QUICK, "--rounds", "60", "-o", "a.json")
    running.until("worker 1/")
    running.send(signal.SIGSTOP)
    time.sleep(2)
    running.send(signal.SIGCONT)
    running.end()
    scene.whole("a.json", 2 * 3 * 60)


@fault("another run measures on this machine", "the second says so; with --wait it waits for the first", 0, 130)
def two_runs_at_once(scene: Scene) -> None:
    first = scene.start("compare", *LONG)
    first.measuring()
    second = scene.ends(scene.run("compare", *QUICK), 0)
    scene.expect("another" in second.flat.lower() and "run" in second.flat.lower(), "the second says nothing of it")
    waiting = scene.start("compare", *QUICK, "--wait", "-o", "a.json")
    time.sleep(4)
    scene.expect(waiting.process.poll() is None, "with --wait it does not wait")
    first.send(signal.SIGINT)
    scene.ends(first.end(20), 130)
    scene.ends(waiting.end(), 0)
    scene.whole("a.json", QUICK_SAMPLES)
