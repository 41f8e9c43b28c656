"""How it reads: the only room that formats."""
