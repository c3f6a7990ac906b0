"""Checkpoints: the reconciled state of a version in Parquet, read in every form and written."""
