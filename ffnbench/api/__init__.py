"""From a request to a report: planned and priced, measured, read again from a file."""
