"""Interruptions and kills: of the parent at any moment, of its workers, once and twice."""

from __future__ import annotations

import os
import re
import signal
import time

from fault_rows.kit import COST, LONG, QUICK, QUICK_SAMPLES, SMALL, Running, Scene, fault

OLD = b"precious"
EARLY = [0.04 * number for number in range(1, 11)]  # 40 to 400 ms


@fault("SIGINT after 40, 80 ... 400 ms", "exit 130, or 0 where it has ended; at most one line", 0, 130)
def early(scene: Scene) -> None:
    for command in (("compare", *LONG, "-o", "a.json"), COST):
        for delay in EARLY:
            running = scene.start(*command)
            time.sleep(delay)
            running.send(signal.SIGINT)
            done = running.end(20)
            by_python = done.code == -signal.SIGINT or "KeyboardInterrupt" in done.err  # it had not begun with us
            if by_python and not re.search(r"/ffnbench/(?!__init__|__main__)", done.err):
                scene.codes.pop()
                scene.broken[:] = [text for text in scene.broken if not text.startswith("a traceback")]
                continue
            lines = [line for line in done.err.splitlines() if not line.startswith(("starting", "worker", "measuring"))]
            scene.expect(len(lines) <= 1, f"{len(lines)} lines: {lines[-1:]}")
    scene.expect(not (scene.folder / "a.json").exists(), "a.json is there")


def in_the_middle(scene: Scene) -> Running:
    """A long run in its rounds, its output there already with another content."""
    scene.write("a.json", OLD)
    running = scene.start("compare", *LONG, "-o", "a.json")
    running.measuring()
    return running


@fault("SIGINT, SIGTERM, SIGHUP in the middle of a run", "exit 130; whole samples are saved and shown", 130)
def interrupted(scene: Scene) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        running = in_the_middle(scene)
        running.send(number)
        done = running.end(20)
        data = scene.whole("a.json")
        scene.expect(data.get("interrupted") is True and data.get("samples"), "a.json does not say what happened")
        scene.says(done, "ended early")


@fault(
    "SIGINT twice",
    "exit 130, and at once; the old file is whole, or the new one; else the journal has all",
    130,
    leaves=True,
)
def interrupted_twice(scene: Scene) -> None:
    running = in_the_middle(scene)
    running.send(signal.SIGINT)
    time.sleep(0.05)
    began = time.monotonic()
    running.send(signal.SIGINT)
    running.end(20)
    scene.expect(time.monotonic() - began < 1.0, "it went on after the second")
    if (scene.folder / "a.json").read_bytes() != OLD:
        scene.whole("a.json")


@fault(
    "SIGINT while the files are written; between two runs of --runs",
    "130 or 0; files whole or as they were, and then the journal has all",
    0, 130, leaves=True,
)  # fmt: skip
def interrupted_at_the_end(scene: Scene) -> None:
    for delay in (0.0, 0.15, 0.4):
        scene.write("a.json", OLD)
        running = scene.start("compare", *QUICK, "--rounds", "4", "-o", "a.json", "-o", "a.csv")
        running.until("worker 3/")
        time.sleep(delay)
        running.send(signal.SIGINT)
        running.end(20)
        if (scene.folder / "a.json").read_bytes() != OLD:
            scene.whole("a.json")
    running = scene.start("compare", *QUICK, "--runs", "2", "--pause", "60", "-o", "b.json")
    running.until("waiting for the next run")
    running.send(signal.SIGINT)
    scene.ends(running.end(20), 130)
    scene.whole("b.json", QUICK_SAMPLES)


@fault("SIGHUP under nohup; SIGSTOP and SIGCONT", "it goes on: exit 0, the run is whole", 0)
def goes_on(scene: Scene) -> None:
    how = ("compare", *QUICK, "--rounds", "60", "-o", "a.json")
    running = scene.start(*how, before=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN) and None)
    running.until("worker 1/")
    running.send(signal.SIGHUP)
    running.send(signal.SIGSTOP)
    time.sleep(2)
    running.send(signal.SIGCONT)
    running.end()
    scene.whole("a.json", 2 * 3 * 60)


@fault("SIGKILL of the parent in the middle", "the old file stays, `report a.json.journal` shows what was measured; "
       "no process lives 2 s later", -9, 0, leaves=True)  # fmt: skip
def killed(scene: Scene) -> None:
    running = in_the_middle(scene)
    running.send(signal.SIGKILL)
    scene.ends(running.end(20), -9)
    scene.nobody()
    scene.same("a.json", OLD)
    scene.says(scene.ends(scene.run("report", "a.json.journal", "-o", "b.json"), 0), "relu", "gelu")
    scene.expect(scene.whole("b.json").get("samples"), "it has no samples")


@fault("SIGKILL of the measuring worker", "exit 0; told, replaced, what it had measured stays", 0)
def worker_killed(scene: Scene) -> None:
    running = scene.start("compare", *QUICK, "--rounds", "60", "-o", "a.json")
    running.measuring()
    for number in scene.workers():
        os.kill(number, signal.SIGKILL)
    scene.says(running.end(), "was lost: the process was killed (signal 9)")
    scene.expect(scene.whole("a.json").get("failures") == [], "a row failed")


@fault("SIGSTOP of the measuring worker, --timeout 3", "exit 0; its case is a row that failed, the others go on", 0)
def worker_stopped(scene: Scene) -> None:
    three = (*SMALL, "--variants", "relu,gelu,silu", "--workers", "3", "--rounds", "60", "--timeout", "3")
    running = scene.start("compare", *three, "-o", "a.json")
    running.measuring()
    for number in scene.workers():
        os.kill(number, signal.SIGSTOP)
    running.end()
    failed = [f["kind"] for f in scene.whole("a.json").get("failures", ())]
    scene.expect(failed == ["timeout"], f"failures: {failed}")


@fault("another run measures on this machine", "the second says so; with --wait it waits for the first", 0, 130)
def two_runs_at_once(scene: Scene) -> None:
    first = scene.start("compare", *LONG)
    first.measuring()
    second = scene.ends(scene.run("compare", *QUICK), 0)
    scene.says(second, "another run")
    waiting = scene.start("compare", *QUICK, "--wait", "-o", "a.json")
    time.sleep(4)
    scene.expect(waiting.process.poll() is None, "with --wait it does not wait")
    first.send(signal.SIGINT)
    scene.ends(first.end(20), 130)
    scene.ends(waiting.end(), 0)
    scene.whole("a.json", QUICK_SAMPLES)
