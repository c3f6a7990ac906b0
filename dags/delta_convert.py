"""Show Airflow the example DAG of this name."""

from __future__ import annotations

from airflow_delta.example_dags.delta_convert import dag

__all__ = ["dag"]
