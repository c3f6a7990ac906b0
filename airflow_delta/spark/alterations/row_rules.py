"""`add_constraint` and `set_not_null`: new rules for the rows of a table that has data.

1. The engine works out the new metadata of the newest version (``engine/transaction/alter``).
2. Spark counts the rows of that version that break the new rule, in one pass. If there are any, nothing is
   committed.
3. The commit counts as one that has read the whole table, so that files that others have added or removed
   since are a conflict.

Delta Spark has no SET NOT NULL for columns of a table with data.

Spec: PROTOCOL.md, "CHECK Constraints", "Column Invariants".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from airflow_delta.engine import CommitResult, DeltaTable, Snapshot
from airflow_delta.engine.model.actions import Metadata
from airflow_delta.engine.model.properties import TableProperties
from airflow_delta.engine.model.schema_json import parse_schema
from airflow_delta.spark.reader.snapshot_reader import SnapshotReader
from airflow_delta.spark.rules.expressions import check_condition
from airflow_delta.spark.rules.row_rules import row_rules, violation
from airflow_delta.spark.runtime.java_errors import storage_errors

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from airflow_delta.engine.commit.owner import CommitOwner

__all__ = ["add_constraint", "set_not_null"]


def add_constraint(
    spark: SparkSession,
    uri: str,
    name: str,
    expression: str,
    *,
    txn: tuple[str, int] | None = None,
    storage_options: Mapping[str, str] | None = None,
    commit_owners: Mapping[str, CommitOwner] | None = None,
    allowed_outside: Sequence[str] = (),
) -> CommitResult:
    """Add a CHECK constraint to a table, if all of its rows satisfy it.

    Args:
        spark: the session; Spark reads data files with the credentials of its own configuration.
        uri: the table's path or URI.
        name: the constraint's name; the same in any case, and stored in lower case.
        expression: its condition in SQL, over the table's columns. A row for which it is null breaks it.
        txn: application id and version: if they are committed already, the call does nothing and returns
            that commit. So a retry can't fail because the constraint exists.
        storage_options: credentials and settings with which the engine reads the log and commits.
        commit_owners: commit owners of managed tables by name, beside those that are installed.
        allowed_outside: locations outside of the table below which it may read files; see `DeltaTable`.

    Raises:
        InvalidArgumentError: there is a constraint of that name; or the condition isn't a boolean
            expression over the columns of one row (see `check_condition`).
        ConstraintViolationError: rows break the constraint. Facts: columns, rule, num_rows, row.
        CommitConflictError: another writer has changed the table since its rows were checked.
        CommitOutcomeUnknownError: the store failed; the commit may have been made.
        StorageError: Spark can't read a data file.
        DeltaError: the table can't be read or committed to; see `TableAlteration`.
        PySparkException: Spark's own errors.
    """
    table = DeltaTable(uri, storage_options, commit_owners, allowed_outside=allowed_outside)

    def _check(base: Snapshot, metadata: Metadata) -> None:
        check_condition(spark, expression, base.schema, table=uri)
        _check_rows(spark, table, base, metadata)

    return table.alter.add_constraint(name, expression, check=_check, txn=txn)


def set_not_null(
    spark: SparkSession,
    uri: str,
    column: str | Sequence[str],
    *,
    txn: tuple[str, int] | None = None,
    storage_options: Mapping[str, str] | None = None,
    commit_owners: Mapping[str, CommitOwner] | None = None,
    allowed_outside: Sequence[str] = (),
) -> CommitResult:
    """Let a column of a table hold no null, if it has none.

    Args:
        spark: see `add_constraint`.
        uri: see `add_constraint`.
        column: the column; a field of a struct as the list of names from the top down. A field is null in
            a row whose struct is.
        txn: see `add_constraint`.
        storage_options: see `add_constraint`.
        commit_owners: see `add_constraint`.
        allowed_outside: see `add_constraint`.

    Raises:
        InvalidArgumentError: there is no such column, or it lies inside an array or a map.
        ConstraintViolationError: rows have a null in the column. Facts: columns, rule, num_rows, row.
        DeltaError: see `add_constraint`.
        PySparkException: Spark's own errors.
    """
    table = DeltaTable(uri, storage_options, commit_owners, allowed_outside=allowed_outside)

    def _check(base: Snapshot, metadata: Metadata) -> None:
        _check_rows(spark, table, base, metadata)

    return table.alter.set_not_null(column, check=_check, txn=txn)


def _check_rows(spark: SparkSession, table: DeltaTable, base: Snapshot, metadata: Metadata) -> None:
    """Check the rows of a version against the rules that new metadata add."""
    former = Counter(rule.name for rule in row_rules(base.schema, base.properties, table=table.uri))
    rules = row_rules(
        parse_schema(metadata.schema_string, table.uri),
        TableProperties(metadata.configuration, table.uri),
        table=table.uri,
    )
    # A name isn't unique: the column `a.b` and the field b of a have the same.
    now = Counter(rule.name for rule in rules)
    new = [rule for rule in rules if now[rule.name] > former[rule.name]]
    with storage_errors(table.uri, "read"):
        rows = SnapshotReader(spark, table, base).rows(exact=True)
        error = violation(rows, new, table=table.uri)
    if error is not None:
        raise error
