"""Programs for spark-submit; `airflow_delta.job_files` describes their parameters and results.

Each is a script: ``spark-submit …/jobs/materialize.py parameters.json``.
"""

from __future__ import annotations

__all__: list[str] = []
