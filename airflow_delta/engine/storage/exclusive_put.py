"""Find out whether a store honours conditional writes, before a commit relies on it.

Amazon S3, GCS and Azure are known to. A store that only speaks the S3 protocol may be too old, or
stand behind a proxy that is, and then it ignores ``If-None-Match`` without a word: a second writer
would overwrite the commit of the first. So before the first creation in such a store, a process
writes a hidden object twice and deletes it; the second write must be refused.
"""

from __future__ import annotations

import threading
import uuid
from typing import Any

from obstore.exceptions import AlreadyExistsError, BaseError

from airflow_delta.engine.errors import NothingWrittenError
from airflow_delta.engine.storage.obstore_errors import reason

__all__ = ["honours_conditional_put"]

_TRIED: dict[str, bool] = {}
_LOCK = threading.Lock()


def honours_conditional_put(store: Any, path: str, *, store_name: str) -> bool:
    """Try, once in a process, whether a store refuses to create an object twice.

    Args:
        store: obstore's store.
        path: where an object is about to be created; the trial takes a hidden name beside it.
        store_name: what the proof holds for: endpoint and bucket.

    Returns:
        Whether the store does; False where it created the object twice.

    Raises:
        NothingWrittenError: it can't be tried; the object that is to be created was not sent.
    """
    with _LOCK:
        if store_name in _TRIED:
            return _TRIED[store_name]
        trial = f"{path.rpartition('/')[0]}/.{uuid.uuid4()}.trial.tmp".lstrip("/")
        try:
            return _TRIED.setdefault(store_name, _refuses_a_second(store, trial))
        except (BaseError, OSError) as error:
            raise NothingWrittenError(
                f"create {path!r}: whether {store_name} honours conditional writes can't be tried, "
                f"and so nothing was written: {reason(error)}",
                path=path,
                operation="create",
            ) from None


def _refuses_a_second(store: Any, trial: str) -> bool:
    store.put(trial, b"trial", mode="create")
    try:
        store.put(trial, b"trial", mode="create")
    except AlreadyExistsError:
        return True
    else:
        return False
    finally:
        store.delete(trial)
