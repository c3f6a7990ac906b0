"""Each file of a partitioned table says which partition it belongs to.

Spec: PROTOCOL.md, "Partition Value Serialization" and "Consistency Between Table Metadata and Data
Files"; edge case G6: what stands for null in the names of directories is no value.
"""

from __future__ import annotations

from airflow_delta.engine.errors import InvalidTableError
from airflow_delta.engine.model.file_actions import AddCdcFile, AddFile
from airflow_delta.engine.model.partition_values import parse_partition_value
from airflow_delta.engine.model.schema import StructField
from airflow_delta.engine.transaction.context import CommitContext
from airflow_delta.engine.transaction.prepare.table_columns import partition_fields_after
from airflow_delta.engine.transaction.staged import Actions

__all__ = ["check_partition_values"]

_HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"


def check_partition_values(actions: Actions, context: CommitContext) -> Actions:
    """Each file has a value for each partition column, by physical name, that fits its type.

    Raises:
        ConstraintViolationError: a file lacks a value, has one too many or one that is none, or a
            null where the column has none.
        InvalidTableError: the table's schema, mapping and partition columns don't fit together.
    """
    # A loop over the files of one commit: they came as objects, from one writer.
    files: tuple[AddFile | AddCdcFile, ...] = (*actions.adds, *actions.cdc)
    if not files:
        return actions
    columns = partition_fields_after(context)
    names = columns.keys()
    for file in files:
        if file.partition_values.keys() != names:
            raise context.violation(
                f"the file {file.path!r} has partition values for {sorted(file.partition_values)}; "
                f"the table is partitioned by {sorted(columns)}"
            )
    for name, field in columns.items():
        # Many files share few values.
        by_value = {file.partition_values[name]: file for file in files}
        for text, file in by_value.items():
            _check_value(text, field, file, context)
    return actions


def _check_value(
    text: str | None, field: StructField, file: AddFile | AddCdcFile, context: CommitContext
) -> None:
    problem = None
    if text == _HIVE_NULL:
        problem = f"{text} means null in directory names only; expected null"
    try:
        value = parse_partition_value(text, field.data_type)
    except InvalidTableError as error:
        problem = problem or error.message
    else:
        if value is None and not field.nullable:
            problem = "the value is null, and the column has no nulls"
    if problem:
        raise context.violation(
            f"the file {file.path!r}, partition column {field.name!r}: {problem}"
        )
