"""Actions as Arrow columns: their types, and how they are read from JSON and Parquet."""
