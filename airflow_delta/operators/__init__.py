"""Operators: one task of a DAG each."""
