"""Write a DataFrame to a table: its rules for rows, its partitions and its statistics."""
