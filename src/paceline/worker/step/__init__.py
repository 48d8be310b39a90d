"""One step: what it computes (`description.py`), on which state (`state.py`), and the executors that run it."""
