"""Find out whether a store honours conditional writes, before a commit relies on it.

Amazon S3, GCS and Azure are known to. A store that only speaks the S3 protocol may be too old, or
stand behind a proxy that is, and then it ignores ``If-None-Match`` without a word: a second writer
would overwrite the commit of the first. So before the first creation in such a store, a process
writes a hidden object twice and deletes it; the second write must be refused.
"""

from __future__ import annotations

import threading
import uuid
from contextlib import suppress
from typing import Any

from obstore.exceptions import AlreadyExistsError

from airflow_delta.engine.errors import UnsafeStorageError

__all__ = ["prove_exclusive_put"]

_PROVEN: set[str] = set()
_LOCK = threading.Lock()


def prove_exclusive_put(store: Any, path: str, *, store_name: str) -> None:
    """Make sure, once in a process, that a store refuses to create an object twice.

    Args:
        store: obstore's store.
        path: where an object is about to be created; the trial takes a hidden name beside it.
        store_name: what the proof holds for: endpoint and bucket.

    Raises:
        UnsafeStorageError: the store created the object twice.
    """
    with _LOCK:
        if store_name in _PROVEN:
            return
        trial = f"{path.rpartition('/')[0]}/.{uuid.uuid4()}.trial.tmp".lstrip("/")
        store.put(trial, b"trial", mode="create")
        try:
            with suppress(AlreadyExistsError):
                store.put(trial, b"trial", mode="create")
                raise UnsafeStorageError(
                    f"{store_name} ignores 'If-None-Match', so that writers would overwrite each "
                    "other's commits; use a version of the store that honours conditional writes",
                    path=path,
                    operation="create",
                )
        finally:
            store.delete(trial)
        _PROVEN.add(store_name)
