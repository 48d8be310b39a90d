"""What lies in tasks/ is what users write, wrongly: it is given to the product, never imported by pytest's doctest collection."""

collect_ignore = ["tasks"]
