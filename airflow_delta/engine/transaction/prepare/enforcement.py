"""Rules about rows are enforced by whoever writes the rows, and declared.

The engine never sees the rows of a data file. Whether they satisfy the constraints of the table, have
its generated values, and the like, only their writer knows, who declares it by the names of the
features (``enforces`` of `DeltaTable.transaction`). New files of a writer that didn't are refused while
the rules are in force. What statistics tell of rows is checked all the same.

Spec: PROTOCOL.md, "Column Invariants", "CHECK Constraints", "Generated Columns", "Default Columns",
"Identity Columns", "Iceberg Compatibility V1" and "V2".
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
    """All that the table asks of its writers is done, by the engine or by the writer of the files.

    Raises:
        UnsupportedFeatureError: the table needs something that the engine lacks, or a rule of which
            nobody declares that it was enforced on the rows of added files.
        InvalidTableError: protocol and metadata contradict each other.
        CorruptLogError: the table's live files can't be read.
        StorageError: the store failed.
    """
    operation = Operation.APPEND if actions.adds else Operation.COMMIT
    try:
        _check(operation, context)
    except UnsupportedFeatureError:
        if operation is Operation.COMMIT or not _are_in_the_table(actions.adds, context):
            raise
        # Files that are committed again bring no rows that nobody has checked.
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


def _are_in_the_table(files: Sequence[AddFile], context: CommitContext) -> bool:
    live = live_by_path(files, context, ("path",))
    return all(context.path_key(file) in live for file in files)


def check_nulls(actions: Actions, context: CommitContext) -> Actions:
    """No file's statistics tell of nulls in a column that has none.

    Deleted rows count in the statistics, so that files with a deletion vector aren't judged.

    Raises:
        ConstraintViolationError: a file's statistics do, or are no JSON.
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
                    f"the file {file.path!r} has {nulls} nulls in the column {'.'.join(path)}, by its "
                    "statistics, and the column has none"
                )
    return actions


def _columns_without_nulls(schema: StructType, path: SchemaPath = ()) -> Iterator[SchemaPath]:
    """Columns that are null in no row: neither they nor a struct around them."""
    for field in schema:
        if field.nullable:
            continue
        if isinstance(field.data_type, StructType):
            yield from _columns_without_nulls(field.data_type, (*path, field.name))
        else:
            yield (*path, field.name)
