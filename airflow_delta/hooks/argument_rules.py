"""Check locations, times and changes of rows in arguments before the engine gets them."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any

__all__ = ["check_clauses", "check_location", "check_new_values", "check_timestamp"]

# The same rules as the engine's: a single letter before the colon is a drive, not a scheme, and
# only file: may be followed by one slash. The last form is a chained fsspec URI, for which the
# engine has its own error.
_ABSOLUTE = re.compile(r"/|file:/|[A-Za-z][A-Za-z0-9+._-]+://|[A-Za-z][A-Za-z0-9+._-]*::")

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+._-]+):")
# The paths of these may have any character. A '?' is no query there.
_ANY_NAME = frozenset({"file", "local", "memory"})
_WEB = frozenset({"http", "https"})
# The key of an object may have a question mark. A signature has a name and a value.
_QUERY = re.compile(r"\?(?=[\w.-]+=)")
_WEB_QUERY = re.compile(r"[?#]")


def check_location(uri: object, *, name: str = "table_uri") -> str:
    """Check that a location means the same on each worker: an absolute path, or a URI.

    :param uri: the location.
    :param name: the argument's name, for the message.
    :returns: the location.
    :raises InvalidArgumentError: it isn't text, it is a relative path, which would depend on the working
        directory of the worker; or it has a password, or a query, which may be a signature or a token.
    """
    if isinstance(uri, str) and _ABSOLUTE.match(uri):
        _check_without_password(uri, name)
        _check_without_query(uri, name)
        return uri
    # Imported only for an error: the import takes time, and triggers call this in the event loop.
    from airflow_delta.engine.errors import InvalidArgumentError
    from airflow_delta.engine.model.arguments import wrong_argument

    if not isinstance(uri, str):
        raise wrong_argument(name, "a path or a URI", uri)
    raise InvalidArgumentError(
        f"{name}: expected an absolute path such as /data/sales or a URI such as s3://lake/sales, found "
        f"{_QUERY.split(uri, maxsplit=1)[0]!r}, which would be below the directory that a worker happens "
        "to run in"
    )


def _check_without_password(uri: str, name: str) -> None:
    if "@" not in uri:
        return
    from airflow_delta.engine.errors import InvalidArgumentError
    from airflow_delta.engine.public_text import has_password, without_password

    if has_password(uri):
        raise InvalidArgumentError(
            f"{name}: the location {without_password(uri)} has a password before its host, and Airflow "
            "shows locations in rendered templates, logs and XCom: remove it, and put it into a "
            "connection of type 'delta' (delta_conn_id), whose extra has the options of the store"
        )


def _check_without_query(uri: str, name: str) -> None:
    """Refuse the query of a URI. No store needs one for a table, and a local path may look like one."""
    scheme = _SCHEME.match(uri)
    if scheme is None or scheme[1].lower() in _ANY_NAME:
        return
    # Behind it is the address of an archive, which may need its query.
    table = uri.partition("::")[0]
    query = _WEB_QUERY if scheme[1].lower() in _WEB else _QUERY
    shown = query.split(table, maxsplit=1)[0]
    if shown == table:
        return
    from airflow_delta.engine.errors import InvalidArgumentError

    raise InvalidArgumentError(
        f"{name}: the location {shown} has a query after it, which may be a signature or a token, and "
        "Airflow shows locations in rendered templates, logs and XCom: remove it, and put what the store "
        "needs into a connection of type 'delta' (delta_conn_id), whose extra has the options of the store"
    )


def check_timestamp(timestamp: str | int | datetime) -> None:
    """Check that a text or a number is a point in time.

    :raises InvalidArgumentError: it isn't.
    """
    from airflow_delta.engine.snapshot.timestamps import epoch_ms

    epoch_ms(timestamp)


def check_new_values(values: Any, *, name: str) -> None:
    """Check the new values of columns.

    :param values: the values by column.
    :param name: the argument's name, for the message.
    :raises InvalidArgumentError: they aren't a dictionary with SQL, numbers, booleans or None.
    """
    from airflow_delta.row_changes.new_values import check_values

    check_values(values, name=name)


def check_clauses(clauses: Any, *, name: str) -> None:
    """Check the clauses of a merge.

    :param clauses: the clauses, as JSON values.
    :param name: the argument's name, for the message.
    :raises InvalidArgumentError: one is invalid, or none is given.
    """
    from airflow_delta.row_changes.clauses import parse_clauses

    parse_clauses(clauses, name=name)
