"""Profile the columns of a table with Spark."""
