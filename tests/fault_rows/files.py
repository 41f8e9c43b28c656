"""Outputs: over an input, through links, into what is no file, under names that are none."""

from __future__ import annotations

import os
import shlex
import stat
import subprocess
import time

from fault_rows.kit import COST, LOOSE, QUICK, QUICK_SAMPLES, Scene, can_be_ordinary, fault, ordinary


@fault("an output over an input: the file, a symlink, a hard link", "exit 2, every byte stays", 2)
def over_an_input(scene: Scene) -> None:
    base = scene.write("base.json", scene.measured())
    before = base.read_bytes()
    (scene.folder / "link.json").symlink_to("base.json")
    (scene.folder / "hard.json").hardlink_to(base)
    for to in ("base.json", "link.json", "hard.json"):
        for command in (
            ["check", "base.json", "--exact-only", "-o", to], ["report", "base.json", "-o", to],
            ["check", "base.json", "--exact-only", "--export", f"bencher={to}"],
        ):  # fmt: skip
            scene.says(scene.run(*command), "is read by this command")
        scene.says(scene.run(*COST, "-o", to), "holds what was measured")
    scene.same("base.json", before)
    scene.expect((scene.folder / "link.json").is_symlink(), "the link is none any more")


@fault("an output that is a symlink, one that leads nowhere, one of mode 600, a pipe with a reader",
       "exit 0; written through them, links and mode stay", 0)  # fmt: skip
def through_a_link(scene: Scene) -> None:
    scene.write("real.csv", "old").chmod(0o600)
    for name, target in (("link.csv", "real.csv"), ("dangling.csv", "new.csv")):
        (scene.folder / name).symlink_to(target)
    scene.run(*COST, "-o", "link.csv", "-o", "dangling.csv")
    for name in ("link.csv", "dangling.csv"):
        path = scene.folder / name
        scene.expect(path.is_symlink() and path.read_text().startswith("label,"), f"{name} is not written through")
    scene.expect(stat.S_IMODE((scene.folder / "real.csv").stat().st_mode) == 0o600, "its mode is another")
    os.mkfifo(scene.folder / "pipe.json")
    with (scene.folder / "read.json").open("wb") as read:
        reader = subprocess.Popen(["cat", "pipe.json"], cwd=scene.folder, stdout=read)
    scene.run(*COST, "-o", "pipe.json", seconds=30)
    reader.wait(10)
    scene.whole("read.json", 0)


@fault(
    "an output that is a pipe without a reader", "exit 3 within seconds; answer shown, result rescued", 3, leaves=True
)
def pipe_without_reader(scene: Scene) -> None:
    os.mkfifo(scene.folder / "pipe.json")
    done = scene.run("compare", *QUICK, "-q", "-o", "pipe.json", seconds=60)
    scene.one_error(done)
    scene.says(done, "FFN compare", "the whole result is in")
    rescued = list(scene.temporary.glob("ffnbench-*.json"))
    scene.expect(len(rescued) == 1, f"{len(rescued)} rescued files")
    for path in rescued:
        scene.whole(path, QUICK_SAMPLES)
    scene.expect(stat.S_ISFIFO((scene.folder / "pipe.json").stat().st_mode), "the pipe is a file now")


@fault("an output's name of 255 characters", "exit 0, the file is whole", 0)
def longest_name(scene: Scene) -> None:
    name = "x" * (255 - len(".json")) + ".json"
    scene.run("compare", *QUICK, "-q", "-o", name)
    scene.whole(name, QUICK_SAMPLES)


@fault("an output's name of 256 characters and more, in the home of nobody", "exit 2 before anything is measured", 2)
def too_long_a_name(scene: Scene) -> None:
    for name in ("x" * 252 + ".csv", "x" * 5000 + ".csv", "y" * 255 + "/a.csv", "y" * 300 + "/", "~no-such-user/x.csv"):
        done = scene.run("compare", *QUICK, "-o", name)
        scene.one_error(done)
        scene.expect("starting workers" not in done.err, "it is found after the work has begun")


@fault("a folder that may not be written to, an output that may not", "exit 2 before anything is measured", 2)
def no_permission(scene: Scene) -> None:
    can_be_ordinary()
    folder = scene.folder / "locked"
    folder.mkdir()
    kept = scene.write("kept.csv", "old")
    kept.chmod(0o444)
    folder.chmod(0o555)
    for out in ("locked/a.csv", "locked/new/", "kept.csv"):
        done = scene.run("compare", *QUICK, "-o", out, before=ordinary)
        scene.one_error(done)
        scene.expect("starting workers" not in done.err, "it is found after the work has begun")
    folder.chmod(0o755)
    scene.same("kept.csv", b"old")


@fault("an export that fails beside a regression", "exit 1 stays 1, with a line about it", 1)
def failed_export(scene: Scene) -> None:
    os.mkfifo(scene.folder / "pipe.json")  # that nobody reads: it is found when it is written
    for how in (
        ["--export", "bencher=pipe.json"],
        ["-o", "pipe.json"],
        ["--export", "github-action-benchmark=pipe.json"],
    ):
        done = scene.run(*scene.pair(), *how, seconds=30)
        scene.says(done, "cannot write 'pipe.json'")


@fault(
    "the folder of an output goes while it is measured", "exit 3; the answer is shown and rescued, others are whole",
    3, leaves=True,
)  # fmt: skip
def folder_goes(scene: Scene) -> None:
    (scene.folder / "there").mkdir()
    running = scene.start("compare", *QUICK, "--rounds", "40", "-o", "there/a.json", "-o", "b.json")
    running.until("worker 1/")
    for path in (scene.folder / "there").iterdir():
        path.unlink()
    (scene.folder / "there").rmdir()
    done = running.end()
    scene.says(done, "cannot write 'there/a.json'", "the whole result is in", "FFN compare")
    scene.whole("b.json", 240)
    for path in scene.temporary.glob("ffnbench-*.json"):
        scene.whole(path, 240)


@fault(
    "the current folder is deleted, before and while it is measured", "files elsewhere whole; 2 or 3 for those in it",
    0, 2, 3, leaves=True,
)  # fmt: skip
def current_folder_goes(scene: Scene) -> None:
    gone = scene.folder / "gone"
    gone.mkdir()
    elsewhere = shlex.quote(str(scene.folder / "a.csv"))
    scene.shell(f"cd gone && rmdir ../gone && ffnbench {shlex.join(COST)} -o {elsewhere}")
    scene.expect((scene.folder / "a.csv").exists(), "a.csv is not written")
    scene.shell(f"mkdir gone && cd gone && rmdir ../gone && ffnbench {shlex.join(COST)} -o b.csv")
    gone.mkdir()
    outputs = ("-o", "a.json", "-o", scene.folder / "b.json")
    running = scene.start("compare", *QUICK, "--rounds", "40", *outputs, folder=gone)
    running.until("worker 1/")
    for path in gone.iterdir():
        path.unlink()
    gone.rmdir()
    running.end()
    scene.whole("b.json", 240)


@fault("two runs at once into the same output", "exit 0 of both; the file is one of them, whole", 0)
def two_into_one(scene: Scene) -> None:
    both = [scene.start("compare", *QUICK, "--seed", seed, "-q", "-o", "a.json") for seed in (1, 2)]
    for running in both:
        running.end()
    found = scene.whole("a.json", QUICK_SAMPLES)
    scene.expect(found and found["plan"]["protocol"]["seed"] in (1, 2), "it is neither")


@fault(
    "two check --append at once", "one adds its run, the other is saved beside it: exit 3; or one after the other", 0, 3
)
def two_appends(scene: Scene) -> None:
    scene.write("base.json", scene.measured())
    how = ("check", "base.json", "--append", "--tolerance", "latency=900%", "--budget", "10", "-q")
    first, second = scene.start(*how), scene.start(*how)
    ended = [first.end(), second.end()]
    codes = sorted(done.code for done in ended)
    scene.expect(codes in ([0, 3], [0, 0]), f"they end {codes}")
    scene.expect(codes != [0, 3] or any("by somebody else" in done.err for done in ended), "nobody says so")
    scene.whole("base.json", 48)


@fault("a baseline that changes meanwhile", "exit 3 of check --append; it stays, the new one is beside it", 3)
def baseline_changes(scene: Scene) -> None:
    """The run is read from a pipe, so that the moment is known."""
    scene.write("base.json", scene.measured())
    run = scene.write("run.json", scene.measured(gelu=1.001))
    pipe = scene.folder / "pipe.json"
    os.mkfifo(pipe)
    running = scene.start("check", "base.json", "pipe.json", "--append", *LOOSE)
    content = scene.write("other.json", scene.measured(gelu=1.002)).read_bytes()
    for turn in range(2):  # it is read twice
        with pipe.open("wb") as writing:
            if turn == 0:
                os.replace(scene.folder / "other.json", scene.folder / "base.json")
            writing.write(run.read_bytes())
        time.sleep(0.3)
    done = running.end(20)
    scene.says(done, "was written by somebody else meanwhile")
    scene.same("base.json", content)
    beside = list(scene.folder.glob("base-*.json"))
    scene.expect(len(beside) == 1, f"{len(beside)} files beside it")
    for path in beside:
        scene.whole(path)


@fault("the clock jumps by hours, forth and back", "exit 0; nothing is measured by it", 0)
def clock_jumps(scene: Scene) -> None:
    jumping = (
        "import itertools, time\n_real, _count = time.time, itertools.count()\n"
        "time.time = lambda: _real() + (-7200, 0, 36000, -86400)[next(_count) % 4]\n"
    )
    scene.write("jump/sitecustomize.py", jumping)
    ours = f"{scene.folder / 'jump'}:{scene.environment['PYTHONPATH']}"
    began = time.monotonic()
    scene.run("compare", *QUICK, "-q", "-o", "a.json", env={"PYTHONPATH": ours})
    found = scene.whole("a.json", QUICK_SAMPLES)
    spent = time.monotonic() - began
    scene.expect(0 < found.get("wall_s", 0) <= spent, f"it says that it took {found.get('wall_s')} s of {spent:.0f} s")
    scene.expect(all(s["value"] < 1 for s in found.get("samples", ()) if s["metric"] == "latency"), "a call took hours")
    limited = ("compare", *QUICK[:-4], "--budget", "6", "-q")
    done = scene.run(*limited, env={"PYTHONPATH": ours}, seconds=60)
    scene.expect(done.seconds < 40, f"a budget of 6 s took {done.seconds:.0f} s")


@fault("HOME and TMPDIR that are not there, that are files; no HOME", "exit 0, files whole", 0)
def home_and_tmpdir(scene: Scene) -> None:
    file = str(scene.write("file", "old"))
    for name, env in (("not there", {"HOME": "/no", "TMPDIR": "/no"}), ("files", {"HOME": file, "TMPDIR": file}),
                      ("no HOME", {"HOME": None})):  # fmt: skip
        scene.run("compare", *QUICK, "-q", "-o", f"{name}.json", env=env)
        scene.whole(f"{name}.json", QUICK_SAMPLES)
