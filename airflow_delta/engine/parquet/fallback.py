"""The exception by which this package leaves a file to pyarrow."""

from __future__ import annotations

__all__ = ["PyarrowFallback"]


class PyarrowFallback(Exception):  # noqa: N818 - not an error, but a request for another way to read
    """This package doesn't read the file; read it with pyarrow.

    The file is damaged, or uses a part of the format that this package doesn't implement. The caller
    doesn't learn which: pyarrow knows the whole format, and reports damage where there is any.
    """
