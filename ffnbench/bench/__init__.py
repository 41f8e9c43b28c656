"""How it is measured: the only room that starts processes."""
