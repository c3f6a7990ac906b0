"""Open the storage for a path or URI.

==============================  =============================================================
plain path, ``file:/``          the local file system
``memory://``                   the memory of the process
``s3://``, ``s3a://``           Amazon S3 and other servers with its protocol
``gs://``, ``gcs://``           Google Cloud Storage
``abfs://``, ``abfss://``,      Azure Data Lake Storage
``az://``
other schemes of fsspec         through fsspec, for reading; see `generic`
==============================  =============================================================

`open_storage` percent-decodes ``file:`` URIs, like all programs do. It doesn't decode the URIs of object
stores: ``s3://bucket/a%20b`` names the key ``a%20b``, as in the vendors' own tools. Plain paths are taken
as they are; ``~`` isn't expanded.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

from airflow_delta.engine.errors import InvalidArgumentError, StorageError
from airflow_delta.engine.storage.local import LocalStorage
from airflow_delta.engine.storage.memory import MemoryStorage
from airflow_delta.engine.storage.single_writer import is_single_writer

if TYPE_CHECKING:
    from airflow_delta.engine.storage.base import Storage

__all__ = ["open_storage"]

# A single letter before the colon is a drive. Without a slash after the colon it is a file name. Schemes of
# fsspec may have an underscore, unlike those of URIs.
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+._-]+):/")
# fsspec's chains of file systems, such as ``simplecache::s3://…``, are refused: a cache would miss new
# commits, and the inner file system may not keep commits apart. An archive has its own scheme:
# ``zip://<path inside>::<location>``.
_CHAIN = re.compile(r"[A-Za-z][A-Za-z0-9+._-]*::")

_RETIRED = {
    "wasb": "abfs://<container>@<account>.dfs.core.windows.net/<path>",
    "wasbs": "abfss://<container>@<account>.dfs.core.windows.net/<path>",
    "dbfs": "the location in cloud storage that the DBFS path stands for",
}


def open_storage(uri: str, storage_options: Mapping[str, object] | None = None) -> Storage:
    """Open the storage whose root is a table's location. Only fsspec's file systems may do I/O here.

    Args:
        uri: a path or URI; a trailing slash makes no difference.
        storage_options: credentials and settings of the store; the module of each kind of store lists them.
            Any kind of store has ``single_writer``, by which the user says that nobody else writes. Local
            paths and memory ignore all other options, because a copy from a store to a directory has one
            set of options for both.

    Raises:
        InvalidArgumentError: the location is malformed or has an unknown scheme, or an object store doesn't
            know an option.
        StorageError: the package that the kind of store needs isn't installed.
    """
    scheme = _scheme(uri)
    location = unquote(uri, errors="surrogateescape") if scheme == "file" else uri
    return _open(scheme, location, storage_options or {})


def _scheme(uri: str) -> str | None:
    """Return the scheme in lower case; None for a plain path."""
    if not uri or "\0" in uri:
        raise InvalidArgumentError(f"{uri!r} isn't a location: expected a path or a URI", uri=uri)
    if chain := _CHAIN.match(uri):
        raise InvalidArgumentError(
            f"{uri!r} begins with {chain[0]!r}, a file system before another: expected a path or a URI "
            "that begins with its scheme; to read from a ZIP archive zip://<path inside>::<location of "
            "the archive>; for a directory of this name put './' before it",
            uri=uri,
        )
    match = _SCHEME.match(uri)
    scheme = match.group(1).lower() if match else None
    if scheme in _RETIRED:
        raise InvalidArgumentError(
            f"{uri!r}: the scheme {scheme!r} isn't supported; use {_RETIRED[scheme]}", uri=uri
        )
    return scheme


def _open(scheme: str | None, location: str, options: Mapping[str, object]) -> Storage:
    single_writer = is_single_writer(options, uri=location)
    # Each kind of store needs another package, so it is imported only if it is used.
    match scheme:
        case None | "file":
            return LocalStorage(_local_path(location), single_writer=single_writer)
        case "memory":
            return MemoryStorage(location)
        case "s3" | "s3a":
            with _extra("s3", location):
                from airflow_delta.engine.storage.s3 import open_s3
            return open_s3(location, options)
        case "gs" | "gcs":
            with _extra("gcs", location):
                from airflow_delta.engine.storage.gcs import open_gcs
            return open_gcs(location, options)
        case "abfs" | "abfss" | "az":
            with _extra("azure", location):
                from airflow_delta.engine.storage.azure import open_azure
            return open_azure(location, options)
        case _:
            from airflow_delta.engine.storage.generic import open_generic

            return open_generic(location, options)


@contextmanager
def _extra(name: str, location: str) -> Iterator[None]:
    """Turn a missing package into an error that says how to install it."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise StorageError(
            f"{location!r} can't be opened, because the package {error.name!r} isn't installed: "
            f"pip install 'airflow-delta[{name}]'",
            operation="open",
        ) from error


def _local_path(location: str) -> str:
    """Return the absolute path that a plain path or a decoded ``file:`` URI names."""
    path = location
    if _SCHEME.match(location):
        path = location.partition(":")[2]
        if path.startswith("//"):
            host, _, rest = path[2:].partition("/")
            if host not in ("", "localhost"):
                raise InvalidArgumentError(
                    f"{location!r} names the host {host!r}: expected file:///<path>", uri=location
                )
            path = f"/{rest}"
    # POSIX doesn't define `//x`, so pathlib keeps both slashes.
    return "/" + str(Path(path).absolute()).lstrip("/")
