"""From a location to a storage: which kind of store a path or URI names.

==============================  =============================================================
plain path, ``file:/``          the local file system
``memory://``                   the memory of the process
``s3://``, ``s3a://``           Amazon S3 and its look-alikes
``gs://``, ``gcs://``           Google Cloud Storage
``abfs://``, ``abfss://``,      Azure Data Lake Storage
``az://``
schemes that fsspec knows, or   through fsspec, for reading; see `generic`
that were registered with it
==============================  =============================================================

``file:`` URIs are percent-decoded by `open_storage`, as URIs of files are everywhere. Object store
locations are not: there, ``s3://bucket/a%20b`` names the key ``a%20b``, as it does for the vendors'
own tools. Plain paths are taken as they are; ``~`` is not expanded.

A location begins with its scheme. fsspec's way to put one file system before another
(``simplecache::s3://…``) isn't taken for a path, but refused: a cache would hold on to a log that grows,
and in what lies behind it commits might not be kept apart. What is inside an archive has a scheme of its
own: ``zip://<path inside>::<location of the archive>``.
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

# One letter before the colon is no scheme but a drive; a scheme without a slash is a file name. Names in
# fsspec may have an underscore, unlike those of URIs.
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+._-]+):/")
_CHAIN = re.compile(r"[A-Za-z][A-Za-z0-9+._-]*::")

_RETIRED = {
    "wasb": "abfs://<container>@<account>.dfs.core.windows.net/<path>",
    "wasbs": "abfss://<container>@<account>.dfs.core.windows.net/<path>",
    "dbfs": "the location in cloud storage that the DBFS path stands for",
}


def open_storage(uri: str, storage_options: Mapping[str, object] | None = None) -> Storage:
    """The storage whose root is a table's location. No I/O is done.

    Args:
        uri: a path or URI; a trailing slash makes no difference.
        storage_options: credentials and settings of the store; the module of each kind of store
            names them. With ``single_writer`` the user says for any kind that nobody else writes;
            local paths and memory know no other option and ignore them, because what copies from a
            store to a directory has one set of options for both.

    Raises:
        InvalidArgumentError: the location is malformed or of an unknown scheme, or an object store
            doesn't know an option.
        StorageError: the package that the kind of store needs isn't installed.
    """
    scheme = _scheme(uri)
    location = unquote(uri, errors="surrogateescape") if scheme == "file" else uri
    return _open(scheme, location, storage_options or {})


def _scheme(uri: str) -> str | None:
    """The scheme in lower case, or None for a plain path."""
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
    # Each kind of store brings a package of its own: it is imported where it is asked for.
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
    """Tell how to install what a kind of store needs."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise StorageError(
            f"{location!r} can't be opened, because the package {error.name!r} isn't installed: "
            f"pip install 'airflow-delta[{name}]'",
            operation="open",
        ) from error


def _local_path(location: str) -> str:
    """The absolute path that a plain path or a decoded ``file:`` URI names."""
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
    # POSIX leaves open what `//x` means, so pathlib keeps both slashes.
    return "/" + str(Path(path).absolute()).lstrip("/")
