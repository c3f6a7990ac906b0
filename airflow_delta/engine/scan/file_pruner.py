"""Leave out the files that can't have matching rows: the entry to this package."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from airflow_delta.engine.arrow.parallel import map_ordered
from airflow_delta.engine.arrow.statistics.parse import STATS_ROWS
from airflow_delta.engine.features.schema_walk import SchemaPath
from airflow_delta.engine.model.schema import StructType
from airflow_delta.engine.scan.bounds import Bounds
from airflow_delta.engine.scan.columns import find_column
from airflow_delta.engine.scan.expressions import read_predicate, useful_columns
from airflow_delta.engine.scan.masks import as_array
from airflow_delta.engine.scan.may_match import may_be
from airflow_delta.engine.scan.partition_bounds import PartitionColumn
from airflow_delta.engine.scan.partition_filter import can_evaluate, evaluate
from airflow_delta.engine.scan.statistics_bounds import StatisticsBounds, has_statistics

__all__ = ["FilePruner"]


class FilePruner:
    """Finds the files that may have rows for which a predicate is true; a `RowFilter`.

    A row for which the predicate is false or null doesn't match.

    Args:
        predicate: a `pyarrow.compute.Expression` over the logical columns of the table. Bounds decide
            comparisons of columns with constants and with each other, ``isin``, ``is_null``, ``is_valid``,
            boolean columns, and ``&``, ``|`` and ``~`` of these. All else, such as functions of a column,
            keeps files.
        schema: the schema of the table, with logical names.
        partition_columns: the partition columns of the table, by logical names.
        mapping_mode: the column mapping mode; see ``features/column_mapping.py``.
        table: the table's location, for messages.

    Raises:
        InvalidArgumentError: the predicate isn't an expression, or names a column that the table
            doesn't have.
        InvalidTableError: such a column lacks its physical name.
    """

    def __init__(
        self,
        predicate: Any,
        *,
        schema: StructType,
        partition_columns: Collection[str],
        mapping_mode: str,
        table: str,
    ) -> None:
        read = read_predicate(predicate)
        found = {
            path: find_column(
                path,
                schema,
                partition_columns=partition_columns,
                mapping_mode=mapping_mode,
                table=table,
            )
            for path in sorted(read.columns)
        }
        self._predicate = predicate
        self._root = read.root
        self._only_partitions = all(column.is_partition for column in found.values())
        # A predicate over partition columns alone is evaluated as a whole, so all its columns are needed.
        wanted = found if self._only_partitions else set(useful_columns(read.root))
        self._partitions = {
            path: PartitionColumn(column.physical[0], column.data_type)
            for path, column in found.items()
            if path in wanted and column.is_partition
        }
        data = {
            path: column
            for path, column in found.items()
            if path in wanted and not column.is_partition and has_statistics(column.data_type)
        }
        self._statistics = StatisticsBounds(data) if data else None

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of ``add`` that are needed; none if the answer is the same for all files."""
        needed = {"partitionValues": bool(self._partitions), "stats": self._statistics is not None}
        return tuple(name for name, is_needed in needed.items() if is_needed)

    def parsed_leaves(
        self, stored: pa.DataType, *, all_needed: bool
    ) -> tuple[SchemaPath, ...] | None:
        """The leaves of ``stats_parsed`` that are needed instead of ``stats``; None if ``stats`` is needed.

        Args:
            stored: the type of ``stats_parsed`` in the file.
            all_needed: whether the texts may contain a leaf that ``stats_parsed`` lacks.
        """
        if self._statistics is None:
            return None
        return self._statistics.parsed_leaves(stored, all_needed=all_needed)

    def prune(self, adds: pa.Table) -> pa.Table:
        """The files that may have matching rows, in order.

        Args:
            adds: one row per file, with at least the `columns`; see ``arrow/action_schema.py``.
        """
        if not self.columns:
            kept = may_be(True, self._root, {})  # The answer is the same for all files.
            return adds if kept else adds.slice(0, 0)
        batches = adds.select(self.columns).to_batches(max_chunksize=STATS_ROWS)
        masks = list(map_ordered(self.kept, batches))
        return adds.filter(pa.chunked_array(masks, pa.bool_()))

    def kept(self, adds: pa.RecordBatch) -> pa.BooleanArray:
        """Which files may have matching rows; without nulls.

        Args:
            adds: the `columns` of up to a few ten thousand files. ``stats`` has texts, or structs with the
                `parsed_leaves`.
        """
        bounds = self._partition_bounds(adds)
        if self._only_partitions and can_evaluate(bounds):
            return as_array(evaluate(self._predicate, bounds), len(adds))
        kept = as_array(may_be(True, self._root, bounds), len(adds))
        if self._statistics is None:
            return kept
        # The statistics of files that partition values left out needn't be parsed.
        rows = pc.indices_nonzero(kept)
        left = adds if len(rows) == len(adds) else adds.take(rows)
        bounds = self._partition_bounds(left) | self._statistics.bounds(left["stats"])
        answers = as_array(may_be(True, self._root, bounds), len(left))
        return pc.replace_with_mask(kept, kept, answers)

    def _partition_bounds(self, batch: pa.RecordBatch) -> dict[SchemaPath, Bounds]:
        return {
            path: column.bounds(batch["partitionValues"])
            for path, column in self._partitions.items()
        }
