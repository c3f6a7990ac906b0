"""Example DAGs, installed with the package; each module is one DAG with params.

Airflow finds one of them by a file in its DAGs folder that imports it::

    from airflow_delta.example_dags.delta_table_maintenance import dag

A copy of the module there does as well, and may be changed.
"""

from __future__ import annotations

__all__: list[str] = []
