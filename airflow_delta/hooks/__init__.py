"""What tasks reach outside systems with: `DeltaHook` (the engine), `CommitOwnerHook`, `SparkJobHook`."""
