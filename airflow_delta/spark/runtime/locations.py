"""From the engine's locations to the paths of Spark's file systems (Hadoop's).

The engine speaks of ``/data/a b`` and ``s3://bucket/key``, decoded and literal. Hadoop wants a
scheme that it has a connector for, and writes paths in two forms:

* `hadoop_path`: literal text, for calls that take a path from a user (``DataFrameWriter.parquet``);
* `hadoop_uri`: encoded as ``java.net.URI`` does, the form of ``_metadata.file_path``.

`hadoop_uris` does the latter for all the files of a table at once, a million of them in a second or two.
Spark opens what it is given, with credentials of its own; so here is also looked whether the table may read
there, and the store goes by the user's name for it, never by the log's (`FileAccess`).
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from airflow_delta.engine.arrow.python_arrays import array_of
from airflow_delta.engine.errors import InvalidArgumentError
from airflow_delta.engine.model.paths import encode_path, resolve
from airflow_delta.engine.storage.file_access import FileAccess

__all__ = ["hadoop_path", "hadoop_uri", "hadoop_uris"]

_PLAIN_NAME = r"^[A-Za-z0-9\-_.!~*'()@&=+$,;]+$"
"""Names that are the same encoded and decoded. (A ``:`` could end a scheme.)"""

# The engine's scheme, and that of Hadoop's connector for the same store.
_CONNECTORS = {"s3": "s3a", "gcs": "gs"}
_WITHOUT_CONNECTOR = {
    "memory": "Spark can't see the memory of this process; use a path or an object store",
    "az": "Hadoop needs the account; use abfss://<container>@<account>.dfs.core.windows.net/<path>",
}


def hadoop_path(location: str) -> str:
    """The literal Hadoop path of an absolute location.

    Args:
        location: as `resolve` of the engine's ``model.paths`` gives it: a path, or
            ``scheme://authority/key``.

    Raises:
        InvalidArgumentError: Spark can't reach such a location. Facts: uri.
    """
    prefix, path = _split(location)
    return f"{prefix}{path}"


def hadoop_uri(location: str) -> str:
    """The encoded Hadoop URI of an absolute location, as Spark spells it in ``_metadata.file_path``.

    Args:
        location: see `hadoop_path`.

    Raises:
        InvalidArgumentError: Spark can't reach such a location. Facts: uri.
    """
    prefix, path = _split(location)
    return f"{prefix}{encode_path(path)}"


def hadoop_uris(paths: pa.ChunkedArray, access: FileAccess) -> pa.Array:
    """The Hadoop URIs of a table's files, all of which the table may read.

    Args:
        paths: as the log has them: encoded, relative or absolute.
        access: says what the table may read.

    Returns:
        For each path what `hadoop_uri` makes of its location, in the store that the user has named, as
        strings.

    Raises:
        OutsidePathError: a path leads to where the table may not read. Facts: path.
        CorruptLogError: a path is no well-formed URI. Facts: path.
        InvalidArgumentError: see `hadoop_uri`.
    """
    texts = paths.combine_chunks()
    directories = pc.replace_substring_regex(texts, r"(?s)[^/]*$", "").dictionary_encode()
    names = pc.replace_substring_regex(texts, r"(?s)^.*/", "")
    # Loops over the distinct directories, and over the files of which a name needs a look: mostly few.
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
    """The URI of a path of the log, or of a directory in one; and which names in that are links."""
    location = resolve(access.storage.root, path)
    return hadoop_uri(access.named_location(location)), access.linked_names(location)


def _split(location: str) -> tuple[str, str]:
    """What goes in front of the path (``file:`` or ``scheme://authority``), and the path."""
    if location.startswith("/"):
        return "file:", location
    scheme, separator, rest = location.partition("://")
    if not separator or scheme in _WITHOUT_CONNECTOR:
        reason = _WITHOUT_CONNECTOR.get(scheme, "it is no absolute location")
        raise InvalidArgumentError(f"{location!r} is no location for Spark: {reason}", uri=location)
    authority, slash, key = rest.partition("/")
    return f"{_CONNECTORS.get(scheme, scheme)}://{authority}", f"{slash}{key}"
