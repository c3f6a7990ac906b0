"""`DeltaTable`, the entrance to the engine, with its methods by subject."""

from airflow_delta.engine.table.delta_table import DeltaTable

__all__ = ["DeltaTable"]
