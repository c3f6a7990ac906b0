"""Actions of checkpoints, from Parquet files to Arrow columns."""
