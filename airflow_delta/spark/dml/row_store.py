"""Rows that Spark has evaluated, and stores on its executors until they are no longer needed."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame

from airflow_delta.spark.reader.own_sessions import in_session, planned_quickly
from airflow_delta.spark.runtime.java_errors import storage_errors

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["RowStore", "stored_size"]


@dataclass(frozen=True, slots=True)
class RowStore:
    """Stores rows, and releases them at its end. If an executor is lost, jobs on its rows fail.

    Attributes:
        table: the table's location, for errors.
    """

    table: str
    _stored: list[DataFrame] = field(default_factory=list)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for rows in self._stored:
            # Without waiting: an executor that answers late mustn't fail what is committed.
            _rdd(rows).unpersist(False)

    def store(self, rows: DataFrame) -> DataFrame:
        """Evaluate rows once, and store them.

        Args:
            rows: the rows.

        Raises:
            StorageError: Spark can't read a file.
            PySparkException: Spark's other errors.
        """
        with storage_errors(self.table, "read"):
            # With adaptive execution, this evaluates all but the last stage.
            stored = planned_quickly(rows).localCheckpoint(eager=False)
            # Before the rows are evaluated, so that what an error leaves is released too.
            self._stored.append(stored)
            _rdd(stored).count()
        return in_session(stored, rows.sparkSession)


def stored_size(rows: DataFrame) -> int:
    """The bytes that stored rows take in Spark's memory and on its disks, as its block manager knows them.

    Args:
        rows: rows of `RowStore.store`.
    """
    number = _rdd(rows).id()
    context: Any = rows.sparkSession.sparkContext._jsc  # noqa: SLF001
    for info in context.sc().getRDDStorageInfo():
        if info.id() == number:
            return int(info.memSize()) + int(info.diskSize())
    # Without partitions nothing is stored.
    return 0


def _rdd(stored: DataFrame) -> Any:
    return stored._jdf.queryExecution().analyzed().rdd()  # noqa: SLF001
