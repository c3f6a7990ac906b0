"""Find the files that a deletion would change, from the log alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from airflow_delta.engine import DeltaTable
from airflow_delta.spark.dml.commit import begin_change
from airflow_delta.spark.dml.conditions import choose_files
from airflow_delta.spark.dml.deletion import live_rows

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession

    from airflow_delta.engine.commit.owner import CommitOwner

__all__ = ["DeletionPlan", "plan_deletion"]

_NUM_EXAMPLES = 20


@dataclass(frozen=True, slots=True)
class DeletionPlan:
    """What a deletion would change.

    Attributes:
        version: the version of the table.
        num_files: the number of files that may have rows to be deleted.
        size_in_bytes: their total size.
        max_rows: the number of their rows; None if statistics don't contain it.
        num_whole_files: the number of those that would be removed without reading them.
        examples: the paths of some, as in the log.
    """

    version: int
    num_files: int
    size_in_bytes: int
    max_rows: int | None
    num_whole_files: int
    examples: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """The attributes as JSON values."""
        return {**asdict(self), "examples": list(self.examples)}


def plan_deletion(
    spark: SparkSession,
    uri: str,
    condition: Column | str | None = None,
    *,
    storage_options: Mapping[str, str] | None = None,
    commit_owners: Mapping[str, CommitOwner] | None = None,
    allowed_outside: Sequence[str] = (),
) -> DeletionPlan:
    """Find the files that `airflow_delta.spark.delete` would read or remove.

    Args:
        spark: see `airflow_delta.spark.delete`.
        uri: see there.
        condition: see there.
        storage_options: see there.
        commit_owners: see there.
        allowed_outside: see there.

    Raises:
        DeltaError: see there.
    """
    table = DeltaTable(uri, storage_options, commit_owners, allowed_outside=allowed_outside)
    target = begin_change(table, "DELETE", {}, removes=True)
    chosen = choose_files(spark, target, condition)
    files = pa.concat_tables([chosen.whole, chosen.partial])
    return DeletionPlan(
        target.version,
        files.num_rows,
        pc.sum(files["size"]).as_py() or 0,
        live_rows(files),
        chosen.whole.num_rows,
        tuple(files["path"].slice(0, _NUM_EXAMPLES).to_pylist()),
    )
