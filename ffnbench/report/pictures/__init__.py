"""Pictures of answers. matplotlib is at home in these files alone, and is loaded here,
before any of them.

Its import reads a `matplotlibrc` of the current folder, and runs code that stands in it
(before matplotlib 3.11).
"""

import os
import sys
from contextlib import chdir
from pathlib import Path

# matplotlib's defaults, and no window
MATPLOTLIB_ENVIRONMENT = {"MATPLOTLIBRC": os.devnull, "MPLBACKEND": "agg"}


def _load() -> None:
    """Import matplotlib away from the current folder; on the command line without any
    configuration of the user's.

    In Python that stays the user's: ffnbench is a guest there, and pictures have a
    style of their own (canvas.py).
    """
    if "ffnbench.cli" in sys.modules:
        # for good: a picture comes when all has been measured, and nothing is started
        # any more
        os.environ.update(MATPLOTLIB_ENVIRONMENT)
    with chdir(Path(__file__).parent):
        import matplotlib  # noqa: F401


_load()
