"""Find the files that a vacuum deletes with Spark."""
