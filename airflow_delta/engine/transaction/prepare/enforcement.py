"""Refuse new files whose writer didn't enforce the table's rules about rows.

The engine never sees the rows of a data file. Only their writer knows whether they satisfy the constraints,
generation expressions and similar rules. It declares the features whose rules it has enforced (``enforces``
of `DeltaTable.transaction`). `check_nulls` additionally checks what statistics show about rows.

PROTOCOL.md, "Column Invariants", "CHECK Constraints", "Generated Columns", "Default Columns", "Identity
Columns", "Iceberg Compatibility V1" and "V2".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from airflow_delta.engine.errors import UnsupportedFeatureError
from airflow_delta.engine.features.protocol import Operation, check_writable
from airflow_delta.engine.features.schema_walk import SchemaPath
from airflow_delta.engine.model.file_actions import AddFile
from airflow_delta.engine.model.schema import StructType
from airflow_delta.engine.transaction.context import CommitContext
from airflow_delta.engine.transaction.prepare.live_files import live_by_path
from airflow_delta.engine.transaction.prepare.statistics import count_of, statistic, statistics_of
from airflow_delta.engine.transaction.prepare.table_columns import physical_schema_after
from airflow_delta.engine.transaction.staged import Actions

__all__ = ["check_enforcement", "check_nulls"]


def check_enforcement(actions: Actions, context: CommitContext) -> Actions:
    """Check that the engine, or the writer of the files, does all that the table requires of writers.

    Raises:
        UnsupportedFeatureError: the table needs something that the engine lacks; or it has a rule about
            rows, and the writer of the added files doesn't declare that it enforced it.
        InvalidTableError: protocol and metadata contradict each other.
        CorruptLogError: the table's live files can't be read.
        StorageError: the store failed.
    """
    operation = Operation.APPEND if actions.adds else Operation.COMMIT
    try:
        _check(operation, context)
    except UnsupportedFeatureError:
        if operation is Operation.COMMIT or not _are_in_table(actions.adds, context):
            raise
        # Files that are committed again contain no unchecked rows.
        _check(Operation.COMMIT, context)
    return actions


def _check(operation: Operation, context: CommitContext) -> None:
    check_writable(
        context.protocol,
        context.metadata,
        table=context.table,
        operation=operation,
        enforced=context.enforced,
    )


def _are_in_table(files: Sequence[AddFile], context: CommitContext) -> bool:
    live = live_by_path(files, context, ("path",))
    return all(context.path_key(file) in live for file in files)


def check_nulls(actions: Actions, context: CommitContext) -> Actions:
    """Refuse files whose statistics show nulls in a column that can't hold them.

    Files with a deletion vector aren't checked, because their statistics count deleted rows too.

    Raises:
        ConstraintViolationError: the statistics of a file show nulls, or aren't JSON.
        InvalidTableError: the schema can't be read.
    """
    if not actions.adds:
        return actions
    columns = tuple(_columns_without_nulls(physical_schema_after(context)))
    if not columns:
        return actions
    # A loop over the files of one commit: they came as objects, from one writer.
    for file in actions.adds:
        if file.stats is None or file.deletion_vector is not None:
            continue
        counts = statistics_of(file, context)
        for path in columns:
            nulls = count_of(statistic(counts, "nullCount", path))
            if nulls:
                raise context.violation(
                    f"the statistics of the file {file.path!r} show {nulls} nulls in the column "
                    f"{'.'.join(path)}, which is NOT NULL"
                )
    return actions


def _columns_without_nulls(schema: StructType, path: SchemaPath = ()) -> Iterator[SchemaPath]:
    """The columns that are null in no row: neither they nor a struct around them may be null."""
    for field in schema:
        if field.nullable:
            continue
        if isinstance(field.data_type, StructType):
            yield from _columns_without_nulls(field.data_type, (*path, field.name))
        else:
            yield (*path, field.name)
