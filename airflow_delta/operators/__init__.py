"""Operators of Airflow."""
