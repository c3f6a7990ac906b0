"""Write checkpoints of large logs with Spark."""
