"""Benchmarks that compare the engine with `deltalake`, job by job, each run in its own process."""
