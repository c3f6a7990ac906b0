"""Backfill: publish the ratified commits of a managed table in its log."""
