"""Actions as Arrow: their types, and reading and writing them as JSON and Parquet."""
