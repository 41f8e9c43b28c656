"""Starts the command line, for `python -m ffnbench` and the console script. Until the
command line is loaded, an interruption ends the process without a word.
"""

import gc
import os
import signal

UNFINISHED, INTERRUPTED = 3, 130
# objects between two garbage collections: imports make many objects, and no garbage
GC_THRESHOLD = 100_000


def main() -> None:
    """Run the command line. Ctrl-C during the imports ends at once: raised there, it
    could become any error.
    """
    gc.set_threshold(GC_THRESHOLD)
    before = signal.signal(signal.SIGINT, lambda *_: os._exit(INTERRUPTED))
    try:
        from ffnbench.app.main import main as run
    except MemoryError:
        os.write(2, b"error: there is not enough memory\n")
        os._exit(UNFINISHED)

    signal.signal(signal.SIGINT, before)
    try:
        run()
    finally:
        # the answer is written: an interruption must not change the exit code
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        # an interruption inside a string that Python evaluates (collections.namedtuple
        # does so, in imports) is remembered, even if it was handled, and ends the
        # process by the signal; evaluating another one forgets it
        eval("0")


if __name__ == "__main__":
    main()
