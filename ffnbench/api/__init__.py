"""How is it answered? From a plan to a report: counting costs, measuring,
and reading a saved report again.
"""
