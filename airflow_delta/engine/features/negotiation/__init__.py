"""Compute the protocol that a table needs, and check changes from one protocol or metadata to the next."""
