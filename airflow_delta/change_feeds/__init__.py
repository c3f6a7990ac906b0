"""Change feeds: what is read, where it is appended, how far a feed has come. No Spark, no Airflow."""
