"""Metadata cleanup: delete the files of the log that newer checkpoints replace."""
