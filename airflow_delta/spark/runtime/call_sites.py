"""Make columns without telling the JVM where in the program each was made.

PySpark does that at each operation on a column, for messages about it. It takes ten calls into the JVM
beside the one that makes the column: seconds for a table of hundreds of columns. Our messages don't use it.
The columns that users give were made before, and keep theirs.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pyspark.errors import utils

__all__ = ["without_call_sites"]

_VARIABLE = "_enable_debugging_cache"

_lock = threading.Lock()
_depth = 0
_before: Any = None


@contextmanager
def without_call_sites() -> Iterator[None]:
    """Until the end, PySpark doesn't record where columns are made, in no thread.

    It reads its setting, ``spark.python.sql.dataFrameDebugging.enabled``, once in a process, and keeps it
    in a variable. This sets the variable; where a version of PySpark has none, nothing changes.
    """
    global _before, _depth
    with _lock:
        if not _depth:
            _before = getattr(utils, _VARIABLE, None)
            setattr(utils, _VARIABLE, False)
        _depth += 1
    try:
        yield
    finally:
        with _lock:
            _depth -= 1
            if not _depth:
                setattr(utils, _VARIABLE, _before)
