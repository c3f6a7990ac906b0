"""Tables that Iceberg can read stay readable for it.

Spec: PROTOCOL.md, "Iceberg Compatibility V1" and "Iceberg Compatibility V2". What the table must be
like is in ``features/iceberg_compat.py``; this stage adds what its files must tell.
"""

from __future__ import annotations

from airflow_delta.engine.features.iceberg_compat import (
    check_iceberg_compat,
    iceberg_compat_version,
)
from airflow_delta.engine.transaction.context import CommitContext
from airflow_delta.engine.transaction.prepare.statistics import record_counts
from airflow_delta.engine.transaction.prepare.table_columns import schema_after
from airflow_delta.engine.transaction.staged import Actions

__all__ = ["check_iceberg"]


def check_iceberg(actions: Actions, context: CommitContext) -> Actions:
    """The table fits the version of Iceberg compatibility in force, and each file tells its records.

    Raises:
        ConstraintViolationError: a file's statistics don't tell ``numRecords``.
        InvalidTableError: protocol, properties, schema or partition columns don't fit the version.
    """
    version = iceberg_compat_version(context.supported, context.properties)
    if version is None:
        return actions
    check_iceberg_compat(
        context.supported,
        context.properties,
        schema_after(context),
        partition_columns=context.metadata.partition_columns,
        before=context.base.metadata.partition_columns if context.base else (),
    )
    record_counts(actions.adds, context, why=f"icebergCompatV{version} needs it")
    return actions
