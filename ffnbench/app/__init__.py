"""How is it asked? The commands, from a shell and from Python: flags, defaults, errors
and exit codes.
"""
