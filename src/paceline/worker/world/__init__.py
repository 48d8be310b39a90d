"""Rank, process group and the few collectives we use: how a process knows who it is and talks to the others."""
