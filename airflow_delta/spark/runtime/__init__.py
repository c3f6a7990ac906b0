"""Shared by all Spark jobs: the session, Hadoop's settings and locations, readable errors."""
