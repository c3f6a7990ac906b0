"""Texts that no two calls make the same, for ids and physical names."""

from __future__ import annotations

import uuid

__all__ = ["unique_text"]


def unique_text() -> str:
    """A text that no other call has made or will make: a random UUID."""
    return str(uuid.uuid4())
