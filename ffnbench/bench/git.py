"""git, asked in a folder: to its end, without what a hook hands down, running nothing that the folder configures."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

# what git hands to a hook that it runs would lead every git of ours to the wrong repository or index
OF_HOOKS = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX", "GIT_COMMON_DIR", "GIT_OBJECT_DIRECTORY")
# a folder from elsewhere may bring a configuration that names programs
NOTHING_OF_ITS_OWN = ("-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null")
Told = subprocess.CompletedProcess[str]


def has_git() -> bool:
    """Whether there is a git to ask."""
    return shutil.which("git") is not None


def git(folder: Path, *arguments: str) -> Told:
    """Run git to its end, an interruption in between or not: half a checkout is worse than none."""
    environment = {name: value for name, value in os.environ.items() if name not in OF_HOOKS}
    process = subprocess.Popen(
        ["git", "-C", str(folder), *NOTHING_OF_ITS_OWN, *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True, errors="surrogateescape", env=environment, start_new_session=True,
    )  # fmt: skip
    try:
        out, err = process.communicate()
    except KeyboardInterrupt:
        process.communicate()
        raise
    return subprocess.CompletedProcess(arguments, process.returncode, out, err)


def tracked(paths: list[Path], beside: Path) -> set[Path]:
    """Which of these files git tracks in the tree that holds `beside`, none where there is no git. Links are
    followed.
    """
    folder = beside.resolve().parent
    if not has_git():
        return set()
    top = git(folder, "rev-parse", "--show-toplevel")
    if top.returncode:
        return set()
    root = Path(top.stdout.removesuffix("\n"))
    inside = {path.resolve(): path for path in paths if path.resolve().is_relative_to(root.resolve())}
    if not inside:
        return set()
    names = [str(path.relative_to(root.resolve())) for path in inside]
    told = git(root, "--literal-pathspecs", "ls-files", "-z", "--full-name", "--", *names)
    known = set(told.stdout.split("\0")) - {""}
    return {inside[root.resolve() / name] for name in names if name in known}
