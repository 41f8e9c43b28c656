"""Rows of saved runs over time: at which commits they step to another level."""
