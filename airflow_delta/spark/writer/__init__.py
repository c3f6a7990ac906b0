"""Write a DataFrame to a table, with row checks, partition values and statistics."""
