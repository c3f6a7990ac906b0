"""Write rows into new data files of a table, and describe these as ``add`` actions.

The rows pass through one pipeline: columns of the table, shuffle, identities and what is generated from
them, checks, layout, Parquet. Statistics and identity values come from the footers of the files.

Spec: PROTOCOL.md, "Add File and Remove File", "Per-file Statistics", "Row Tracking", "Iceberg Compatibility
V2".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812

from airflow_delta.engine import AddFile
from airflow_delta.engine.data_files.footer_statistics import (
    column_bounds,
    file_statistics,
    has_only_nulls,
)
from airflow_delta.engine.errors import (
    ConstraintViolationError,
    DeltaError,
    InvalidArgumentError,
)
from airflow_delta.engine.features.iceberg_compat import iceberg_compat_version
from airflow_delta.engine.features.identity import IdentityColumn, identity_columns
from airflow_delta.engine.model.paths import encode_path, resolve
from airflow_delta.engine.model.schema import STRING
from airflow_delta.spark.reader.columns import quoted
from airflow_delta.spark.reader.data_files import (
    STATISTICS_SETTING,
    DataFile,
    check_num_rows,
    list_data_files,
    write_data_files,
)
from airflow_delta.spark.rules.row_rules import RowRule, checked, row_rules, violation
from airflow_delta.spark.runtime.java_errors import storage_errors
from airflow_delta.spark.runtime.locations import hadoop_path
from airflow_delta.spark.writer.alignment import AlignedRows, align_rows, with_generated
from airflow_delta.spark.writer.identity import with_identities
from airflow_delta.spark.writer.layout import FileLayout, target_layout
from airflow_delta.spark.writer.nested_ids import write_nested_ids
from airflow_delta.spark.writer.partitioning import NULL_DIRECTORY, partition_values

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from airflow_delta.spark.writer.new_files import NewFiles
    from airflow_delta.spark.writer.request import WriteRequest
    from airflow_delta.spark.writer.target import WriteTarget

__all__ = ["write_aligned", "write_new_files"]

_DEFAULT_SIZE = 128 << 20
"""The bytes of a part of an optimized write, as of Delta Spark's automatic compaction."""

_NUMBERS_OF_PARTS = (
    "spark.sql.shuffle.partitions",
    "spark.sql.adaptive.coalescePartitions.initialPartitionNum",
)

_MIN_PARTS = 200
"""The parts of a shuffle by partition values.

Spark joins small ones. With few, a part has many values and may be too large: then Spark cuts it into
pieces that have rows of all these values, each of which becomes a file for each value.
"""


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
        InvalidArgumentError: a setting of the session keeps the bounds of an identity column out of the
            files. Facts: column.
        StorageError: Spark can't read a source file, or write the data files; or these have other rows
            than Spark's tasks have written.
        PySparkException: Spark's other errors.
    """
    write_aligned(
        align_rows(rows, target.schema, target.partition_by, table=target.table),
        target,
        files,
        more_rules=_replaced_rule(request, target),
        optimize_write=request.optimize_write,
        target_file_size=request.target_file_size,
    )


def write_aligned(
    aligned: AlignedRows,
    target: WriteTarget,
    files: NewFiles,
    *,
    more_rules: Sequence[RowRule] = (),
    optimize_write: bool | None = None,
    target_file_size: int | None = None,
    directory: str | None = None,
) -> None:
    """Write rows that have the columns of a table already; see `write_new_files`.

    Args:
        aligned: the rows.
        target: the table.
        files: gets the files.
        more_rules: rules that the rows must keep beside those of the table.
        optimize_write: see `airflow_delta.spark.ingest.write.write`.
        target_file_size: see `airflow_delta.spark.ingest.write.write`.
        directory: a new directory of ``files``; None for its first one.

    Raises:
        ConstraintViolationError: the rows break a rule.
        InvalidArgumentError: see `write_new_files`.
        StorageError: Spark can't read a source file, or write the data files; or these have other rows
            than Spark's tasks have written.
        PySparkException: Spark's other errors.
    """
    layout, table = target_layout(target), target.table
    directory = files.directory if directory is None else directory
    part_size = _part_size(optimize_write, target_file_size, target)
    shuffled = _shuffled(aligned.rows, target) if part_size else aligned.rows
    where = aligned.made_where
    identified = with_identities(shuffled, aligned.made_identities, table=table, where=where)
    complete = with_generated(
        identified, aligned.computed_later, target.partition_by, table=table, where=where
    )
    rules = (
        *row_rules(
            target.schema,
            target.properties,
            table=table,
            generated_given=aligned.given,
            partition_by=target.partition_by,
        ),
        *_partition_rules(target),
        *more_rules,
    )
    if (only := aligned.checked) is not None:
        rules = tuple(replace(rule, violated=only & rule.violated) for rule in rules)
    try:
        with storage_errors(table, "write"):
            num_rows = write_data_files(
                checked(complete, rules, table=table).select(
                    *layout.columns(), *_row_ids(aligned, target)
                ),
                hadoop_path(resolve(files.storage.root, encode_path(directory))),
                partition_by=layout.directories,
                compression=target.properties.parquet_compression_codec,
                part_size=part_size,
            )
            write_nested_ids(complete.sparkSession, files.table, directory, layout.nested_ids)
    except ConstraintViolationError as error:
        # The job has stopped at the first row; another pass counts them all.
        raise (_counted(complete, rules, table) or error) from error
    _describe(files, directory, layout, target, num_rows)


def _row_ids(aligned: AlignedRows, target: WriteTarget) -> list[Column]:
    """The hidden column with the ids of rows that had one; the row commit versions are the new ones."""
    name = target.properties.row_id_column_name
    if aligned.row_ids is None or name is None:
        return []
    return [F.col(quoted(aligned.row_ids)).alias(name)]


def _counted(
    rows: DataFrame, rules: Sequence[RowRule], table: str
) -> ConstraintViolationError | None:
    try:
        with storage_errors(table, "read"):
            return violation(rows, rules, table=table)
    except (DeltaError, PySparkException, Py4JError):
        # The violation that was found is what users must know, also if Spark can't evaluate the rows again.
        return None


def _partition_rules(target: WriteTarget) -> list[RowRule]:
    """Texts that no partition value can be."""
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
            f"the rows don't all meet the condition replace_where, {request.predicate}",
        )
    ]


def _shuffled(rows: DataFrame, target: WriteTarget) -> DataFrame:
    """The rows in parts of the target size, by partition."""
    columns = [F.col(quoted(name)) for name in target.partition_by]
    if not columns:
        return rows.hint("rebalance")
    settings = [rows.sparkSession.conf.get(name, None) for name in _NUMBERS_OF_PARTS]
    given = [int(value) for value in settings if value is not None and value.isdecimal()]
    return rows.hint("rebalance", max(*given, _MIN_PARTS, 0), *columns)


def _part_size(
    optimize_write: bool | None, target_file_size: int | None, target: WriteTarget
) -> int | None:
    """The bytes of the parts of a shuffle; None without one."""
    choices = (optimize_write, target.properties.optimize_write)
    default = bool(target.partition_by) or target_file_size is not None
    if not next((choice for choice in choices if choice is not None), default):
        return None
    return target_file_size or target.properties.target_file_size or _DEFAULT_SIZE


def _describe(
    files: NewFiles, directory: str, layout: FileLayout, target: WriteTarget, num_rows: int
) -> None:
    """Find the files with the rows that were written, and delete those without rows."""
    written = list_data_files(files.storage, directory)
    check_num_rows(written, num_rows, table=target.table)
    files.storage.delete([file.info.path for file in written if not file.num_rows])
    found = [file for file in written if file.num_rows]
    # A Python loop over the files of one write, whose footers were read.
    files.adds.extend(_add(file, directory, layout, target) for file in found)
    files.num_rows += sum(file.num_rows for file in found)
    for column, furthest in _identity_values(found, layout, target):
        others = (
            [files.identity_values[column.name]] if column.name in files.identity_values else []
        )
        files.identity_values[column.name] = _furthest([furthest, *others], column)


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
) -> Iterator[tuple[IdentityColumn, int]]:
    """The furthest value of each identity column in files."""
    for column in identity_columns(target.schema):
        leaf = layout.identities.get(column.name)
        if leaf is None:
            continue
        footers = [file.footer for file in files if not has_only_nulls(file.footer, leaf)]
        bounds = [column_bounds(footer, leaf) for footer in footers]
        values = [bound[column.step > 0] for bound in bounds if bound is not None]
        if len(values) < len(bounds):
            # Without a new high water mark, later writes would make the same values again.
            raise InvalidArgumentError(
                f"Spark has written files without the bounds of the identity column {column.name!r}, from "
                "which its high water mark is computed: remove the settings that begin with "
                f"{STATISTICS_SETTING}# from the session and from Hadoop's configuration",
                table=target.table,
                column=column.name,
            )
        if values:
            yield column, _furthest(values, column)


def _furthest(values: Sequence[int], column: IdentityColumn) -> int:
    return max(values) if column.step > 0 else min(values)
