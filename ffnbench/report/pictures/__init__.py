"""Pictures of answers. Only these files use matplotlib, which is loaded here, before
any of them.

When matplotlib is imported it reads a `matplotlibrc` of the current folder, and before
version 3.11 it runs code that stands there.
"""

import os
import sys
from contextlib import chdir
from pathlib import Path

# matplotlib's defaults, and no window
MATPLOTLIB_ENVIRONMENT = {"MATPLOTLIBRC": os.devnull, "MPLBACKEND": "agg"}


def _load() -> None:
    """Import matplotlib from another folder than the current one; on the command line
    also without the user's configuration.

    In Python the configuration of the user's process is not changed. Pictures have
    their own style in both (canvas.py).
    """
    main = getattr(sys.modules["__main__"], "__spec__", None)
    of_module = main is not None and main.name == "ffnbench.__main__"
    if of_module or "ffnbench.__main__" in sys.modules:  # or of the script
        # these variables stay set: a picture is drawn when all has been measured, and
        # no process is started after it
        os.environ.update(MATPLOTLIB_ENVIRONMENT)
    with chdir(Path(__file__).parent):
        import matplotlib  # noqa: F401


_load()
