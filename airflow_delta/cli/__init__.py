"""The ``airflow-delta`` command: inspect and maintain tables without Airflow and Spark."""
