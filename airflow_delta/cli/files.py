"""``airflow-delta files URI``: the data files of a version."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from airflow_delta.cli.options import (
    POSITIVE,
    at_most_one,
    json_option,
    subcommand,
    version_options,
)
from airflow_delta.cli.output import print_json
from airflow_delta.cli.tables import print_table
from airflow_delta.cli.target import Target, table_options
from airflow_delta.engine.model.sizes import size_text

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["file_entries", "files"]

_ADD_COLUMNS = ("path", "size", "modificationTime", "partitionValues", "stats", "deletionVector")
_COLUMNS = ("path", "size", "rows", "deleted rows", "modified", "partition")
_CHUNK = 1_000


@subcommand(
    "files",
    help="List the data files of a version; with --json an object in each line.",
    is_long=True,
)
@table_options()
@version_options("List the files of")
@click.option(
    "--where",
    metavar="CONDITION",
    help="Leave out files whose partition values or statistics show that no row matches, such as "
    "\"day >= '2026-01-01'\".",
)
@click.option("--limit", type=POSITIVE, metavar="N", help="The most files to list.")
@json_option
def files(
    target: Target,
    *,
    version: int | None,
    timestamp: str | None,
    where: str | None,
    limit: int | None,
    as_json: bool,
) -> None:
    """Print the files.

    Raises:
        InvalidArgumentError: the condition can't be parsed, or doesn't fit the table.
        DeltaError: the table or the version can't be read.
    """
    at_most_one(version=version, timestamp=timestamp)
    snapshot = target.open().snapshot(version=version, timestamp=timestamp)
    adds = snapshot.files(columns=_ADD_COLUMNS, predicate=where)
    chunks = file_entries(adds if limit is None else adds.slice(0, limit))
    if as_json:
        for entries in chunks:
            for entry in entries:
                print_json(entry, indent=None)
        return
    rows = ([_cells(entry) for entry in entries] for entries in chunks)
    print_table(_COLUMNS, rows, numbers=("size", "rows", "deleted rows"))


def file_entries(adds: pa.Table) -> Iterator[list[dict[str, Any]]]:
    """The facts about files as JSON values, in chunks.

    Args:
        adds: ``add`` actions, with the columns of this module's listing.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    from airflow_delta.engine.arrow.statistics.parse import num_records
    from airflow_delta.engine.model.plain import time_or_none

    deleted = pc.fill_null(pc.struct_field(adds["deletionVector"], "cardinality"), 0)
    facts = pa.table(
        {
            "path": adds["path"],
            "size_in_bytes": adds["size"],
            "num_rows": pc.subtract(num_records(adds["stats"]), deleted),
            "num_deleted_rows": deleted,
            "modification_time": adds["modificationTime"],
            "partition_values": adds["partitionValues"],
        }
    )
    for start in range(0, facts.num_rows, _CHUNK):
        # A loop in Python, because each file is printed.
        yield [
            {
                **entry,
                "modification_time": time_or_none(entry["modification_time"]),
                "partition_values": dict(entry["partition_values"] or ()),
            }
            for entry in facts.slice(start, _CHUNK).to_pylist()
        ]


def _cells(entry: dict[str, Any]) -> list[str]:
    partition = entry["partition_values"]
    return [
        entry["path"],
        size_text(entry["size_in_bytes"]),
        "-" if entry["num_rows"] is None else f"{entry['num_rows']:,}",
        f"{entry['num_deleted_rows']:,}",
        entry["modification_time"] or "-",
        json.dumps(partition, ensure_ascii=False) if partition else "-",
    ]
