"""Merge the rows of a source into a table: update, delete and insert rows by a condition, as one commit."""
