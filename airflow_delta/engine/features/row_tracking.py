"""Row tracking: row ids and row commit versions that rows keep while files come and go.

Spec: PROTOCOL.md, "Row Tracking". Default row ids are counted from an ``add``'s ``baseRowId``; rows
that keep an id while they move have it in a hidden column of the data files, whose name is a table
property. The highest id ever given out is the table's *high water mark*, kept in the metadata domain
`DOMAIN`, as a JSON object with one number.

The specification calls the number ``highWaterMark``; every writer in use writes, and looks for,
``rowIdHighWaterMark``. Delta Spark takes a domain without it for a mark of 0 and would give ids out
twice; releases of Delta Kernel refuse a domain with any other key beside it. So that one key is
written; both are read.

What a table says of itself comes in three steps, of which `registry` tells the second from the third:

==========================  =================================================================
supported                   every commit gives ids to the files it adds
supported and suspended     no commit gives ids, and files lose those they have; a step on
                            the way to dropping the feature
supported and enabled       besides, all files have ids, and rows keep theirs
==========================  =================================================================
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from airflow_delta.engine.errors import InvalidTableError
from airflow_delta.engine.model.actions import DomainMetadata
from airflow_delta.engine.model.properties import TableProperties

__all__ = [
    "DOMAIN",
    "ENABLED",
    "ENABLEMENT_ONLY_TAG",
    "FEATURE",
    "MATERIALIZED_ROW_COMMIT_VERSION_COLUMN",
    "MATERIALIZED_ROW_ID_COLUMN",
    "NO_ROW_IDS",
    "PRESERVED_TAG",
    "SUSPENDED",
    "check_materialized_columns",
    "high_water_mark",
    "high_water_mark_domain",
]

FEATURE = "rowTracking"
"""The feature's name in the protocol."""

DOMAIN = "delta.rowTracking"
"""The metadata domain that holds the high water mark."""

MATERIALIZED_ROW_ID_COLUMN = "delta.rowTracking.materializedRowIdColumnName"
"""The table property that names the hidden column of row ids."""

MATERIALIZED_ROW_COMMIT_VERSION_COLUMN = "delta.rowTracking.materializedRowCommitVersionColumnName"
"""The table property that names the hidden column of row commit versions."""

SUSPENDED = "delta.rowTrackingSuspended"
"""The table property that stops giving ids out."""

ENABLED = "delta.enableRowTracking"
"""The table property that enables row tracking."""

ENABLEMENT_ONLY_TAG = "rowTrackingEnablementOnly"
"""The tag of a ``commitInfo`` whose commit does nothing but enable row tracking."""

PRESERVED_TAG = "delta.rowTracking.preserved"
"""The tag of a ``commitInfo`` that says whether all rows kept their ids."""

NO_ROW_IDS = -1
"""The high water mark of a table that never gave out an id."""

_WRITTEN_KEY = "rowIdHighWaterMark"
_READ_KEYS = ("highWaterMark", _WRITTEN_KEY)


def high_water_mark(domain: DomainMetadata | None, *, table: str) -> int:
    """The highest row id that was ever given out.

    Args:
        domain: the table's domain `DOMAIN`; None where it has none.
        table: the table's location, for messages.

    Raises:
        InvalidTableError: the domain holds no mark. Facts: domain.
    """
    if domain is None:
        return NO_ROW_IDS
    try:
        configuration = json.loads(domain.configuration)
    except (ValueError, RecursionError):
        configuration = None
    if isinstance(configuration, dict):
        found = [configuration.get(key) for key in _READ_KEYS]
        # Each counts what some writer has given out, so that the higher one holds for all.
        marks = [mark for mark in found if type(mark) is int]
        if marks:
            return max(marks)
    raise InvalidTableError(
        f"the domain {DOMAIN} holds {domain.configuration!r}: expected a JSON object with an integer "
        f"{' or '.join(_READ_KEYS)}; its writer broke the protocol",
        table=table,
        domain=DOMAIN,
    )


def high_water_mark_domain(mark: int) -> DomainMetadata:
    """The domain that tells a high water mark."""
    return DomainMetadata(DOMAIN, json.dumps({_WRITTEN_KEY: mark}, separators=(",", ":")))


def check_materialized_columns(properties: TableProperties, columns: Iterable[str]) -> None:
    """Make sure that a table with row tracking enabled has its two hidden columns.

    Args:
        properties: the table's properties.
        columns: the names of its other columns, logical and physical.

    Raises:
        InvalidTableError: a hidden column has no name, or one that another column has; or row
            tracking is enabled and suspended at once.
    """
    if not properties.row_tracking_enabled:
        return
    if properties.row_tracking_suspended:
        raise InvalidTableError(
            f"{SUSPENDED} and delta.enableRowTracking are both true: rows can't be tracked without "
            "ids; set one of them to false",
            table=properties.table,
        )
    taken = {name.lower() for name in columns}
    for key in (MATERIALIZED_ROW_ID_COLUMN, MATERIALIZED_ROW_COMMIT_VERSION_COLUMN):
        name = properties.raw.get(key)
        if not name or name.lower() in taken:
            found = f"names {name!r}, as another column is called" if name else "is missing"
            raise InvalidTableError(
                f"delta.enableRowTracking is true, and the table property {key} {found}: expected a "
                "name of its own for the hidden column",
                table=properties.table,
            )
        taken.add(name.lower())
