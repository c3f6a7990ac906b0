"""Submit Spark jobs: check the installation and the master, and call spark-submit."""
