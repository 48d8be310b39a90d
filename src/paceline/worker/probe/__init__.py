"""Before a run of a user's task: how its loss and its scores recombine from parts of a batch. Computed, not guessed; it trains nothing."""
