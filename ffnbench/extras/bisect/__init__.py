"""Which commit made a module slower: commits between a good and a bad one, each
measured beside the good one.
"""
