"""Report the datasets of tasks to OpenLineage."""
