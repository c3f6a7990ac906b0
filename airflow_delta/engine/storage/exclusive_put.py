"""Find out whether a store honours conditional writes, before a commit relies on them.

Amazon S3, GCS and Azure do. A store that only speaks the S3 protocol may be too old, or behind an old
proxy, and then ignores ``If-None-Match`` silently: a second writer would overwrite the commit of the first
one. So before the first creation in such a store, a process creates a hidden object twice, and deletes it.
The store must refuse the second creation.
"""

from __future__ import annotations

import threading
import uuid
from contextlib import suppress
from typing import Any

from obstore.exceptions import AlreadyExistsError, BaseError

from airflow_delta.engine.errors import NothingWrittenError
from airflow_delta.engine.storage.obstore_errors import describe_error

__all__ = ["honours_conditional_put"]

_TRIED: dict[str, bool] = {}
_LOCK = threading.Lock()


def honours_conditional_put(store: Any, path: str, *, store_name: str) -> bool:
    """Return whether a store refuses to create an object twice. It is tried once in a process.

    Args:
        store: obstore's store.
        path: the path of an object that is about to be created; the trial uses a hidden name beside it.
        store_name: the endpoint and the bucket, for which the result is valid.

    Raises:
        NothingWrittenError: the trial failed; the object itself wasn't sent.
    """
    with _LOCK:
        if store_name in _TRIED:
            return _TRIED[store_name]
        trial = f"{path.rpartition('/')[0]}/.{uuid.uuid4()}.trial.tmp".lstrip("/")
        try:
            return _TRIED.setdefault(store_name, _refuses_second_put(store, trial))
        except (BaseError, OSError) as error:
            raise NothingWrittenError(
                f"create {path!r}: whether {store_name} honours conditional writes can't be tried, "
                f"so nothing was written: {describe_error(error)}",
                path=path,
                operation="create",
            ) from None


def _refuses_second_put(store: Any, trial: str) -> bool:
    store.put(trial, b"trial", mode="create")
    try:
        store.put(trial, b"trial", mode="create")
    except AlreadyExistsError:
        return True
    else:
        return False
    finally:
        # Credentials may lack the permission to delete. That says nothing about the trial, whose hidden
        # object is in nobody's way.
        with suppress(BaseError, OSError):
            store.delete(trial)
