"""Show Airflow the example DAG of this name."""

from __future__ import annotations

from airflow_delta.example_dags.delta_managed_commits import dag

__all__ = ["dag"]
