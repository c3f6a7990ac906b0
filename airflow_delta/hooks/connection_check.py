"""The test of a connection of type ``delta``: does the store accept what it says?

The test lists the log of the table at the extra ``test_location``, and reads one byte of it if there is
one. That changes nothing. Its message says what was tried, and never contains a secret.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airflow_delta.hooks.storage_options import TEST_LOCATION, secrets, store_of

__all__ = ["check_connection"]

_LOG = "_delta_log"
_STORES = frozenset({"S3", "Google Cloud Storage", "Azure"})
# Somebody waits for the answer.
_PATIENCE = {"max_retries": "1", "connect_timeout": "5s", "timeout": "20s"}
_HIDDEN = "***"


def check_connection(location: str, options: Mapping[str, Any]) -> tuple[bool, str]:
    """Try whether the log of a table can be listed and read.

    :param location: the location of a table, or of a directory of tables; may be empty.
    :param options: the storage options of the connection.
    :returns: whether the store accepts the credentials, and what was tried.
    """
    if not location:
        return False, (
            "nothing was tried, since the connection doesn't say where: put the location of a table, such "
            f"as s3://lake/sales, into the field {TEST_LOCATION!r}"
        )
    if store_of(location) not in _STORES:
        from airflow_delta.engine.public_text import without_user

        return False, (
            "nothing was tried: the test is for locations in S3, Google Cloud Storage and Azure, and "
            f"{without_user(location)!r} isn't one. A task that runs on the worker can try it"
        )
    try:
        names = {name.lower() for name in options}
        patience = {name: value for name, value in _PATIENCE.items() if name not in names}
        passed, message = _look(location, {**options, **patience})
    except Exception as error:  # noqa: BLE001 - whatever it is, its text is the answer
        passed, message = False, f"{type(error).__name__}: {error}"
    for secret in secrets(options):
        message = message.replace(secret, _HIDDEN)
    return passed, message


def _look(location: str, options: Mapping[str, Any]) -> tuple[bool, str]:
    # Imported here, so that parsing a DAG file is fast.
    from airflow_delta.engine.storage.location import open_storage

    storage = open_storage(location, options)
    found = next((info for info in storage.list(_LOG) if info.size), None)
    if found is None:
        tried = f"listed {storage.root}/{_LOG}, where no Delta table is; reading and writing weren't tried"
    else:
        storage.read(found.path, length=1)
        tried = (
            f"listed {storage.root}/{_LOG}, and read a byte of {found.path}; writing wasn't tried"
        )
    return (
        True,
        f"{tried}. What the connection doesn't say came from the environment of this machine",
    )
