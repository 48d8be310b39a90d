"""What runs leave behind: the run directory, events, outcomes, records, findings. It reads and writes them; it computes no statistics."""
