"""What cannot be done together, and why: a file a subject, all of them collected in `table.py`.

Flat: a rule calls no other and changes no spec. It reads a field of a table in `spec/axes/`, and compares no names of them.
"""
