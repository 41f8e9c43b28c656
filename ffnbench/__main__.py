"""`python -m ffnbench` and the console script: an interruption is silent until the
command line is there to tell it.
"""

import gc
import os
import signal

UNFINISHED, INTERRUPTED = 3, 130
# objects between two looks for garbage: imports make many and leave none
SELDOM = 100_000


def main() -> None:
    """Run the command line. Ctrl-C during the imports ends at once: raised there, it
    could become any error.
    """
    gc.set_threshold(SELDOM)
    before = signal.signal(signal.SIGINT, lambda *_: os._exit(INTERRUPTED))
    try:
        from ffnbench.cli.app import main as run
    except MemoryError:
        os.write(2, b"error: there is not enough memory\n")
        os._exit(UNFINISHED)

    signal.signal(signal.SIGINT, before)
    try:
        run()
    finally:
        # the answer stands, and so does its code
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        # an interruption inside a string that Python evaluates (collections.namedtuple
        # does so, in imports) is remembered, even if it was handled, and ends the
        # process by the signal; evaluating another one forgets it
        eval("0")


if __name__ == "__main__":
    main()
