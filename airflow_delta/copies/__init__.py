"""Copies of a version: where one is, when it expires, and its deletion. No Spark, no Airflow."""
