"""Update rules, a file each: how torch builds it, its formula in a graph, what it keeps. A new one is a file and a row of `table.py`."""
