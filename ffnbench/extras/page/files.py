"""The files that it writes, by suffix."""

from ffnbench.extras.page.page import page_of

WRITERS = {".html": page_of}
