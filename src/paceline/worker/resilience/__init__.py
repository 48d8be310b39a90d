"""What survives a process: weights on disk and their fingerprint."""
