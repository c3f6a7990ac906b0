"""Parse locations with a connection in front of the bucket, and lists of locations.

In ``s3://lake_prod@bucket/sales``, as in Airflow's ``ObjectStoragePath``, the part before the ``@``
is the connection with the credentials. (In Azure's URIs the ``@`` is between a container and its
account.)

``allowed_outside``, the locations outside of a table below which it may read, is a list, or one
text with commas.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from airflow_delta.version_compat import AirflowFailException

__all__ = ["as_locations", "one_connection", "split_connection"]

_WITH_CONNECTION = re.compile(r"((?:s3|s3a|gs|gcs)://)([^/]*)@(.*)", re.DOTALL | re.IGNORECASE)
_CONNECTION_ID = re.compile(r"[\w.-]+")


def split_connection(uri: str) -> tuple[str | None, str]:
    """Split a URI into the connection in front of its bucket, or None, and the rest.

    :raises AirflowFailException: that part isn't a connection id. The message doesn't show it,
        because it may be a user and a password.
    """
    match = _WITH_CONNECTION.fullmatch(uri)
    if match is None:
        return None, uri
    scheme, connection_id, rest = match.groups()
    if not _CONNECTION_ID.fullmatch(connection_id):
        raise AirflowFailException(
            f"{scheme}…@{rest}: the part in front of the bucket isn't a connection id; put credentials "
            "into a connection, and name it there or with delta_conn_id"
        )
    return connection_id, f"{scheme}{rest}"


def one_connection(given: str | None, *found: str | None) -> str | None:
    """The one connection that an argument and URIs name; None if they name none.

    :param given: ``delta_conn_id``.
    :param found: the connections of the URIs, from `split_connection`.
    :raises AirflowFailException: they name different ones.
    """
    named = dict.fromkeys(name for name in (given, *found) if name)
    if len(named) > 1:
        raise AirflowFailException(
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
