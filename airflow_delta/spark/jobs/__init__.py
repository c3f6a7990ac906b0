"""Programs for spark-submit; `airflow_delta.job_files` says how they are called.

Each runs as a script: ``spark-submit …/jobs/materialize.py parameters.json``.
"""

from __future__ import annotations

__all__: list[str] = []
