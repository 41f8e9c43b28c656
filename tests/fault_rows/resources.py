"""What runs out: space on a disk, memory in a worker and in the parent; and the checkouts of a killed `ab`."""

from __future__ import annotations

import os
import resource
import shlex
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

from fault_rows.kit import COST, FEW, QUICK, QUICK_SAMPLES, SMALL, Done, Scene, Skip, fault, wait_until

MIB = 1 << 20
AB = ("ab", "mypkg.mlp:Net", "--base-rev", "old", *SMALL, "-q")

NET = """
import os
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self, dim, hidden_dim):
        super().__init__()
        self.up, self.down = nn.Linear(dim, hidden_dim, bias=False), nn.Linear(hidden_dim, dim, bias=False)

    def forward(self, x):
        return self.down(torch.relu(self.up(x)))
"""

ENDLESS = (
    NET
    + """
KEPT = []

class Endless(Net):
    def forward(self, x):
        while x.device.type == "cpu" and x.shape[1] > 8:  # looking at it takes fewer tokens, or none
            KEPT.append(torch.ones(1 << 22))
        return super().forward(x)
"""
)


def limited(what: int, size: int) -> Callable[[], None]:
    """In a child: a limit of the kernel's."""
    return lambda: resource.setrlimit(what, (size, size))


@fault(
    "files may not grow (RLIMIT_FSIZE)",
    "exit 3 and one line; the old file stays, the answer is shown, a journal keeps what fits into it",
    3,
)
def no_file_grows(scene: Scene) -> None:
    scene.write("a.json", "precious")
    for command in (("compare", *QUICK, "-q"), COST):
        line = f"(ulimit -f 2; ffnbench {shlex.join(command)} -o a.json) | cat; exit ${{PIPESTATUS[0]}}"
        done = scene.shell(line)
        scene.one_error(done)
        scene.says(done, "cannot write 'a.json': File too large", "relu", "gelu")
        scene.same("a.json", b"precious")
        scene.expect((scene.folder / "a.json.journal").exists() == ("compare" in command), "no journal of the run")
        (scene.folder / "a.json.journal").unlink(missing_ok=True)


def small_disk(scene: Scene, inside: str) -> Done:
    """A line of bash beside a disk of 256 KiB, `disk`, that nobody else sees; raises Skip where none can be mounted."""
    disk = scene.folder / "disk"
    disk.mkdir()
    mounted = f"mount -t tmpfs -o size=256k none {shlex.quote(str(disk))}"
    if subprocess.run(["unshare", "-m", "bash", "-c", mounted], capture_output=True, check=False).returncode:
        raise Skip("nothing can be mounted here")
    return scene.shell(f"unshare -m bash -c {shlex.quote(f'{mounted} && {inside}')}")


def filled(how: str) -> str:
    """A run in the middle of which the disk becomes full; afterwards what is on it is told and copied."""
    return (
        f"cp old disk/a.json; ffnbench compare {how} -o disk/a.json >out 2>err & pid=$!; "
        "until grep -q 'worker 1/' err || ! kill -0 $pid; do sleep 0.1; done; sleep 0.5; "
        "dd if=/dev/zero of=disk/fill bs=4k 2>/dev/null; wait $pid; code=$?; "
        "cp disk/a.json after.json; cat out; cat err >&2; exit $code"
    )


@fault("the disk becomes full in the middle of a run", "exit 3, one line; the old file stays, the result is rescued", 3,
       leaves=True)  # fmt: skip
def disk_full(scene: Scene) -> None:
    scene.write("old", "precious")
    how = shlex.join([*QUICK, "--rounds", "40"])
    done = small_disk(scene, filled(how))
    scene.one_error(done)
    scene.says(done, "cannot write 'disk/a.json': No space left on device", "the whole result is in", "FFN compare")
    scene.same("after.json", b"precious")
    rescued = list(scene.temporary.glob("ffnbench-*.json"))
    scene.expect(len(rescued) == 1, f"{len(rescued)} rescued files")
    for path in rescued:
        scene.whole(path, 240)


@fault("a module that allocates without end", "exit 0: a row that failed for want of memory, the others go on", 0)
def endless_module(scene: Scene) -> None:
    scene.write("endless.py", ENDLESS)
    how = ("compare", *SMALL, *FEW, "--variants", "relu,endless.py:Endless,gelu", "-q", "-o", "a.json")
    done = scene.run(*how, before=limited(resource.RLIMIT_DATA, 4096 * MIB))  # of this machine it shall not take more
    scene.says(done, "out of memory")
    data = scene.whole("a.json", QUICK_SAMPLES)
    failed = [f["kind"] for f in data.get("failures", ())]
    scene.expect(failed == ["oom"], f"failures: {failed}")


@fault("no memory for the parent (RLIMIT_AS of 48 to 1024 MiB)", "exit 3 and one line, or the answer", 0, 3)
def no_memory(scene: Scene) -> None:
    """Below, Python itself does not start."""
    for size in (48, 64, 96, 128, 192, 256, 512, 1024):
        done = scene.run("compare", *QUICK, "-q", before=limited(resource.RLIMIT_AS, size * MIB))
        if done.code:
            scene.one_error(done)


@fault("a saved run that is too large for memory", "exit 2 or 3, and one line", 2, 3)
def large_file(scene: Scene) -> None:
    scene.write("large.json", b'{"samples": [' + b"[]," * (8 * MIB) + b"0]}")
    for command in (["report", "large.json"], ["check", "large.json", "--exact-only"], ["inspect", "large.json"]):
        scene.one_error(scene.run(*command, before=limited(resource.RLIMIT_AS, 400 * MIB)))
    (scene.folder / "large.json").unlink()


def git(folder: Path, *arguments: str) -> str:
    """git, as somebody."""
    who = ("-c", "user.name=n", "-c", "user.email=e@x", "-c", "init.defaultBranch=main")
    clean = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    done = subprocess.run(["git", *who, *arguments], cwd=folder, check=True, capture_output=True, text=True, env=clean)
    return done.stdout.strip()


def repository(scene: Scene) -> None:
    """A repository with one module, and an older revision of it."""
    git(scene.folder, "init", "-q")
    scene.write("mypkg/__init__.py", "")
    scene.write("mypkg/mlp.py", NET)
    git(scene.folder, "add", ".")
    git(scene.folder, "commit", "-qm", "old")
    git(scene.folder, "tag", "old")
    scene.write("mypkg/mlp.py", NET + "# a comment\n")
    git(scene.folder, "commit", "-qam", "new")


@fault("SIGINT and SIGKILL of `ab`, two at once: checkouts", "the repository is as it was",
       130, -9, 0, leaves=True)  # fmt: skip
def checkouts(scene: Scene) -> None:
    repository(scene)
    both = [scene.start(*AB, "--exact-only") for _ in range(2)]
    for running in both:
        scene.ends(running.end(), 0)
    for number, code in ((signal.SIGTERM, 130), (signal.SIGINT, 130), (signal.SIGKILL, -9)):
        left = [path.name for path in scene.temporary.glob("ffnbench-*")]
        scene.expect(not left, f"left: {', '.join(left)}")
        running = scene.start(*AB, "--budget", "60")
        wait_until(lambda: list(scene.temporary.glob("*/tree/mypkg/mlp.py")), 30)
        running.send(number)
        scene.ends(running.end(30), code)
        scene.nobody()
        scene.expect(len(git(scene.folder, "worktree", "list").splitlines()) == 1, "git lists a worktree")
        scene.expect(not list((scene.folder / ".git").glob("*.lock")), "a lock is left")
    scene.ends(scene.run(*AB, "--exact-only"), 0)
