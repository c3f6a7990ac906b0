"""Row tracking: the names under which a table keeps its row ids and row commit versions.

Spec: PROTOCOL.md, "Row Tracking". Default row ids are counted from an ``add``'s ``baseRowId``; rows
that keep an id while they move have it in a hidden column of the data files, whose name is a table
property. The highest id ever given out is the table's *high water mark*, kept in a metadata domain.

Assigning ids is not supported yet; see the feature's row in `registry`.
"""

from __future__ import annotations

__all__ = [
    "DOMAIN",
    "MATERIALIZED_ROW_COMMIT_VERSION_COLUMN",
    "MATERIALIZED_ROW_ID_COLUMN",
]

DOMAIN = "delta.rowTracking"
"""The metadata domain that holds the high water mark, as a JSON object.

The specification calls its key ``highWaterMark``; the writers in use write ``rowIdHighWaterMark``.
"""

MATERIALIZED_ROW_ID_COLUMN = "delta.rowTracking.materializedRowIdColumnName"
"""The table property that names the hidden column of row ids."""

MATERIALIZED_ROW_COMMIT_VERSION_COLUMN = "delta.rowTracking.materializedRowCommitVersionColumnName"
"""The table property that names the hidden column of row commit versions."""
