"""Delta Spark, the reference engine, as a peer of the tests: its jars, a worker, a fixture."""
