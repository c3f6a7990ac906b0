"""Checkpoints: the reconciled state of a version in Parquet. Reads every form, and writes checkpoints."""
