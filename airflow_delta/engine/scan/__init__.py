"""Scans: which files can hold rows that match a predicate."""
