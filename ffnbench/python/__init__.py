"""How is it called from Python?"""

CALLS = {  # the public functions, each with the file that has it, loaded when it is asked for
    **dict.fromkeys(("ab", "build", "check", "compare", "cost", "load"), "python.calls"),
    **dict.fromkeys(("activations", "plot_activations", "time_activations"), "activations.python"),
    "block": "block.python",
}
