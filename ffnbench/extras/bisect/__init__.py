"""Which commit made a module slower? Commits between a good and a bad one are measured,
each beside the good one.
"""
