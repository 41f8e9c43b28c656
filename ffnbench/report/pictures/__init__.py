"""Pictures of answers. matplotlib is at home in these files alone, and is loaded here, before any of them.

Its import reads a `matplotlibrc` of the current folder, and runs code that stands in it (before matplotlib 3.11).
"""

import os
import sys
from pathlib import Path

OWN = {"MATPLOTLIBRC": os.devnull, "MPLBACKEND": "agg"}  # matplotlib's defaults, and no window


def _load() -> None:
    """Import matplotlib away from the current folder; on the command line without any configuration of the user's.

    In Python that stays the user's: ffnbench is a guest there, and pictures have a style of their own (canvas.py).
    """
    here = os.open(".", getattr(os, "O_PATH", os.O_RDONLY))
    before = {name: os.environ.get(name) for name in OWN}
    if "ffnbench.cli" in sys.modules:
        os.environ.update(OWN)
    os.chdir(Path(__file__).parent)
    try:
        import matplotlib  # noqa: F401
    finally:
        os.fchdir(here)
        os.close(here)
        for name, value in before.items():
            os.environ.pop(name, None)
            os.environ.update({} if value is None else {name: value})


_load()
