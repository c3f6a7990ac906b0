"""Snapshots: the state of a table at one version, loaded as little and as late as can be."""
