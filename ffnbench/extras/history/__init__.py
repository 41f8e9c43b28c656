"""Rows of saved runs over time: where they step from one level to another, and at which
commits.
"""
