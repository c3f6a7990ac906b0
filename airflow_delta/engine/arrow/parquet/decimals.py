"""Convert the decimals in the statistics of Parquet footers, which store them as unscaled integers.

Python rounds the results of most operations on decimals to 28 digits; Delta's decimals have up to 38. A
rounded minimum or maximum is no bound any more, and readers that skip files by it lose rows. So decimals
are built from their digits here, which rounds nothing.

Spec: PROTOCOL.md, "Per-file Statistics"; LogicalTypes.md of Apache Parquet, "DECIMAL".
"""

from __future__ import annotations

from decimal import Decimal

__all__ = ["decimal_of", "unscaled_of"]


def decimal_of(raw: int | bytes, scale: int) -> Decimal:
    """The exact value of a decimal in the statistics of a footer.

    Args:
        raw: the physical value: an integer, or its big-endian bytes in two's complement.
        scale: the scale of the column's type.
    """
    unscaled = unscaled_of(raw)
    digits = tuple(map(int, str(abs(unscaled))))
    return Decimal((int(unscaled < 0), digits, -scale))


def unscaled_of(raw: int | bytes) -> int:
    """The unscaled integer of a physical value; see `decimal_of`."""
    return int.from_bytes(raw, "big", signed=True) if isinstance(raw, bytes) else int(raw)
