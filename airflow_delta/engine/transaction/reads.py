"""`Reads`: what a transaction has read, so that concurrent changes of it are conflicts.

`may_have_been_read` decides whether the transaction would have read a file, had it existed then.
It compares the predicates with the partition values of the file. Statistics don't count, as in the
reference implementation: every file of a partition that was read counts as read.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from airflow_delta.engine.features.column_mapping import mapping_mode
from airflow_delta.engine.model.actions import Metadata, Protocol
from airflow_delta.engine.scan.file_pruner import FilePruner
from airflow_delta.engine.snapshot.table_schema import table_schema

__all__ = ["Reads", "may_have_been_read"]


@dataclass(slots=True)
class Reads:
    """The recorded reads of a transaction.

    Attributes:
        whole_table: whether every file that is added or removed is a conflict.
        predicates: a `pyarrow.compute.Expression` for each call that read files; None if it read all files.
            A new file that may match one of them is a conflict.
        paths: the paths of the files that were read, as spelled in the log: one column for each call,
            because there may be as many paths as the table has files.
        app_ids: the applications whose last transaction was read.
        domains: the metadata domains that were read.
    """

    whole_table: bool = False
    predicates: list[Any] = field(default_factory=list)
    paths: list[pa.ChunkedArray] = field(default_factory=list)
    app_ids: set[str] = field(default_factory=set)
    domains: set[str] = field(default_factory=set)


def may_have_been_read(
    adds: pa.Table, reads: Reads, protocol: Protocol, metadata: Metadata, *, table: str
) -> str | None:
    """The first of some files that a transaction might have read.

    Args:
        adds: files, with ``path`` and ``partitionValues``.
        reads: what was read.
        protocol: the protocol of the table.
        metadata: the metadata of the table.
        table: its location, for messages.

    Returns:
        The file's path; None if there is none.

    Raises:
        InvalidTableError: the table's schema, mapping and partition columns contradict each other.
    """
    if reads.whole_table or any(predicate is None for predicate in reads.predicates):
        return _first(adds)
    if not reads.predicates:
        return None
    no_statistics = pa.chunked_array([pa.nulls(adds.num_rows, pa.string())])
    by_partition = pa.Table.from_arrays(
        [adds["path"], adds["partitionValues"], no_statistics],
        names=["path", "partitionValues", "stats"],
    )
    schema = table_schema(metadata, table=table)
    mode = mapping_mode(protocol, metadata, table=table)

    def _matching(predicate: Any) -> pa.Table:
        pruner = FilePruner(
            predicate,
            schema=schema,
            partition_columns=metadata.partition_columns,
            mapping_mode=mode,
            table=table,
        )
        return pruner.prune(by_partition)

    found = (_first(_matching(predicate)) for predicate in reads.predicates)
    return next((path for path in found if path is not None), None)


def _first(files: pa.Table) -> str | None:
    return files["path"][0].as_py() if files.num_rows else None
