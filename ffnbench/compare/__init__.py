"""Which FFN? Variants measured or counted side by side, from the command to the
table.
"""
