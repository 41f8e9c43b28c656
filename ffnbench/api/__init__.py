"""From a request to a report: planned, its costs counted, measured, read again from a
file.
"""
