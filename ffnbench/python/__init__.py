"""How is it called from Python?"""

CALLS = {  # the public functions, each with the file that has it, loaded when it is asked for
    **dict.fromkeys(("build", "load"), "python.calls"),
    **dict.fromkeys(("compare", "cost"), "compare.python"),
    **dict.fromkeys(("ab", "check"), "gate.python"),
    **dict.fromkeys(("activations", "plot_activations", "time_activations"), "activations.python"),
    "block": "block.python",
}
