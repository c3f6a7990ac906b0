"""Apache Airflow provider for Delta Lake tables, with its own Delta log engine.

Three layers, one direction of imports:

* ``airflow_delta.engine``: reads, writes and maintains Delta logs; knows neither Airflow nor Spark.
* ``airflow_delta.spark``: PySpark readers, writers and submitted jobs, on top of the engine.
* ``airflow_delta.operators``, ``sensors``, ``triggers``, ``hooks``: what a DAG uses. They reach the
  engine through ``airflow_delta.hooks`` only.

Importing this package loads nothing heavy: no Airflow, no PySpark, no PyArrow.
"""

from airflow_delta.engine.version import VERSION

__all__ = ["__version__"]

__version__ = VERSION
