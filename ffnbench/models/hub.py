"""The config.json of a model's name in the cache that downloads from Hugging Face's hub leave on this disk.

Nothing is downloaded, and the network is never asked. The cache is $HF_HUB_CACHE, else $HUGGINGFACE_HUB_CACHE, else
`hub` in $HF_HOME, which is `huggingface` in $XDG_CACHE_HOME or ~/.cache by default.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from difflib import SequenceMatcher
from pathlib import Path

from ffnbench.errors import FfnbenchError
from ffnbench.files import content_of

PART = r"[A-Za-z0-9_](?:[\w.-]{0,94}[\w-])?"
NAME = re.compile(rf"(?:{PART}/)?{PART}", re.ASCII)
COMMIT = re.compile(r"[\w-][\w.-]{0,99}", re.ASCII)
TOKEN = re.compile(r"[a-z]+|\d[\d.]*(?:x\d+)?[a-z]*")


def is_name(text: str) -> bool:
    """Whether it may be a model of the hub: ORG/NAME or NAME, which can't lead out of the cache."""
    return bool(NAME.fullmatch(text)) and ".." not in text and "--" not in text and not text.endswith(".json")


def cache_folder() -> Path:
    """Where the cache is; it need not be there."""
    for variable in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        if folder := os.environ.get(variable):
            return _expanded(folder)
    if home := os.environ.get("HF_HOME"):
        return _expanded(home) / "hub"
    return _expanded(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "huggingface" / "hub"


def _expanded(folder: str) -> Path:
    return Path(os.path.expanduser(os.path.expandvars(folder)))


def cached_config(name: str) -> Path | None:
    """The config.json of a name in the cache; None where there is none, FfnbenchError where there are several."""
    if not is_name(name):
        return None
    model = cache_folder() / f"models--{name.replace('/', '--')}"
    try:
        return _of_main(model) or _of_the_only_snapshot(model, name)
    except OSError as problem:
        raise FfnbenchError(
            f"cannot look for {name!r} in {str(model)!r}: {problem.strerror or problem}",
            "give the path of a config.json",
        ) from problem


def _of_main(model: Path) -> Path | None:
    """That of the commit that `main` was when it was downloaded."""
    if not (main := model / "refs" / "main").is_file():
        return None
    commit = content_of(main).decode("ascii", "replace").strip()
    config = model / "snapshots" / commit / "config.json"
    return config if COMMIT.fullmatch(commit) and config.is_file() else None


def _of_the_only_snapshot(model: Path, name: str) -> Path | None:
    found = sorted(model.glob("snapshots/*/config.json"))
    if len(found) > 1:
        listed = ", ".join(path.parent.name for path in found)
        raise FfnbenchError(
            f"{name!r} is in the hub's cache with {len(found)} snapshots, and none of them is main: {listed}",
            f"give the path of one: {str(found[0])!r}",
        )
    return found[0] if found else None


def nearest(name: str, known: Mapping[str, str]) -> str | None:
    """The key whose own name, or title, is most like a model's name on the hub; None where no family is the same."""
    wanted = _tokens(name.rpartition("/")[2])
    family = [key for key, title in known.items() if wanted and wanted[0] in _tokens(f"{key} {title}")]

    def likeness(key: str) -> tuple[float, float]:
        there = set(_tokens(f"{key} {known[key]}"))
        same = sum(token in there for token in wanted)
        return same, SequenceMatcher(a="".join(wanted), b="".join(_tokens(key))).ratio()

    return max(family, key=likeness, default=None)


def _tokens(text: str) -> list[str]:
    """Words and numbers: `Llama-3.1-8B` is llama, 3.1, 8b."""
    return TOKEN.findall(text.lower())
