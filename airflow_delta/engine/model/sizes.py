"""Sizes in bytes as text."""

from __future__ import annotations

__all__ = ["rounded_size", "size_text"]

_UNITS = ("KiB", "MiB", "GiB", "TiB", "PiB", "EiB")


def size_text(size: int) -> str:
    """A size for people, rounded and exact, such as ``1.2 GiB (1,288,490,189 bytes)``.

    Below 1 KiB it is the exact size alone, such as ``1 byte``.

    Args:
        size: the number of bytes.
    """
    exact = f"{size:,} byte{'' if size == 1 else 's'}"
    rounded = rounded_size(size)
    return exact if rounded == exact else f"{rounded} ({exact})"


def rounded_size(size: int) -> str:
    """A size for people, such as ``1.2 GiB``; below 1 KiB the exact size, such as ``1 byte``.

    Args:
        size: the number of bytes.
    """
    scaled, name = float(size), ""
    for unit in _UNITS:
        # A size that rounds to 1024.0 of a unit is written as 1.0 of the next.
        if round(scaled, 1) < 1024:
            break
        scaled, name = scaled / 1024, unit
    return f"{scaled:.1f} {name}" if name else f"{size:,} byte{'' if size == 1 else 's'}"
