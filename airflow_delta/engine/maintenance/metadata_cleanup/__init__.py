"""Metadata cleanup: delete the files of the log that the newest checkpoints replace."""
