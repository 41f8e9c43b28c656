"""Runs git in a folder; no other file does. git then starts no program that files of
the folder name, and fetches nothing.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

# git sets these for a hook that it runs: with them, every git that ffnbench runs there
# would use the wrong repository or index
HOOK_VARIABLES = (
    "GIT_DIR",
    "GIT_WORK_TREE",
    "GIT_INDEX_FILE",
    "GIT_PREFIX",
    "GIT_COMMON_DIR",
    "GIT_OBJECT_DIRECTORY",
)
ENVIRONMENT = {
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_ALLOW_PROTOCOL": "",
    "GIT_OPTIONAL_LOCKS": "0",
}
# a folder from elsewhere may bring a configuration that names programs, or a repository
# among its files
SETTINGS = (
    "core.fsmonitor=false",
    f"core.hooksPath={os.devnull}",
    "protocol.allow=never",
    "submodule.recurse=false",
    "safe.bareRepository=explicit",
)
TIMEOUT_S = 10.0
GitResult = subprocess.CompletedProcess[str]


def git(
    folder: Path,
    *arguments: str,
    settings: tuple[str, ...] = (),
    timeout_s: float = TIMEOUT_S,
    **variables: str,
) -> GitResult:
    """Run git in a folder. The return code of the result is not zero either where git
    is not installed, or takes longer than `timeout_s`.
    """
    environment = {
        name: value for name, value in os.environ.items() if name not in HOOK_VARIABLES
    }
    flags = [part for setting in (*SETTINGS, *settings) for part in ("-c", setting)]
    command = ["git", "--no-pager", "-C", str(folder), *flags, *arguments]
    try:
        return subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="surrogateescape",
            env=environment | ENVIRONMENT | variables,
            start_new_session=True,
            timeout=timeout_s,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as problem:
        return subprocess.CompletedProcess(arguments, 1, "", str(problem))


def head(folder: Path) -> tuple[str | None, bool | None]:
    """The commit that is checked out, and whether files that git knows have changes; in
    place of each None where it is not known.
    """
    answer = git(folder, "rev-parse", "--verify", "HEAD")
    if answer.returncode:
        return None, None
    commit = answer.stdout.strip()
    # a filter is a program: those that the folder's own configuration names are
    # switched off
    listed = git(
        folder,
        "config",
        "--show-scope",
        "-z",
        "--name-only",
        "--get-regexp",
        r"^filter\.",
    ).stdout
    fields = listed.split("\0")
    filters_off = []
    for scope, name in zip(fields[::2], fields[1::2], strict=False):
        if scope not in ("local", "worktree"):
            continue
        if "=" in name:  # no flag of git's can switch such a filter off
            return commit, None
        filters_off.append(
            f"{name}=false" if name.endswith(".required") else f"{name}="
        )
    changes = (
        "--porcelain",
        "--untracked-files=no",
        "--no-renames",
        "--ignore-submodules=dirty",
    )
    status = git(folder, "status", *changes, settings=tuple(filters_off))
    if status.returncode:
        return commit, None
    return commit, bool(status.stdout.strip())
