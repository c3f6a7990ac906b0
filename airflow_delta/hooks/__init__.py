"""Airflow hooks: `DeltaHook` (the engine), `CommitOwnerHook` and `SparkJobHook`."""
