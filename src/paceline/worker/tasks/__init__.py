"""What is trained: the task interface, the built-in tasks, and batching. Nothing here knows precision, sharding or the launcher."""
