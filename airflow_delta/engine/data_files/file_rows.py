"""Read the rows of single files: their row groups, without deleted rows, and only those that match.

Row groups whose statistics exclude the predicate are left out, and so are pages, if the file has a page
index and that saves enough (`page_pruning`). The other rows are decoded in batches:

1. Rows in the deletion vector are left out. Its positions count from the start of the file.
2. Rows that don't match the predicate are left out. If most parts so far had no matching row, only the
   columns of the predicate are decoded first, and the others only if a row matches.
3. Columns are converted to the types of the table, and those that the file doesn't have are added:
   partition values, columns that were added later, row ids and row commit versions.

Spec: PROTOCOL.md, "Add File and Remove File", "Deletion Vectors", "Reader Requirements for Row Tracking".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from airflow_delta.engine.arrow.numpy_arrays import int64_array, int64_view
from airflow_delta.engine.arrow.python_arrays import scalar_of
from airflow_delta.engine.data_files.constants import partition_scalar
from airflow_delta.engine.data_files.conversion import without_metadata
from airflow_delta.engine.data_files.data_file import DataFile
from airflow_delta.engine.data_files.file_columns import FileColumns
from airflow_delta.engine.data_files.page_pruning import PagePruner
from airflow_delta.engine.data_files.request import (
    ScanRequest,
    TableLayout,
    TrackingColumns,
    stored_name,
)
from airflow_delta.engine.data_files.row_group_bounds import RowGroupPruner
from airflow_delta.engine.data_files.row_predicate import RowPredicate
from airflow_delta.engine.data_files.scanned_file import (
    FilePart,
    RowIds,
    ScannedFile,
    split_file,
)
from airflow_delta.engine.data_files.vectors import ScanVectors
from airflow_delta.engine.errors import DeletionVectorError, InvalidArgumentError, InvalidTableError
from airflow_delta.engine.model.partition_values import parse_partition_value
from airflow_delta.engine.storage.file_access import FileAccess

__all__ = ["ADD_COLUMNS", "TRACKING_ADD_COLUMNS", "FileRows"]

ADD_COLUMNS = ("path", "partitionValues", "size", "deletionVector")
"""The columns of ``add`` that a scan needs."""

TRACKING_ADD_COLUMNS = ("baseRowId", "defaultRowCommitVersion")
"""The further columns that it needs for row ids."""

# If less than one of so many rows match, the rows are decoded in small batches, to end soon after the last
# match.
_FEW, _SMALL_BATCH = 1000, 8192


class FileRows:
    """Reads the rows of the files of a scan. Several threads may use it.

    Args:
        layout: the table.
        request: what to return.
        adds: the files: `ADD_COLUMNS`, and `TRACKING_ADD_COLUMNS` with row tracking.
        access: opens the files of the table.

    Attributes:
        schema: the schema of the batches.

    Raises:
        InvalidArgumentError: the predicate can't be evaluated.
        InvalidTableError: a column has no equivalent in Arrow, or lacks its physical name.
    """

    def __init__(
        self,
        layout: TableLayout,
        request: ScanRequest,
        adds: pa.Table,
        access: FileAccess,
    ) -> None:
        self._layout = layout
        self._request = request
        self._adds = adds.combine_chunks()
        self._access = access
        self._vectors = ScanVectors(adds["deletionVector"], access)
        predicate = request.predicate
        self._filter_columns = () if predicate is None else predicate.columns
        needed = tuple(dict.fromkeys((*request.columns, *self._filter_columns)))
        fields = {field.name: field for field in layout.arrow_fields(needed)}
        self._partitions = [fields[name] for name in needed if name in layout.partition_columns]
        data = [fields[name] for name in needed if name not in layout.partition_columns]
        self._columns = FileColumns(layout, data)
        self._filter: RowPredicate | None = None
        self._pruner: RowGroupPruner | None = None
        self._page_pruner: PagePruner | None = None
        if predicate is not None:
            named = [_plain_field(fields[name]) for name in self._filter_columns]
            self._filter = RowPredicate(predicate.expression, named, table=layout.table)
            self._pruner = RowGroupPruner(predicate.root)
            self._page_pruner = PagePruner(predicate.root)
        tracked = request.tracking_names or ()
        self.schema = pa.schema(
            [
                *(_plain_field(fields[name]) for name in request.columns),
                *(pa.field(name, pa.int64()) for name in tracked),
            ]
        )
        # How many parts were searched for rows, and how many had none. Lost updates of threads do no harm.
        self._searched = self._empty = 0
        self._parse = lru_cache(maxsize=4096)(self._parse_constant)

    def split(self, number: int) -> list[FilePart]:
        """Split a file into parts.

        Args:
            number: its index among the adds.

        Raises:
            DataFileError: the file is damaged, has another size than in the log, or a column of another
                type.
            MissingFilesError: it doesn't exist.
            DeletionVectorError: its deletion vector can't be read, or doesn't fit the file.
            InvalidTableError: a partition value isn't one of its column's type, or the file lacks the ids
                of row tracking.
            OutsidePathError: the table may not read there.
            StorageError: the store failed.
        """
        source = self._source(number)
        file = source.file
        kept = None
        if self._pruner is not None:
            kept = set(self._pruner.kept(file, source.columns.values()))
        with file.errors():
            sizes = [
                (group.num_rows, group.total_byte_size)
                for group in map(file.footer.row_group, range(file.footer.num_row_groups))
            ]
        pages = {}
        if self._page_pruner is not None and kept:
            pages = self._page_pruner.parts(
                source, sorted(kept), self._stored(source), self._request.batch_rows
            )
        return [*split_file(source, sizes, kept, self._request.batch_rows, pages)]

    def run(self, part: FilePart) -> Iterator[pa.RecordBatch]:
        """The rows of a part, in order.

        Raises:
            DataFileError: the file is damaged.
            InvalidArgumentError: the predicate can't be evaluated on a row.
            MissingFilesError, StorageError: see `split`.
        """
        mask = None
        if self._filter is not None and self._searches_first(part):
            mask = self._search(part)
            if not mask.true_count:
                return
        yield from self._batches(part, mask)

    def _source(self, number: int) -> ScannedFile:
        add = {name: self._adds[name][number].as_py() for name in self._adds.column_names}
        file = DataFile(add["path"], add["size"], self._access, version=self._layout.version)
        found = self._columns.of(file)
        deleted = self._vectors.positions(number)
        if deleted is not None and len(deleted) and deleted[-1] >= file.footer.num_rows:
            raise DeletionVectorError(
                f"the deletion vector of the data file {file.path!r} names row {deleted[-1]}, and the file "
                f"has {file.footer.num_rows} rows; DeltaTable.restore() or RestoreOperator to a version "
                "before it",
                table=file.table,
                path=file.path,
            )
        return ScannedFile(
            file,
            {column.field.name: column for column in found},
            self._constants(add, file),
            deleted,
            self._row_ids(add, file),
        )

    def _constants(self, add: dict[str, Any], file: DataFile) -> dict[str, pa.Scalar]:
        """The values of the partition columns."""
        texts = dict(add["partitionValues"] or ())  # Null is like an entry that is missing.
        constants: dict[str, pa.Scalar] = {}
        for field in self._partitions:
            try:
                constants[field.name] = self._parse(field.name, texts.get(stored_name(field)))
            except InvalidTableError as error:
                raise InvalidTableError(
                    f"the data file {file.path!r} of version {self._layout.version}, partition column "
                    f"{field.name!r}: {error.message}; its writer broke the protocol: "
                    "DeltaTable.restore() to a version without the file, or leave out the column",
                    table=file.table,
                    path=file.path,
                ) from error
        return constants

    def _parse_constant(self, name: str, text: str | None) -> pa.Scalar:
        column = self._layout.schema.field(name)
        assert column is not None
        type_ = next(field.type for field in self._partitions if field.name == name)
        return partition_scalar(parse_partition_value(text, column.data_type), type_)

    def _row_ids(self, add: dict[str, Any], file: DataFile) -> RowIds | None:
        tracking = self._layout.tracking
        if self._request.tracking_names is None or tracking is None:
            return None
        for name in TRACKING_ADD_COLUMNS:
            if add[name] is None:
                raise InvalidTableError(
                    f"the file {file.path!r} has no {name}, and delta.enableRowTracking is true: its "
                    "writer broke the protocol; set the property to false, and to true again once all "
                    "files have ids",
                    table=file.table,
                    path=file.path,
                )
        own = set(file.schema.names)
        hidden = TrackingColumns(
            tracking.row_id if tracking.row_id in own else None,
            tracking.row_commit_version if tracking.row_commit_version in own else None,
        )
        return RowIds(add["baseRowId"], add["defaultRowCommitVersion"], hidden)

    def _stored(self, source: ScannedFile) -> list[str]:
        """The names in a file of all columns to read."""
        names = source.stored([*source.columns])
        return names if source.row_ids is None else names + source.row_ids.names

    def _searches_first(self, part: FilePart) -> bool:
        """Whether to decode the columns of the predicate first, and alone."""
        source = part.source
        first = source.stored(self._filter_columns)
        others = set(source.stored([*source.columns])).difference(first)
        return bool(first and others) and self._empty * 2 >= self._searched

    def _search(self, part: FilePart) -> pa.BooleanArray:
        """Which rows of a part match and aren't deleted."""
        names = part.source.stored(self._filter_columns)
        masks = []
        for start, rows in part.stored_batches(names):
            selected = self._selected(part.source, rows, start)
            masks.append(
                pa.repeat(scalar_of(True, pa.bool_()), rows.num_rows)
                if selected is None
                else selected
            )
        found = pa.concat_arrays(masks)
        self._searched += 1
        self._empty += not found.true_count
        return found

    def _batches(self, part: FilePart, mask: pa.BooleanArray | None) -> Iterator[pa.RecordBatch]:
        """The rows of a part.

        Args:
            part: the part.
            mask: which rows to return; None if that isn't known yet.
        """
        source = part.source
        names = self._stored(source)
        left = None if mask is None else mask.true_count
        if left is not None and left * _FEW < part.num_rows:
            part = replace(part, batch_rows=min(part.batch_rows, _SMALL_BATCH))
        for start, rows in part.stored_batches(names):
            if mask is None:
                selected = self._selected(source, rows, start)
            else:
                selected = mask.slice(start - part.start, rows.num_rows)
            count = rows.num_rows if selected is None else selected.true_count
            if count:
                yield self._batch(source, rows, start, selected if count < rows.num_rows else None)
            if left is not None:
                left -= count
                if not left:
                    return

    def _selected(
        self, source: ScannedFile, rows: pa.RecordBatch, start: int
    ) -> pa.BooleanArray | None:
        """Which rows match and aren't deleted; None for all."""
        kept = source.kept(start, rows.num_rows)
        if self._filter is None:
            return kept
        # The predicate may fail for a deleted row, so it is evaluated without these.
        seen = rows if kept is None else rows.filter(kept)
        columns = [source.column(name, seen) for name in self._filter_columns] or [
            pa.nulls(seen.num_rows)
        ]
        try:
            matching = self._filter.mask(
                pa.RecordBatch.from_arrays(columns, schema=self._filter.schema)
            )
        except pa.ArrowException as error:
            raise InvalidArgumentError(
                f"the predicate can't be evaluated on a row of the data file "
                f"{source.file.path!r}: {error}",
                table=self._layout.table,
                path=source.file.path,
            ) from error
        return matching if kept is None else pc.replace_with_mask(kept, kept, matching)

    def _batch(
        self,
        source: ScannedFile,
        rows: pa.RecordBatch,
        start: int,
        selected: pa.BooleanArray | None,
    ) -> pa.RecordBatch:
        positions = np.arange(start, start + rows.num_rows) if source.row_ids else None
        if selected is not None:
            rows = rows.filter(selected)
            if positions is not None:
                positions = int64_view(int64_array(positions).filter(selected))
        columns = [source.column(name, rows) for name in self._request.columns]
        if source.row_ids is not None and positions is not None:
            columns += source.row_ids.columns(rows, positions)
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)


def _plain_field(field: pa.Field) -> pa.Field:
    """A nullable field without metadata at any depth."""
    return pa.field(field.name, without_metadata(field.type))
