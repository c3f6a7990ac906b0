"""Enable row tracking on a table with data."""
