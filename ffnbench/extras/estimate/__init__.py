"""Bounds on the time of variants on machines that are not here, by published peaks."""
