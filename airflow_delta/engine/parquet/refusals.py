"""How this package says that a file is not for it.

It reads the part of Parquet that checkpoints of Delta tables are made of, and only where every byte
it looks at is as expected. All else, damage included, is refused with one exception, which says
nothing about who is at fault: the caller lets pyarrow read the file, which knows all of the format
and tells damage from what is merely rare.
"""

from __future__ import annotations

__all__ = ["NotReadHere"]


class NotReadHere(Exception):  # noqa: N818 - no error of the file's or the caller's, but a refusal
    """The file is damaged, or written in a way that this package doesn't know; ask pyarrow."""
