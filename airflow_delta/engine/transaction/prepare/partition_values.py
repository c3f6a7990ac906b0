"""Check the partition values of the files that a commit adds.

The text that stands for null in directory names is no value.

PROTOCOL.md, "Partition Value Serialization" and "Consistency Between Table Metadata and Data Files".
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
    """Check that each file has a value of the right type for each partition column, by physical name.

    Raises:
        ConstraintViolationError: a file lacks a value, has an additional or invalid one, or has null for a
            column that is NOT NULL.
        InvalidTableError: the table's schema, mapping and partition columns contradict each other.
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
        # Many files share few values, so each value is checked once.
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
            problem = "the value is null, but the column is NOT NULL"
    if problem:
        raise context.violation(
            f"the file {file.path!r}, partition column {field.name!r}: {problem}"
        )
