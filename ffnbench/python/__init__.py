"""How is it called from Python? What the public functions share."""
