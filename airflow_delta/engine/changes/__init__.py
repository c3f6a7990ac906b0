"""Change data feed: which files contain the changes between two versions."""
