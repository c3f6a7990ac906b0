"""Look a table over for damage and neglect; `checking` is where it begins."""
