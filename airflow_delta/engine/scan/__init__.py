"""Scans: which files can hold rows that match a predicate.

A predicate is a `pyarrow.compute.Expression` over the table's logical columns. It is read once into
a small tree (`expressions`), and asked of each file: may a row of it make this true? What is known
of a file are the bounds of its columns (`bounds`): exact ones of partition columns
(`partition_bounds`), and those that statistics give (`statistics_bounds`). `may_match` answers for
all files at once; `file_pruner` puts it together.

The answer may be "yes" without need, never "no" wrongly: whatever isn't known, understood or
well-formed keeps the file.

(Elsewhere the engine avoids the functions of pyarrow that import pandas where it's installed. Here
that would be in vain: to make an expression of a Python value is one of them.)
"""
