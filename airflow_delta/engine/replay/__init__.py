"""Action reconciliation: the state of a table from batches of actions; knows no files."""
