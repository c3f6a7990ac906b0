"""Snapshots: the state of a table at one version. As little as possible is loaded, when it is needed."""
