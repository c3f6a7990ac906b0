"""Transactions: the one way to change a table."""
