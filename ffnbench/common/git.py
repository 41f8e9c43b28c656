"""git, asked in a folder: the one way to it. It runs no program that the folder's files
name, and fetches nothing.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

# what git hands to a hook that it runs would lead every git of ours to the wrong
# repository or index
OF_HOOKS = (
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
    """What git says; a return code that is not zero where there is none, or it takes
    longer than `timeout_s`.
    """
    environment = {
        name: value for name, value in os.environ.items() if name not in OF_HOOKS
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
    """The commit that is checked out, and whether files that git knows have changes;
    None where that can't be told.
    """
    answer = git(folder, "rev-parse", "--verify", "HEAD")
    if answer.returncode:
        return None, None
    commit = answer.stdout.strip()
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
