"""Example DAGs, installed with the package; each module is one DAG with params.

To use one, import it in a file in Airflow's DAGs folder::

    from airflow_delta.example_dags.delta_table_maintenance import dag

Or copy the module there, and change it.
"""

from __future__ import annotations

__all__: list[str] = []
