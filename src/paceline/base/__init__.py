"""The ground: errors, names, files, the lazy registry. It stands on nothing and knows nothing of training."""
