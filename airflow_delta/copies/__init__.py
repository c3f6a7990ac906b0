"""Copies of a version: their markers, rules, expiry and deletion. No Spark, no Airflow."""
