"""Stage the metadata of a table whose column mapping is turned off.

The columns' ids and physical names leave the schema, and the properties of column mapping leave the
metadata (`metadata_without_mapping`). The domain of a clustered table has physical names, so it
changes too (PROTOCOL.md, "Clustered Table"). The same commit must remove all files whose columns have
physical names.
"""

from __future__ import annotations

from airflow_delta.engine.features.clustering import (
    DOMAIN,
    clustering_domain,
    parse_clustering_columns,
)
from airflow_delta.engine.features.column_mapping import (
    mapping_mode,
    metadata_without_mapping,
    physical_paths,
)
from airflow_delta.engine.transaction.intent import SystemDomain
from airflow_delta.engine.transaction.transaction import OptimisticTransaction

__all__ = ["OPERATION", "unmap_columns"]

OPERATION = "REMOVE COLUMN MAPPING"
"""Delta Spark's name for the commit."""


def unmap_columns(transaction: OptimisticTransaction) -> None:
    """Stage metadata without column mapping, and the same clustering columns by logical names.

    Args:
        transaction: based on a version with column mapping; it must remove all files.

    Raises:
        InvalidTableError: columns have names that only column mapping allows; or the schema or the
            clustering columns can't be read.
    """
    # All files are removed, so any file added or removed concurrently is a conflict.
    base = transaction.read_table()
    transaction.set_metadata(metadata_without_mapping(base.metadata, table=base.table))
    domain = base.domains.get(DOMAIN)
    if domain is None:
        return
    mode = mapping_mode(base.protocol, base.metadata, table=base.table)
    logical = {physical: path for path, physical in physical_paths(base.schema, mode).items()}
    columns = parse_clustering_columns(domain.configuration, table=base.table)
    by_name = [logical.get(column, column) for column in columns]
    # Users can't set system domains, so the intent allows it.
    transaction.declare(SystemDomain(clustering_domain(by_name)))
