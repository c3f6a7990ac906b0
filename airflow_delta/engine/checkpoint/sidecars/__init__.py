"""Sidecars of V2 checkpoints: how files are spread over them, written, tagged and reused."""
