"""Records to findings: intervals, differences, verdicts. It reads and computes; it lays out and prints nothing."""
