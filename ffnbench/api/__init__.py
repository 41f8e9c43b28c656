"""How is it answered? From a request to a report: planning, counting costs, measuring,
and reading a saved report again.
"""
