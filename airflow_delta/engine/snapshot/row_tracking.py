"""The row tracking of a table.

Spec: PROTOCOL.md, "Row Tracking". The feature is *supported* once the protocol lists it: from then
on writers assign row ids. It is *enabled* once ``delta.enableRowTracking`` is true as well: only
then every file has its ids, and readers may rely on them. ``spark/reader/row_tracking.py`` computes
the ids of single rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from airflow_delta.engine.features.protocol import supported_features
from airflow_delta.engine.features.row_tracking import DOMAIN, FEATURE, high_water_mark
from airflow_delta.engine.model.actions import DomainMetadata, Protocol
from airflow_delta.engine.model.properties import TableProperties

__all__ = ["RowTracking", "row_tracking"]


@dataclass(frozen=True, slots=True)
class RowTracking:
    """Row tracking of a table whose protocol supports it.

    Attributes:
        enabled: whether readers may rely on row ids and row commit versions.
        row_id_column: the hidden column of data files with row ids; None without one.
        row_commit_version_column: the hidden column with row commit versions; None without one.
        high_water_mark: the highest row id that was ever assigned; -1 for none.
    """

    enabled: bool
    row_id_column: str | None
    row_commit_version_column: str | None
    high_water_mark: int

    def to_dict(self) -> dict[str, Any]:
        """The fields as plain JSON values."""
        return asdict(self)


def row_tracking(
    protocol: Protocol,
    properties: TableProperties,
    domains: Mapping[str, DomainMetadata],
) -> RowTracking | None:
    """The row tracking of a table; None if its protocol doesn't support it.

    Raises:
        InvalidTableError: the high water mark can't be read, or the property is neither true nor
            false.
    """
    if FEATURE not in supported_features(protocol):
        return None
    return RowTracking(
        enabled=properties.row_tracking_enabled,
        row_id_column=properties.row_id_column_name,
        row_commit_version_column=properties.row_commit_version_column_name,
        high_water_mark=high_water_mark(domains.get(DOMAIN), table=properties.table),
    )
