"""`paceline doctor`: what this machine can do, and what it lacks for the rest. It looks and tries; it changes nothing."""
