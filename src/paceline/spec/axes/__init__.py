"""What the values of a setting can do: a table an axis, a row a value. Rules and code read a field of the row and compare no names.

To add a launcher, a sharding, an optimizer or a graph mode: a row here, and the code that the row is about.
"""
