"""The memory pool in which Arrow parses and decodes."""

from __future__ import annotations

import pyarrow as pa

__all__ = ["decoding_pool"]


def decoding_pool() -> pa.MemoryPool:
    """The memory pool for parsing JSON and decoding Parquet.

    The default pool, mimalloc, returns pages to the system that are needed again at once: most of the time
    of reading a large table was the kernel's. It also takes a quarter more memory.
    """
    backends = pa.supported_memory_backends()
    return pa.jemalloc_memory_pool() if "jemalloc" in backends else pa.system_memory_pool()
