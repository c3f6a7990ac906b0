"""Profiles of a table's columns, and those made from statistics alone. No Spark, no Airflow."""
