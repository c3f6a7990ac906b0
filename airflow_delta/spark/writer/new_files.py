"""Write the new data files of a table, and describe them as ``add`` actions.

The rows pass through one pipeline: columns of the table, shuffle, identities, checks, layout, Parquet.
Statistics and identity values come from the footers of the files.

Spec: PROTOCOL.md, "Add File and Remove File", "Per-file Statistics", "Iceberg Compatibility V2".
"""

from __future__ import annotations

import uuid
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812

from airflow_delta.engine import AddFile
from airflow_delta.engine.errors import (
    CommitConflictError,
    ConstraintViolationError,
    DeltaWarning,
    StorageError,
)
from airflow_delta.engine.features.iceberg_compat import iceberg_compat_version
from airflow_delta.engine.features.identity import identity_columns
from airflow_delta.engine.model.paths import encode_path, resolve
from airflow_delta.engine.model.schema import STRING
from airflow_delta.spark.reader.columns import quoted
from airflow_delta.spark.reader.data_files import DataFile, list_data_files, write_data_files
from airflow_delta.spark.rules.row_rules import RowRule, checked, row_rules, violation
from airflow_delta.spark.runtime.java_errors import storage_errors
from airflow_delta.spark.runtime.locations import hadoop_path
from airflow_delta.spark.writer.alignment import AlignedRows, align_rows
from airflow_delta.spark.writer.identity import with_identities
from airflow_delta.spark.writer.layout import FileLayout, target_layout
from airflow_delta.spark.writer.partitioning import NULL_DIRECTORY, partition_values
from airflow_delta.spark.writer.statistics import column_bounds, file_statistics

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from typing_extensions import Self

    from airflow_delta.engine import OptimisticTransaction
    from airflow_delta.engine.storage.base import Storage
    from airflow_delta.spark.writer.request import WriteRequest
    from airflow_delta.spark.writer.target import WriteTarget

__all__ = ["NewFiles", "commit_files", "write_new_files"]

_DEFAULT_SIZE = 128 << 20
"""The bytes of a part of an optimized write, as of Delta Spark's automatic compaction."""


@dataclass(slots=True)
class NewFiles:
    """The files of a write, below a directory of their own; deleted at the end unless they are kept.

    Attributes:
        storage: the table's.
        directory: the directory, below the table's root.
        adds: an ``add`` action for each file.
        num_rows: the number of rows in the files.
        identity_values: the furthest value of each identity column in the files, by logical name.
    """

    storage: Storage
    directory: str = field(default_factory=lambda: f"write-{uuid.uuid4()}")
    adds: list[AddFile] = field(default_factory=list)
    num_rows: int = 0
    identity_values: dict[str, int] = field(default_factory=dict)
    _others: list[str] = field(default_factory=list)
    _paths: list[str] = field(default_factory=list)
    _is_kept: bool = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._is_kept:
            return
        try:
            self._delete()
        except StorageError as failure:
            if error is None:
                raise
            # The error that has ended the write is the one to be raised.
            left = f"the files in {self.directory!r} couldn't be deleted: {failure.message}"
            warnings.warn(DeltaWarning(f"{self.storage.root}: {left}"), stacklevel=2)

    def _delete(self) -> None:
        for directory in (self.directory, *self._others):
            self.storage.delete([info.path for info in self.storage.walk(directory)])
        self.storage.delete(self._paths)

    @property
    def size_in_bytes(self) -> int:
        """The total size of the files."""
        return sum(add.size for add in self.adds)

    @property
    def metrics(self) -> dict[str, int]:
        """The ``operationMetrics`` of a write, by Delta Spark's names."""
        return {
            "numFiles": len(self.adds),
            "numOutputRows": self.num_rows,
            "numOutputBytes": self.size_in_bytes,
        }

    def new_directory(self, prefix: str = "") -> str:
        """The name of another new directory, whose files share the fate of the others.

        Args:
            prefix: the directory around it, with a slash at its end.
        """
        directory = f"{prefix}write-{uuid.uuid4()}"
        self._others.append(directory)
        return directory

    def register(self, paths: Sequence[str]) -> None:
        """Have other new files share the fate of these.

        Args:
            paths: their paths below the table's root.
        """
        self._paths.extend(paths)

    def keep(self) -> None:
        """Keep the files: they are, or may be, part of the table."""
        self._is_kept = True


def commit_files(
    transaction: OptimisticTransaction, files: NewFiles, metrics: Mapping[str, int]
) -> int:
    """Commit what is staged, and keep the new files if they are, or may be, part of the table.

    Args:
        transaction: the transaction.
        files: the new files.
        metrics: the ``operationMetrics``.

    Returns:
        The version.

    Raises:
        DeltaError: see `OptimisticTransaction.commit`.
    """
    try:
        commit = transaction.commit(operation_metrics=metrics)
    except (CommitConflictError, ConstraintViolationError):
        # Errors that rule out a commit: nobody needs the files.
        raise
    except BaseException:
        files.keep()
        raise
    files.keep()
    return commit.version


def write_new_files(
    rows: DataFrame, request: WriteRequest, target: WriteTarget, files: NewFiles
) -> None:
    """Write rows into new data files of a table.

    Args:
        rows: the rows.
        request: what to do.
        target: the table.
        files: gets the files.

    Raises:
        ConstraintViolationError: the rows don't fit the table, or break a rule.
        StorageError: Spark can't read a source file, or write the data files.
        PySparkException: Spark's other errors.
    """
    layout = target_layout(target)
    table = target.table
    aligned = align_rows(rows, target.schema, target.partition_by, table=table)
    shuffled = _shuffled(aligned.rows, request, target)
    complete = with_identities(shuffled, aligned.made_identities, table=table)
    rules = _rules(request, target, aligned)
    path = hadoop_path(resolve(files.storage.root, encode_path(files.directory)))
    try:
        with storage_errors(table, "write"):
            write_data_files(
                checked(complete, rules, table=table).select(layout.columns()),
                path,
                partition_by=layout.directories,
                compression=target.properties.parquet_compression_codec,
                part_size=_part_size(request, target),
            )
    except ConstraintViolationError as error:
        # The job has stopped at the first row; another pass counts them all.
        raise (_counted(complete, rules, table) or error) from error
    _describe(files, layout, target)


def _counted(
    rows: DataFrame, rules: Sequence[RowRule], table: str
) -> ConstraintViolationError | None:
    with storage_errors(table, "read"):
        return violation(rows, rules, table=table)


def _rules(request: WriteRequest, target: WriteTarget, aligned: AlignedRows) -> tuple[RowRule, ...]:
    return (
        *row_rules(
            target.schema, target.properties, table=target.table, generated_given=aligned.given
        ),
        *_partition_rules(target),
        *_replaced_rule(request, target),
    )


def _partition_rules(target: WriteTarget) -> list[RowRule]:
    """Texts that no partition value can be (edge case G6)."""
    return [
        RowRule(
            f"partition column {name}",
            (name,),
            F.col(quoted(name)) == F.lit(NULL_DIRECTORY),
            f"the rows have the text {NULL_DIRECTORY!r} in the partition column {name}, which all readers "
            "take for null",
        )
        for name in target.partition_by
        if (column := target.schema.field(name)) is not None and column.data_type == STRING
    ]


def _replaced_rule(request: WriteRequest, target: WriteTarget) -> list[RowRule]:
    """New rows of an overwrite by condition must meet it, or they would not be replaced next time."""
    if request.replace_where is None or target.base is None:
        return []
    condition = request.replace_where
    column = F.expr(condition) if isinstance(condition, str) else condition
    return [
        RowRule(
            "replace_where",
            (),
            ~F.coalesce(column, F.lit(False)),
            f"the rows don't all meet the condition replace_where, {condition}",
        )
    ]


def _shuffled(rows: DataFrame, request: WriteRequest, target: WriteTarget) -> DataFrame:
    """The rows, in parts of the target size by partition, if the write is to be optimized."""
    if not _is_optimized(request, target):
        return rows
    return rows.hint("rebalance", *(F.col(quoted(name)) for name in target.partition_by))


def _is_optimized(request: WriteRequest, target: WriteTarget) -> bool:
    for choice in (request.optimize_write, target.properties.optimize_write):
        if choice is not None:
            return choice
    return bool(target.partition_by) or request.target_file_size is not None


def _part_size(request: WriteRequest, target: WriteTarget) -> int | None:
    """The bytes of the parts of a shuffle; None without one."""
    if not _is_optimized(request, target):
        return None
    return request.target_file_size or target.properties.target_file_size or _DEFAULT_SIZE


def _describe(files: NewFiles, layout: FileLayout, target: WriteTarget) -> None:
    """Find the files that were written, and delete those without rows."""
    written = list_data_files(files.storage, files.directory)
    files.storage.delete([file.info.path for file in written if not file.num_rows])
    found = [file for file in written if file.num_rows]
    # A Python loop over the files of one write, whose footers were read.
    files.adds.extend(_add(file, files.directory, layout, target) for file in found)
    files.num_rows = sum(file.num_rows for file in found)
    files.identity_values.update(_identity_values(found, layout, target))


def _add(file: DataFile, directory: str, layout: FileLayout, target: WriteTarget) -> AddFile:
    properties = target.properties
    iceberg = iceberg_compat_version(target.supported, properties)
    return AddFile(
        path=encode_path(file.info.path),
        partition_values=partition_values(
            file.info.path.removeprefix(f"{directory}/").split("/")[:-1],
            layout.partition_fields,
            table=target.table,
        ),
        size=file.info.size,
        modification_time=file.info.modified_ms,
        data_change=True,
        stats=file_statistics(
            file.footer,
            layout.statistics,
            prefix=properties.data_skipping_string_prefix_length,
            states_tight_bounds="deletionVectors" in target.supported,
        ),
        tags={"ICEBERG_COMPAT_VERSION": str(iceberg)} if iceberg and iceberg > 1 else None,
    )


def _identity_values(
    files: Sequence[DataFile], layout: FileLayout, target: WriteTarget
) -> Mapping[str, int]:
    found = {}
    for column in identity_columns(target.schema):
        leaf = layout.identities.get(column.name)
        bounds = [column_bounds(file.footer, leaf) for file in files] if leaf else []
        values = [bound[column.step > 0] for bound in bounds if bound is not None]
        if values:
            found[column.name] = max(values) if column.step > 0 else min(values)
    return found
