"""Convert the engine's locations to paths and URIs of Hadoop's file systems.

The engine's locations, such as ``/data/a b`` and ``s3://bucket/key``, are decoded and literal.
Hadoop needs the scheme of one of its connectors, and has two forms:

* `hadoop_path`: literal text, for calls that take a path from a user (``DataFrameWriter.parquet``);
* `hadoop_uri`: encoded like ``java.net.URI``, the form of ``_metadata.file_path``.

`hadoop_uris` converts all files of a table at once, a million in a second or two. Spark opens any
URI with its own credentials. So it also checks that the table may read each location, and uses the
user's spelling of the store, never the log's (`FileAccess`).
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from airflow_delta.engine.arrow.python_arrays import array_of
from airflow_delta.engine.errors import InvalidArgumentError
from airflow_delta.engine.model.paths import encode_path, resolve
from airflow_delta.engine.storage.file_access import FileAccess

__all__ = ["RENAMED_AT_ONCE", "hadoop_path", "hadoop_uri", "hadoop_uris"]

RENAMED_AT_ONCE = frozenset({"file", "hdfs"})
"""The schemes of the file systems in which a directory is renamed in one step, files and all.

Not ``viewfs``, which may have an object store behind it.
"""

_PLAIN_NAME = r"^[A-Za-z0-9\-_.!~*'()@&=+$,;]+$"
"""Names that need no encoding. (A ``:`` does, because it could end a scheme.)"""

# The engine's schemes, and those of Hadoop's connectors for the same stores.
_CONNECTORS = {"s3": "s3a", "gcs": "gs"}
_WITHOUT_CONNECTOR = {
    "memory": "Spark can't see the memory of this process; use a path or an object store",
    "az": "Hadoop needs the account; use abfss://<container>@<account>.dfs.core.windows.net/<path>",
}


def hadoop_path(location: str) -> str:
    """Convert an absolute location to a literal Hadoop path.

    Args:
        location: the location, from `resolve` of the engine's ``model.paths``: a path, or
            ``scheme://authority/key``.

    Raises:
        InvalidArgumentError: Spark can't reach such a location. Facts: uri.
    """
    prefix, path = _split(location)
    return f"{prefix}{path}"


def hadoop_uri(location: str) -> str:
    """Convert an absolute location to an encoded Hadoop URI, as in ``_metadata.file_path``.

    Args:
        location: see `hadoop_path`.

    Raises:
        InvalidArgumentError: Spark can't reach such a location. Facts: uri.
    """
    prefix, path = _split(location)
    return f"{prefix}{encode_path(path)}"


def hadoop_uris(paths: pa.ChunkedArray, access: FileAccess) -> pa.Array:
    """Convert the paths of a table's files to Hadoop URIs, and check that the table may read them.

    Args:
        paths: the paths in the log: encoded, relative or absolute.
        access: decides what the table may read.

    Returns:
        The `hadoop_uri` of each location, with the user's spelling of the store, as strings.

    Raises:
        OutsidePathError: the table isn't allowed to read the location of a path. Facts: path.
        CorruptLogError: a path is no well-formed URI. Facts: path.
        InvalidArgumentError: see `hadoop_uri`.
    """
    texts = paths.combine_chunks()
    directories = pc.replace_substring_regex(texts, r"(?s)[^/]*$", "").dictionary_encode()
    names = pc.replace_substring_regex(texts, r"(?s)^.*/", "")
    # Python loops over the distinct directories, and over files with unusual names, of which there are few.
    found = [_checked(access, directory) for directory in directories.dictionary.to_pylist()]
    prefix = array_of([uri for uri, _ in found], pa.string()).take(directories.indices)
    uris = pc.binary_join_element_wise(prefix, names, "")
    links = frozenset().union(*(linked for _, linked in found))
    odd = pc.or_(
        pc.invert(pc.match_substring_regex(names, _PLAIN_NAME)),
        pc.is_in(names, value_set=array_of(["..", *links], pa.string())),
    )
    whole = [_checked(access, path)[0] for path in texts.filter(odd).to_pylist()]
    return pc.replace_with_mask(uris, odd, pa.array(whole, pa.string())) if whole else uris


def _checked(access: FileAccess, path: str) -> tuple[str, frozenset[str]]:
    """The URI of a file or directory path of the log, and the names of links in that directory."""
    location = resolve(access.storage.root, path)
    return hadoop_uri(access.named_location(location)), access.linked_names(location)


def _split(location: str) -> tuple[str, str]:
    """Split a location into ``file:`` or ``scheme://authority``, and the path."""
    if location.startswith("/"):
        return "file:", location
    scheme, separator, rest = location.partition("://")
    if not separator or scheme in _WITHOUT_CONNECTOR:
        reason = _WITHOUT_CONNECTOR.get(scheme, "it is no absolute location")
        raise InvalidArgumentError(f"{location!r} is no location for Spark: {reason}", uri=location)
    authority, slash, key = rest.partition("/")
    return f"{_CONNECTORS.get(scheme, scheme)}://{authority}", f"{slash}{key}"
