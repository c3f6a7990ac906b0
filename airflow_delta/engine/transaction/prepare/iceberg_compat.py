"""Keep a table readable for Iceberg, if Iceberg compatibility is in force.

``features/iceberg_compat.py`` has the requirements on the table. This stage adds the one on its files: each
must have ``numRecords`` in its statistics.

PROTOCOL.md, "Iceberg Compatibility V1" and "Iceberg Compatibility V2".
"""

from __future__ import annotations

from collections.abc import Mapping

from airflow_delta.engine.features.column_mapping import mapping_mode, partition_fields
from airflow_delta.engine.features.iceberg_compat import (
    check_iceberg_compat,
    iceberg_compat_version,
)
from airflow_delta.engine.model.schema import StructField
from airflow_delta.engine.snapshot.snapshot import Snapshot
from airflow_delta.engine.transaction.context import CommitContext
from airflow_delta.engine.transaction.prepare.statistics import record_counts
from airflow_delta.engine.transaction.prepare.table_columns import (
    partition_fields_after,
    schema_after,
)
from airflow_delta.engine.transaction.staged import Actions

__all__ = ["check_iceberg"]


def check_iceberg(actions: Actions, context: CommitContext) -> Actions:
    """Check the requirements of the version of Iceberg compatibility that is in force.

    Raises:
        ConstraintViolationError: the statistics of a file lack ``numRecords``.
        InvalidTableError: protocol, properties, schema or partition columns break a requirement.
    """
    version = iceberg_compat_version(context.supported, context.properties)
    if version is None:
        return actions
    check_iceberg_compat(
        context.supported,
        context.properties,
        schema_after(context),
        partition_columns=partition_fields_after(context),
        before=_partition_fields_before(context.base) if context.base else {},
    )
    record_counts(actions.adds, context, why=f"icebergCompatV{version} needs it")
    return actions


def _partition_fields_before(base: Snapshot) -> Mapping[str, StructField]:
    mode = mapping_mode(base.protocol, base.metadata, table=base.table)
    return partition_fields(base.schema, base.metadata.partition_columns, mode)
