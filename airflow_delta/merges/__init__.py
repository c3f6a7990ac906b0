"""Merges: their clauses. No Spark, no Airflow."""
