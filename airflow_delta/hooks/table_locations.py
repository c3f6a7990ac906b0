"""The locations that users give to hooks, operators and sensors, with a connection in front of the bucket.

``s3://lake_prod@bucket/sales`` is how Airflow's ``ObjectStoragePath`` names a bucket and the connection
with its credentials. The part before the ``@`` is the connection, and the rest is the URI. (In Azure's URIs
an ``@`` stands between a container and its account.)

And the locations outside of a table below which it may read (``allowed_outside``): a list, or one text with
commas.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from airflow_delta.version_compat import AirflowFailException

__all__ = ["as_locations", "one_connection", "split_connection"]

_WITH_CONNECTION = re.compile(r"((?:s3|s3a|gs|gcs)://)([^/]*)@(.*)", re.DOTALL | re.IGNORECASE)
_CONNECTION_ID = re.compile(r"[\w.-]+")


def split_connection(uri: str) -> tuple[str | None, str]:
    """The connection that a URI names in front of its bucket, None for none, and the URI without it.

    :raises AirflowFailException: what is there can't be a connection: it may be a user and a password, and
        isn't shown.
    """
    match = _WITH_CONNECTION.fullmatch(uri)
    if match is None:
        return None, uri
    scheme, connection_id, rest = match.groups()
    if not _CONNECTION_ID.fullmatch(connection_id):
        raise AirflowFailException(
            f"{scheme}…@{rest}: what is in front of the bucket is no connection id; put credentials into a "
            "connection, and name it there or by delta_conn_id"
        )
    return connection_id, f"{scheme}{rest}"


def one_connection(given: str | None, *found: str | None) -> str | None:
    """The one connection that an argument and URIs name; None where none does.

    :param given: ``delta_conn_id``.
    :param found: by `split_connection`.
    :raises AirflowFailException: they name several.
    """
    named = dict.fromkeys(name for name in (given, *found) if name)
    if len(named) > 1:
        raise AirflowFailException(
            f"delta_conn_id and the locations name different connections ({', '.join(named)}), and a task "
            "has one; use a connection of type 'delta' that serves all of its locations"
        )
    return next(iter(named), None)


def as_locations(value: Iterable[str] | str | None) -> tuple[str, ...]:
    """The locations that an argument or an extra lists; none for None and for an empty text.

    What isn't a location is left to the engine, which says so.
    """
    if isinstance(value, str):
        parts = (part.strip() for part in value.split(","))
        return tuple(part for part in parts if part not in ("", "None"))
    return () if value is None else tuple(value)
