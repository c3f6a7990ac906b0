"""Read the actions of checkpoints from Parquet files into Arrow columns, with pyarrow."""
