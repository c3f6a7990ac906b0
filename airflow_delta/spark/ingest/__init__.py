"""Write a DataFrame to a table: the modes, the replacement of rows, and the compaction after a write."""
