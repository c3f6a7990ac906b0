"""Code about sources of rows that hooks and Spark share: how a job's parameters describe them."""
