"""A few rows of a Parquet file, and its footer, with the standard library alone.

This is for the opening of a table, which takes milliseconds, of which importing counts as much as
reading. So values are named tuples here, whose classes are made in a tenth of the time that frozen
data classes take.
"""
