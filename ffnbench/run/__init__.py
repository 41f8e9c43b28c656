"""How is it measured? The parent's part: the only room that starts processes."""
