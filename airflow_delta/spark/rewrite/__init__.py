"""Rewrite data files with Spark so that a table feature can be dropped."""
