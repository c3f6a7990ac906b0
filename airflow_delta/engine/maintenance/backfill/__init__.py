"""Backfill: copy the ratified commits of a managed table to its log."""
