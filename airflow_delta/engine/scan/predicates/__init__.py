"""Predicates as users write them: SQL-like text, tuples, or a pyarrow expression. See `reading`.

``text`` and ``tuples`` each parse one form into the same small tree (``nodes``); ``typing`` turns the tree
into a `pyarrow.compute.Expression`, with constants (``constants``) of the types that the table's columns
have. From there on there is one form, which `airflow_delta.engine.scan.expressions` reads.
"""
