"""Unique texts for ids and physical names."""

from __future__ import annotations

import uuid

__all__ = ["unique_text"]


def unique_text() -> str:
    """Make a random UUID."""
    return str(uuid.uuid4())
