"""What lies in tasks/ is what users write, wrongly: it is given to the product, never imported by pytest's doctest collection."""

from e2e.box import box

__all__ = ["box"]

collect_ignore = ["tasks"]
