"""Row tracking: row ids and row commit versions, which rows keep when they move to other files.

Default row ids count up from an ``add``'s ``baseRowId``. A row that moves to another file keeps its id in a
hidden column of the file, whose name is a table property. The highest id ever assigned is the table's *high
water mark*, in the metadata domain `DOMAIN`. A table has one of these states:

==========================  =================================================================
supported                   every commit assigns ids to the files that it adds
supported and suspended     no commit assigns ids, and files lose theirs, so that the feature
                            can be dropped
supported and enabled       also, all files have ids, and rows keep theirs
==========================  =================================================================

PROTOCOL.md, "Row Tracking".
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

# The specification has ``highWaterMark``, but the writers in use read and write ``rowIdHighWaterMark``.
# Without it Delta Spark assumes a mark of 0, and would assign ids twice. Some releases of Delta Kernel
# refuse any other key beside it. So only this key is written, and both are read.
_WRITTEN_KEY = "rowIdHighWaterMark"
_READ_KEYS = ("highWaterMark", _WRITTEN_KEY)


def high_water_mark(domain: DomainMetadata | None, *, table: str) -> int:
    """The highest row id that was ever assigned.

    Args:
        domain: the table's domain `DOMAIN`; None if it has none.
        table: the table's location, for messages.

    Raises:
        InvalidTableError: the domain contains no mark. Facts: domain.
    """
    if domain is None:
        return NO_ROW_IDS
    try:
        configuration = json.loads(domain.configuration)
    except (ValueError, RecursionError):
        configuration = None
    if isinstance(configuration, dict):
        found = [configuration.get(key) for key in _READ_KEYS]
        # Different writers may update different keys, so the higher mark counts.
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
    """Make the metadata domain for a high water mark."""
    return DomainMetadata(DOMAIN, json.dumps({_WRITTEN_KEY: mark}, separators=(",", ":")))


def check_materialized_columns(properties: TableProperties, columns: Iterable[str]) -> None:
    """Check that a table with row tracking enabled has names for its two hidden columns.

    Args:
        properties: the table's properties.
        columns: the names of its other columns, logical and physical.

    Raises:
        InvalidTableError: a hidden column has no name, or the name of another column; or row tracking is
            both enabled and suspended.
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
