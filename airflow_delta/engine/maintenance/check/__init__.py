"""Check a table for damage and neglect; `checking` runs all checks."""
