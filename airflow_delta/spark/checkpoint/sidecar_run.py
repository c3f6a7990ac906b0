"""The sidecars that one run of a Spark job has written, while nothing refers to them yet.

Executors write them, each a range of the files' keys; the driver gets the actions that name them, and
compares what their tags add up to with what was counted before. Whatever fails until then, no sidecar
stays behind; from then on whoever asked for them decides.
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
"""Rows of the log in a partition, so that a sidecar has room for what the sample got wrong."""

_MOST_PARTITIONS = 2000
"""Each part of the log sends a parcel to each partition. In larger logs partitions are larger, and
have several sidecars each."""


@dataclass(frozen=True, slots=True)
class SidecarRun:
    """What a run has written.

    Attributes:
        storage: the table's storage.
        name: what the names of its sidecars begin with; no other run has the same.
        sidecars: the actions that name them.
    """

    storage: Storage
    name: str
    sidecars: tuple[Sidecar, ...] = ()

    def total(self, tag: str) -> int:
        """The sum of the numbers that the sidecars' tags of a name tell, such as ``numAdds``."""
        return sum(count_of(sidecar.tags, tag) or 0 for sidecar in self.sidecars)

    def rows(self) -> Iterator[FileActionTable]:
        """All rows: adds, then removes."""
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
        """Delete all sidecars of the run but some, as far as the store lets us.

        A task that outlives its job may still write one afterwards. Nobody will refer to it, and
        metadata cleanup deletes it when it is a day old; likewise those that can't be deleted here.

        Args:
            kept: the names of sidecars to leave.
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
        """Path and name of each sidecar of the run that is there, whoever knows of it."""
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
    """Write sidecars with all file actions of a log's state, and verify what they hold.

    Args:
        context: Spark's.
        storage: the table's storage.
        task: what executors do with a partition.
        parts: the log.
        counts: what the sidecars must come to.

    Raises:
        InvalidTableError: they come to something else. Facts: version, found, expected.
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
    # Those that are left are of attempts whose word Spark didn't take.
    run.delete(kept={sidecar.path for sidecar in run.sidecars})
    return run


def _ranges(counts: ActionCounts) -> ByRange:
    """Ranges of keys with about as many actions each, by a sample of the keys."""
    wanted = min(-(-counts.read // _PARTITION_ROWS), _MOST_PARTITIONS)
    sample = sorted(counts.sample)
    places = (len(sample) * number // max(wanted, 1) for number in range(1, wanted))
    return ByRange(tuple(dict.fromkeys(sample[place] for place in places)))


def _verify(run: SidecarRun, counts: ActionCounts, *, version: int) -> None:
    expected = {
        "numAdds": counts.adds,
        "addsSizeSum": counts.adds_size,
        "numRemoves": counts.removes,
    }
    found = {tag: run.total(tag) for tag in expected}
    if found != expected:
        raise InvalidTableError(
            f"the checkpoint of version {version} was not written: it would hold {found}, and "
            f"counting the log gave {expected}. Try again; if it stays so, report it",
            table=run.storage.root,
            version=version,
            found=found,
            expected=expected,
        )
