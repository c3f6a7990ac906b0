"""The request of a write: the arguments of `write`, checked before anything is read or written."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from airflow_delta.engine import DeltaTable
from airflow_delta.engine.errors import InvalidArgumentError
from airflow_delta.engine.model.arguments import check_type, wrong_argument

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from airflow_delta.engine import Snapshot

__all__ = ["MODES", "PARTITION_OVERWRITES", "WriteRequest", "check_request"]

MODES = {
    "append": "Append",
    "overwrite": "Overwrite",
    "error": "ErrorIfExists",
    "ignore": "Ignore",
}
"""The modes of a write, and their names in a commit, as in Delta Spark."""

PARTITION_OVERWRITES = ("static", "dynamic")
"""What an overwrite replaces: all rows, or those of the partitions that the new rows have."""


@dataclass(frozen=True, slots=True)
class WriteRequest:
    """A write to be made; the attributes are the arguments of `airflow_delta.spark.ingest.write.write`.

    Attributes:
        transactions: the transaction identifiers that the commit sets, by application id.
        check: raises an error if an existing table must not be written to; its argument is the version that
            the transaction is based on.
        predicate: ``replace_where`` as SQL.
    """

    table: DeltaTable
    mode: str
    partition_by: tuple[str, ...] = ()
    cluster_by: tuple[str, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    replace_where: Column | str | None = None
    partition_overwrite: str = "static"
    merge_schema: bool = False
    overwrite_schema: bool = False
    optimize_write: bool | None = None
    target_file_size: int | None = None
    transactions: Mapping[str, int] = field(default_factory=dict)
    user_metadata: str | None = None
    check: Callable[[Snapshot], None] | None = None
    predicate: str | None = None

    @property
    def replaces_all(self) -> bool:
        """Whether the new rows replace all rows of the table."""
        return (
            self.mode == "overwrite"
            and self.replace_where is None
            and self.partition_overwrite == "static"
        )

    def parameters(self, partition_by: Sequence[str]) -> dict[str, object]:
        """The ``operationParameters`` of the commit, as Delta Spark writes them.

        Args:
            partition_by: the table's partition columns.
        """
        found: dict[str, object] = {"mode": MODES[self.mode], "partitionBy": list(partition_by)}
        if self.predicate is not None:
            found["predicate"] = self.predicate
        flags = {
            "isDynamicPartitionOverwrite": self.partition_overwrite == "dynamic",
            "canOverwriteSchema": self.overwrite_schema,
            "canMergeSchema": self.merge_schema,
        }
        return found | {name: True for name, is_set in flags.items() if is_set}


def check_request(request: WriteRequest, rows: DataFrame | Any) -> None:
    """Check the arguments of a write, and that they go together.

    Raises:
        InvalidArgumentError: an argument is none of what it may be, or two exclude each other.
    """
    from pyspark.sql import DataFrame

    if not isinstance(rows, DataFrame):
        raise _invalid(request, f"rows: expected a DataFrame of Spark, found {type(rows).__name__}")
    for name, value, choices in (
        ("mode", request.mode, tuple(MODES)),
        ("partition_overwrite", request.partition_overwrite, PARTITION_OVERWRITES),
    ):
        if value not in choices:
            raise _invalid(
                request, f"unknown {name} {value!r}: expected one of {', '.join(choices)}"
            )
    if rows.isStreaming:
        raise _invalid(
            request,
            "rows: the DataFrame is a stream: write its batches by foreachBatch of its writer, each with a "
            "txn of its own",
        )
    _check_types(request)
    size = request.target_file_size
    if size is not None and (type(size) is not int or size < 1):
        raise _invalid(
            request, f"target_file_size={size!r}: expected a number of bytes, at least 1"
        )
    _check_overwrite(request)


def _check_types(request: WriteRequest) -> None:
    """Check that flags are no texts, which would all be true, and the condition is one for Spark."""
    from pyspark.sql import Column

    table = request.table.uri
    check_type("merge_schema", request.merge_schema, bool, "true or false", table=table)
    check_type("overwrite_schema", request.overwrite_schema, bool, "true or false", table=table)
    optimize = request.optimize_write
    check_type("optimize_write", optimize, bool | None, "true, false or None", table=table)
    condition = request.replace_where
    if not (condition is None or isinstance(condition, str | Column)):
        raise wrong_argument(
            "replace_where", "a condition as a text or Column", condition, table=table
        )


def _check_overwrite(request: WriteRequest) -> None:
    dynamic = request.partition_overwrite == "dynamic"
    given = {
        "replace_where": request.replace_where is not None,
        "partition_overwrite='dynamic'": dynamic,
        "overwrite_schema=True": request.overwrite_schema,
    }
    present = [name for name, is_given in given.items() if is_given]
    if present and request.mode != "overwrite":
        raise _invalid(
            request,
            f"{present[0]} says what an overwrite replaces, and the mode is {request.mode!r}: use "
            "mode='overwrite', or leave it out",
        )
    if len(present) > 1:
        raise _invalid(request, f"{' and '.join(present)} exclude each other: choose one of them")
    if request.overwrite_schema and request.merge_schema:
        raise _invalid(
            request, "overwrite_schema and merge_schema exclude each other: choose one of them"
        )
    if request.partition_by and request.cluster_by:
        raise _invalid(
            request, "partition_by and cluster_by exclude each other: choose one of them"
        )


def _invalid(request: WriteRequest, message: str) -> InvalidArgumentError:
    return InvalidArgumentError(message, table=request.table.uri)
