"""Benchmarks: the engine beside `deltalake`, job by job, each run in a process of its own."""
