"""Write sidecars with Spark, and verify them before they are published.

Executors write them, each with a range of file keys. The driver gets their ``sidecar`` actions, and
compares the sums of their tags with the counts of the log. On an error before the end of this, all
sidecars are deleted; later the caller decides.
"""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_delta.engine.arrow.parquet.action_file import ActionFile, read_pieces, reader_threads
from airflow_delta.engine.checkpoint.action_rows import FileActionTable
from airflow_delta.engine.checkpoint.sidecars.layout import SIDECAR_ROWS
from airflow_delta.engine.checkpoint.sidecars.tags import count_of
from airflow_delta.engine.errors import DeltaWarning, InvalidTableError, StorageError
from airflow_delta.engine.log.files import SIDECAR_DIRECTORY, sidecar_path
from airflow_delta.engine.storage.base import FileInfo, Storage
from airflow_delta.spark.checkpoint.action_counts import ActionCounts
from airflow_delta.spark.checkpoint.action_files import SidecarTask
from airflow_delta.spark.checkpoint.key_shuffle import ByRange, shuffled_actions
from airflow_delta.spark.checkpoint.log_parts import LogPart
from airflow_delta.spark.runtime.executor_errors import errors_of_executors

if TYPE_CHECKING:
    from pyspark import SparkContext

    from airflow_delta.engine.model.actions import Sidecar

__all__ = ["SidecarRun", "write_sidecars"]

_PARTITION_ROWS = SIDECAR_ROWS * 4 // 5
"""The log rows per partition; less than `SIDECAR_ROWS`, because ranges from a sample are inexact."""

_MOST_PARTITIONS = 2000
"""A limit, because each part of the log sends a parcel to each partition. In larger logs, partitions are
larger and have several sidecars."""


@dataclass(frozen=True, slots=True)
class SidecarRun:
    """The sidecars of a run.

    Attributes:
        storage: the table's storage.
        name: the unique prefix of the sidecars' names.
        sidecars: the ``sidecar`` actions.
    """

    storage: Storage
    name: str
    sidecars: tuple[Sidecar, ...] = ()

    def total(self, tag: str) -> int:
        """The sum of a tag over all sidecars, such as ``numAdds``."""
        return sum(count_of(sidecar.tags, tag) or 0 for sidecar in self.sidecars)

    def rows(self) -> Iterator[FileActionTable]:
        """Read all rows: adds, then removes."""
        files = [
            ActionFile(
                self.storage,
                FileInfo(sidecar_path(sidecar.path), sidecar.size_in_bytes, 0),
                exact_size=True,
            )
            for sidecar in self.sidecars
        ]
        workers = reader_threads(self.storage)
        for kind in ("add", "remove"):
            pieces = (piece for file in files for piece in file.pieces(kind))
            for rows in read_pieces(pieces, workers=workers):
                yield kind, rows

    def delete(self, *, kept: Collection[str] = ()) -> None:
        """Delete the sidecars of the run, or warn if the store fails.

        A task may outlive its job, and write another one later. Metadata cleanup deletes
        unreferenced sidecars after a day.

        Args:
            kept: the names of sidecars to keep.
        """
        try:
            self.storage.delete([path for path, name in self._found() if name not in kept])
        except StorageError as error:
            warnings.warn(
                f"{self.storage.root}: sidecars whose names begin with {self.name} can't be deleted "
                f"({error.message}); nothing refers to them, and metadata cleanup deletes them later",
                DeltaWarning,
                stacklevel=3,
            )

    def _found(self) -> Iterator[tuple[str, str]]:
        """List path and name of each sidecar of the run in the store."""
        for file in self.storage.list(SIDECAR_DIRECTORY, start_after=f"{self.name}."):
            if not file.name.startswith(f"{self.name}."):
                break
            yield file.path, file.name


def write_sidecars(
    context: SparkContext,
    storage: Storage,
    task: SidecarTask,
    parts: Sequence[LogPart],
    counts: ActionCounts,
) -> SidecarRun:
    """Write sidecars with all file actions of a log's state, and verify them.

    Args:
        context: the Spark context.
        storage: the table's storage.
        task: writes the sidecars of a partition.
        parts: the log.
        counts: the expected counts.

    Raises:
        InvalidTableError: the sidecars have other counts. Facts: version, found, expected.
        CorruptLogError: a file of the log is damaged.
        ObjectNotFoundError: a file is gone.
        PySparkException, Py4JError: Spark's own errors.
    """
    try:
        actions = shuffled_actions(
            context, task.address, parts, columns=None, partitions=_ranges(counts)
        )
        with errors_of_executors():
            run = SidecarRun(storage, task.run, tuple(actions.mapPartitions(task).collect()))
        _verify(run, counts, version=task.version)
    except BaseException:
        SidecarRun(storage, task.run).delete()
        raise
    # Deletes the sidecars of task attempts whose results Spark didn't use.
    run.delete(kept={sidecar.path for sidecar in run.sidecars})
    return run


def _ranges(counts: ActionCounts) -> ByRange:
    """Choose key ranges with similar numbers of actions, by a sample of the keys."""
    wanted = min(-(-counts.read // _PARTITION_ROWS), _MOST_PARTITIONS)
    sample = sorted(counts.sample)
    indexes = (len(sample) * number // max(wanted, 1) for number in range(1, wanted))
    return ByRange(tuple(dict.fromkeys(sample[index] for index in indexes)))


def _verify(run: SidecarRun, counts: ActionCounts, *, version: int) -> None:
    expected = {
        "numAdds": counts.adds,
        "addsSizeSum": counts.adds_size,
        "numRemoves": counts.removes,
    }
    found = {tag: run.total(tag) for tag in expected}
    if found != expected:
        raise InvalidTableError(
            f"the checkpoint of version {version} was not written: it would contain {found}, but "
            f"the count of the log is {expected}. Try again; if this happens again, report it",
            table=run.storage.root,
            version=version,
            found=found,
            expected=expected,
        )
