"""From the engine's locations to the paths of Spark's file systems (Hadoop's).

The engine speaks of ``/data/a b`` and ``s3://bucket/key``, decoded and literal. Hadoop wants a
scheme that it has a connector for, and writes paths in two forms:

* `hadoop_path`: literal text, for calls that take a path from a user (``DataFrameWriter.parquet``);
* `hadoop_uri`: encoded as ``java.net.URI`` does, the form of ``_metadata.file_path``.
"""

from __future__ import annotations

from airflow_delta.engine.errors import InvalidArgumentError
from airflow_delta.engine.model.paths import encode_path

__all__ = ["hadoop_path", "hadoop_uri"]

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
