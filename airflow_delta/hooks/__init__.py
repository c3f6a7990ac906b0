"""What tasks reach outside systems with: `DeltaHook` (the engine) and `SparkJobHook`."""
