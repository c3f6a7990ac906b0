"""Parse locations with a connection in front of the bucket, and lists of locations.

In ``s3://lake_prod@bucket/sales``, as in Airflow's ``ObjectStoragePath``, the part before the ``@``
is the connection with the credentials. (In Azure's URIs the ``@`` is between a container and its
account.)

``allowed_outside``, the locations outside of a table below which it may read, is a list, or one
text with commas.

`canonical_uri` gives the spellings of a location one form, by which assets and tables are compared.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable
from urllib.parse import quote, unquote

from airflow_delta.hooks.failures import TableFailure

__all__ = ["as_locations", "canonical_uri", "one_connection", "split_connection"]

_WITH_CONNECTION = re.compile(r"((?:s3|s3a|gs|gcs)://)([^/]*)@(.*)", re.DOTALL | re.IGNORECASE)
_CONNECTION_ID = re.compile(r"[\w.-]+")
_URI = re.compile(r"([A-Za-z][A-Za-z0-9+._-]+):(//)?(.*)", re.DOTALL)
_SCHEMES = {"s3a": "s3", "s3n": "s3", "gcs": "gs", "abfs": "abfss", "az": "abfss"}
"""The schemes that mean the same as another one, which is the usual one."""


def split_connection(uri: str) -> tuple[str | None, str]:
    """Split a URI into the connection in front of its bucket, or None, and the rest.

    :raises TableFailure: that part isn't a connection id. The message doesn't show it,
        because it may be a user and a password.
    """
    match = _WITH_CONNECTION.fullmatch(uri)
    if match is None:
        return None, uri
    scheme, connection_id, rest = match.groups()
    if not _CONNECTION_ID.fullmatch(connection_id):
        raise TableFailure(
            f"{scheme}…@{rest}: the part in front of the bucket isn't a connection id; put credentials "
            "into a connection, and name it there or with delta_conn_id"
        )
    return connection_id, f"{scheme}{rest}"


def one_connection(given: str | None, *found: str | None) -> str | None:
    """The one connection that an argument and URIs name; None if they name none.

    :param given: ``delta_conn_id``.
    :param found: the connections of the URIs, from `split_connection`.
    :raises TableFailure: they name different ones.
    """
    named = dict.fromkeys(name for name in (given, *found) if name)
    if len(named) > 1:
        raise TableFailure(
            f"delta_conn_id and the locations name different connections ({', '.join(named)}), and a task "
            "has one; use a connection of type 'delta' that serves all of its locations"
        )
    return next(iter(named), None)


def as_locations(value: Iterable[str] | str | None) -> tuple[str, ...]:
    """Parse a list of locations; None and an empty text mean none. The engine checks the locations."""
    if isinstance(value, str):
        parts = (part.strip() for part in value.split(","))
        return tuple(part for part in parts if part not in ("", "None"))
    return () if value is None else tuple(value)


def canonical_uri(uri: str) -> str:
    """Return the one spelling of a location: the usual scheme, no connection and no slash at its end.

    ``s3a://lake/sales/`` becomes ``s3://lake/sales``, ``/data/sales`` becomes ``file:///data/sales``. A
    name that is neither a path nor a URI stays as it is. Unlike the engine's canonical location, the result
    depends on the text alone: not on endpoints, links or the current directory.

    :raises TableFailure: the part in front of the bucket isn't a connection id.
    """
    _, uri = split_connection(uri)
    match = _URI.fullmatch(uri)
    if match is None:
        return _file_uri(uri) if uri.startswith("/") else uri
    scheme, slashes, rest = match.groups()
    scheme = scheme.lower()
    if scheme == "file":
        path = rest.removeprefix("localhost") if slashes else rest
        return _file_uri(unquote(path, errors="surrogateescape")) if path[:1] == "/" else uri
    if not slashes:
        return uri
    scheme = _SCHEMES.get(scheme, scheme)
    if scheme == "abfss":
        container, path = rest.partition("/")[::2]
        rest = f"{_azure_container(container)}/{path}"
    return f"{scheme}://{rest.rstrip('/')}"


def _file_uri(path: str) -> str:
    return f"file://{quote('/' + posixpath.normpath(path).lstrip('/'), errors='surrogateescape')}"


def _azure_container(authority: str) -> str:
    """A container with its account, whose host has no case."""
    container, at, host = authority.partition("@")
    return f"{container}{at}{host.lower()}"
