"""Write rows to new files of a table, with row checks, partition values and statistics."""
