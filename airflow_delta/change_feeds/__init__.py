"""Change feeds: the requests, the targets and their progress. No Spark, no Airflow."""
