"""The ``airflow-delta`` command: look at tables without Airflow and without Spark."""
