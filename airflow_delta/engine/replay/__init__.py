"""Action reconciliation: the state of a table from batches of actions, without any file access."""
