"""What a user can ask for, as frozen plain data: settings, tasks, topology, rules. Nothing here starts, measures or imports torch."""
