"""Plan and write checkpoints, and the hint that points to them."""
