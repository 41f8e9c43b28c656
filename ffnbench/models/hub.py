"""The config.json of a model's name in the cache that downloads from Hugging Face's hub leave on this disk.

Nothing is downloaded, and the network is never asked. The cache is $HF_HUB_CACHE, else `hub` in $HF_HOME, which is
`huggingface` in $XDG_CACHE_HOME or ~/.cache by default.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from ffnbench.files import content_of

PART = r"[A-Za-z0-9_](?:[\w.-]{0,94}[\w-])?"
NAME = re.compile(rf"(?:{PART}/)?{PART}", re.ASCII)


def is_name(text: str) -> bool:
    """Whether it may be a model of the hub: ORG/NAME or NAME, which can't lead out of the cache."""
    return bool(NAME.fullmatch(text)) and ".." not in text and "--" not in text and not text.endswith(".json")


def cache_folder() -> Path:
    """Where the cache is; it need not be there."""
    home = os.environ.get("HF_HOME") or os.environ.get("XDG_CACHE_HOME", "~/.cache") + "/huggingface"
    return Path(os.path.expandvars(os.environ.get("HF_HUB_CACHE") or home + "/hub")).expanduser()


def cached_config(name: str) -> Path | None:
    """The config.json of a name in the cache: of the commit that `main` was when it was downloaded, else of the only
    snapshot; None where there is none that can be read.
    """
    if not is_name(name):
        return None
    model = cache_folder() / f"models--{name.replace('/', '--')}"
    if os.path.isfile(main := model / "refs" / "main"):
        config = model / "snapshots" / content_of(main).decode("ascii", "replace").strip() / "config.json"
        if os.path.isfile(config):
            return config
    found = list(model.glob("snapshots/*/config.json"))
    return found[0] if len(found) == 1 else None
