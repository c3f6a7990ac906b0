"""Change data: what changed between two versions."""
