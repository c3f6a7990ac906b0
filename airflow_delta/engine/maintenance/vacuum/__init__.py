"""Vacuum: delete data files that no version within the retention needs."""
