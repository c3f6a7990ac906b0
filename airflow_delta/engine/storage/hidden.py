"""Names for files in the making: hidden from readers, and known to a clean-up as leftovers."""

from __future__ import annotations

import uuid

__all__ = ["make_hidden_name"]

# Keeps the name below the usual limit of 255 bytes, whatever the final one.
_KEPT = 48


def make_hidden_name(name: str) -> str:
    """A new name for the file that is to get a name: ``.<name>.<uuid>.tmp``, in the same directory."""
    return f".{name[:_KEPT]}.{uuid.uuid4()}.tmp"
