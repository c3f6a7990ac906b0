"""Names for files that are being written: hidden from readers, and known to a clean-up as leftovers."""

from __future__ import annotations

import uuid

__all__ = ["make_hidden_name"]

# The number of characters of the final name that are kept. The usual limit of a name is 255 bytes.
_KEPT = 48


def make_hidden_name(name: str) -> str:
    """Make a hidden name for a file until it gets its final name: ``.<name>.<uuid>.tmp``."""
    return f".{name[:_KEPT]}.{uuid.uuid4()}.tmp"
