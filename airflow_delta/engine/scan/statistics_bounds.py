"""Bounds from the statistics of files."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

from airflow_delta.engine.arrow.statistics.columns import ColumnStatistics, StatisticsColumns
from airflow_delta.engine.features.schema_walk import SchemaPath
from airflow_delta.engine.model.schema import DOUBLE, FLOAT, DataType, DecimalType, PrimitiveType
from airflow_delta.engine.scan.bounds import Bounds
from airflow_delta.engine.scan.columns import ScanColumn

__all__ = ["StatisticsBounds", "has_statistics"]


def has_statistics(data_type: DataType) -> bool:
    """Whether a column of a type can have statistics: only if the type isn't nested."""
    return isinstance(data_type, (PrimitiveType, DecimalType))


class StatisticsBounds:
    """Reads the bounds of some columns from statistics.

    Args:
        columns: the columns by logical path; see `has_statistics`.
    """

    def __init__(self, columns: Mapping[SchemaPath, ScanColumn]) -> None:
        self._columns = columns
        self._statistics = StatisticsColumns(
            (column.physical, column.statistics_type) for column in columns.values()
        )

    def parsed_leaves(
        self, stored: pa.DataType, *, all_needed: bool
    ) -> tuple[SchemaPath, ...] | None:
        """The leaves of ``stats_parsed`` to read; see `StatisticsColumns.parsed_leaves`."""
        return self._statistics.parsed_leaves(stored, all_needed=all_needed)

    def bounds(self, stats: pa.Array) -> dict[SchemaPath, Bounds]:
        """The bounds of each column in each file, by logical path, from ``add.stats``.

        Args:
            stats: texts, or structs with the `parsed_leaves`.
        """
        statistics = self._statistics.read(stats)
        return {
            path: _bounds(statistics[column.physical], column.data_type)
            for path, column in self._columns.items()
        }


def _bounds(statistics: ColumnStatistics, data_type: DataType) -> Bounds:
    return Bounds(
        statistics.minimum,
        statistics.maximum,
        pc.invert(statistics.all_null),
        pc.invert(statistics.none_null),
        has_nan=data_type in (FLOAT, DOUBLE),
    )
