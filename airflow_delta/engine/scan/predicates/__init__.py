"""Predicates as users write them: SQL-like text, tuples, or a pyarrow expression. See `reading`.

``text`` and ``tuples`` parse two forms into the same tree (``nodes``). ``typing`` converts the tree to a
`pyarrow.compute.Expression`, with constants (``constants``) in the types of the columns. All three forms
continue as an expression, which `airflow_delta.engine.scan.expressions` reads.
"""
