"""Sidecars of V2 checkpoints: layout, tags, writing and reuse."""
