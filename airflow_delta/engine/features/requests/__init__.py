"""Compute protocol and metadata from what a user requests by table properties."""
