"""Commits: who makes the next version of a table, the file system or a commit owner."""
