"""What `env --ceilings` measured last, by fingerprint, in the user's cache folder: for display, never for a verdict.

A file that can't be written is not kept; one that can't be read, or is not what it should be, is none.
"""

from __future__ import annotations

import math
import os
from datetime import datetime
from pathlib import Path

from ffnbench import jsonable
from ffnbench.errors import FfnbenchError
from ffnbench.files import content_of
from ffnbench.report.files.outputs import replace_file
from ffnbench.result import MachineCeilings

MOST_BYTES = 1 << 18


def cache_path(fingerprint: str) -> Path:
    """Where those of a fingerprint are (XDG Base Directory Specification: a relative folder counts as none)."""
    given = os.environ.get("XDG_CACHE_HOME", "")
    folder = Path(given) if os.path.isabs(given) else Path(os.path.expanduser("~"), ".cache")
    return folder / "ffnbench" / f"ceilings-{fingerprint}.json"


def keep_ceilings(found: MachineCeilings) -> bool:
    """Write them; whether that could be done."""
    path = cache_path(found.fingerprint)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, (jsonable.text_of(jsonable.encode(found), indent=1) + "\n").encode())
    except OSError:
        return False
    return True


def kept_ceilings(fingerprint: str) -> MachineCeilings | None:
    """Those that were kept; None where there are none that could be true."""
    try:
        found = jsonable.decode(MachineCeilings, jsonable.parse(content_of(cache_path(fingerprint), most=MOST_BYTES)))
        datetime.fromisoformat(found.created)
    except (FfnbenchError, ValueError, TypeError, OverflowError):
        return None
    numbers = [*found.seconds, *(flops for _, flops in found.peaks)]
    possible = all(math.isfinite(number) and number > 0 for number in numbers) and all(
        side > 0 for roof in found.roofs for side in roof.shape
    )
    whole = len(found.roofs) == len(found.seconds) > 0 and found.fingerprint == fingerprint
    return found if whole and possible else None
