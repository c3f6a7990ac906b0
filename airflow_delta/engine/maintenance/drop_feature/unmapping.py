"""Column mapping is turned off: what a commit says of the columns then, beside their files.

The columns' ids and physical names leave the schema, and the properties of column mapping the metadata
(`metadata_without_mapping`). Whatever names columns by their physical names has to follow: the
domain of a clustered table (PROTOCOL.md, "Clustered Table").

It is for the one commit that also takes out all files that know the columns by other names.
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
"""What Delta Spark calls the commit."""


def unmap_columns(transaction: OptimisticTransaction) -> None:
    """Stage metadata without column mapping, and that the table is clustered by the same columns.

    Args:
        transaction: one that is based on a version with column mapping; all its files must go.

    Raises:
        InvalidTableError: columns have names that only column mapping allows; or the schema or the
            clustering columns can't be read.
    """
    # All files go, so that one more or less is a conflict.
    base = transaction.read_table()
    transaction.set_metadata(metadata_without_mapping(base.metadata, table=base.table))
    domain = base.domains.get(DOMAIN)
    if domain is None:
        return
    mode = mapping_mode(base.protocol, base.metadata, table=base.table)
    logical = {place: path for path, place in physical_paths(base.schema, mode).items()}
    columns = parse_clustering_columns(domain.configuration, table=base.table)
    by_name = [logical.get(column, column) for column in columns]
    # The protocol's domains aren't for users to set.
    transaction.declare(SystemDomain(clustering_domain(by_name)))
