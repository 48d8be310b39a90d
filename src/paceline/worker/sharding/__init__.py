"""What each rank holds of the model, and how N ranks compute the gradient of one. One file a way; `build.py` chooses."""
