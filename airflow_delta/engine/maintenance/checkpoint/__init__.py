"""Checkpoints: whether one is due, of what form, from what base, and the hint that leads to it."""
