"""The rules of a table for its rows, as conditions of Spark."""
