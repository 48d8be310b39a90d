"""A cluster in a box: several machines, a network between them and a real Slurm, all on this one Linux machine.
It knows nothing of tasks or runs, and it touches nothing outside `/run/paceline/cluster` and the namespaces it makes."""
