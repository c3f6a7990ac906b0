"""Changes of rows as users give them: new values and the clauses of a merge. No Spark, no Airflow."""
