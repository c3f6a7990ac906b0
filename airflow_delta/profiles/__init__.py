"""Profiles of tables: their definition, and profiles from statistics. No Spark, no Airflow."""
