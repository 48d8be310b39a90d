"""One use case per file: it orchestrates the parent's rooms and returns data. Printing belongs to `cli/` and `report/terminal.py`."""
