"""Execute the plan of an optimization: write the new files, and commit them.

A run consists of rounds of some gigabytes. A round writes the new files of its bins, in threads of this
process (`rounds`) or by Spark (`airflow_delta.spark.optimizer`), and commits them. So if a run is stopped,
it loses one round at most, and the next run continues.

Concurrent appends don't conflict. If another commit changes a file of a bin, the bin is left out, and its
new files are deleted. If the schema changes, the run stops (`same_form`).

PROTOCOL.md, "Add File and Remove File": all actions have ``dataChange`` = false, because no row changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from airflow_delta.engine.arrow.action_schema import FILE_KEY_COLUMNS
from airflow_delta.engine.arrow.numpy_arrays import Int64Vector, int64_view
from airflow_delta.engine.errors import CommitConflictError
from airflow_delta.engine.features.clustering import DOMAIN
from airflow_delta.engine.maintenance.optimize.new_files import NewFiles, Rewritten
from airflow_delta.engine.maintenance.optimize.plan import BIN, OptimizePlan, enforced_features
from airflow_delta.engine.maintenance.optimize.rounds import LocalRounds, Round, RoundWriter
from airflow_delta.engine.maintenance.optimize.same_form import check_same_form
from airflow_delta.engine.maintenance.optimize.settings import OptimizeSettings
from airflow_delta.engine.maintenance.optimize.target import FileTarget
from airflow_delta.engine.progress import Reporter, report_progress
from airflow_delta.engine.replay.file_filter import FilesAmong
from airflow_delta.engine.replay.file_key import file_keys
from airflow_delta.engine.snapshot.snapshot import Snapshot
from airflow_delta.engine.storage.file_access import FileAccess
from airflow_delta.engine.transaction.commit_loop import pause
from airflow_delta.engine.transaction.result import may_be_made
from airflow_delta.engine.transaction.transaction import OptimisticTransaction

__all__ = ["OptimizeResult", "commit_rounds", "execute_optimization"]

_MOST_CONFLICTS = 20
"""The number of failed commits in a row after which a run gives up."""


@dataclass(frozen=True, slots=True)
class OptimizeResult:
    """What was done.

    Attributes:
        plan: what was planned.
        version: the version of the last commit; None for none.
        num_commits: the number of commits.
        num_removed: the number of files that were rewritten.
        bytes_removed: their total size.
        num_added: the number of new files.
        bytes_added: their total size.
        num_copied: how many new files were made by copying row groups.
        num_lost: the planned files that aren't rewritten, because others have changed a file of their bin.
        first_version: the version of the first commit; None for none.
    """

    plan: OptimizePlan
    version: int | None = None
    num_commits: int = 0
    num_removed: int = 0
    bytes_removed: int = 0
    num_added: int = 0
    bytes_added: int = 0
    num_copied: int = 0
    num_lost: int = 0
    first_version: int | None = None

    def to_dict(self) -> dict[str, Any]:
        """What was done as plain JSON values.

        Returns:
            ``version`` (of the last commit, or the planned one), ``commits``, ``first_version`` and
            ``last_version`` (of these commits; None for none), ``files_removed``, ``bytes_removed``,
            ``files_added``, ``bytes_added``, ``files_copied``, ``files_lost``, and the ``plan`` (see
            `OptimizePlan.to_dict`).
        """
        return {
            "version": self.plan.version if self.version is None else self.version,
            "commits": self.num_commits,
            "first_version": self.first_version,
            "last_version": self.version,
            "files_removed": self.num_removed,
            "bytes_removed": self.bytes_removed,
            "files_added": self.num_added,
            "bytes_added": self.bytes_added,
            "files_copied": self.num_copied,
            "files_lost": self.num_lost,
            "plan": self.plan.to_dict(),
        }


def execute_optimization(
    begin: Callable[..., OptimisticTransaction],
    access: FileAccess,
    snapshot: Snapshot,
    plan: OptimizePlan,
) -> OptimizeResult:
    """Rewrite the files of a plan.

    Args:
        begin: begins a transaction on the newest version, with the arguments of `DeltaTable.transaction`.
        access: opens the files of the table.
        snapshot: the version of the plan.
        plan: the plan.

    Raises:
        DataFileError: a data file is damaged, or isn't as in the log. Facts: path.
        DeletionVectorError: a deletion vector is damaged, or doesn't exist.
        MissingFilesError: a data file doesn't exist, or a new one doesn't any more before its commit.
            Facts: path.
        MetadataChangedError, ProtocolChangedError: others have changed the table so that new files need
            another form.
        CommitConflictError: others were faster, twenty times in a row.
        CommitOutcomeUnknownError: the store failed; the last commit may have been made.
        DeltaError: the table can't be read or written.
    """
    if not plan.num_bins:
        return OptimizeResult(plan)
    target = FileTarget.of(snapshot, max_file_size=plan.settings.max_file_size)
    new_files = NewFiles(access.storage, target)
    rounds = LocalRounds(access, target, new_files, plan.settings.order)
    return commit_rounds(begin, snapshot, plan, rounds, new_files)


def commit_rounds(
    begin: Callable[..., OptimisticTransaction],
    snapshot: Snapshot,
    plan: OptimizePlan,
    writer: RoundWriter,
    new_files: NewFiles,
) -> OptimizeResult:
    """Write the new files of a plan round by round, and commit each round.

    Args:
        begin: see `execute_optimization`.
        snapshot: the version of the plan.
        plan: the plan.
        writer: writes the new files.
        new_files: deletes those that nobody needs.

    Raises:
        DeltaError: see `execute_optimization`.
    """
    result = OptimizeResult(plan)
    run = _Run(begin, snapshot, plan, writer, new_files)
    total = pc.sum(plan.files["size"]).as_py() or 0
    try:
        with report_progress("rewrite", "bytes", total) as reporter:
            for bins in run.rounds():
                result = run.commit(run.write(bins, reporter), result)
    except BaseException:
        new_files.delete_uncommitted()
        raise
    return result


class _Run:
    """One execution of a plan."""

    def __init__(
        self,
        begin: Callable[..., OptimisticTransaction],
        snapshot: Snapshot,
        plan: OptimizePlan,
        writer: RoundWriter,
        new_files: NewFiles,
    ) -> None:
        self._begin = begin
        self._snapshot = snapshot
        self._plan = plan
        self._writer = writer
        self._new_files = new_files

    def rounds(self) -> Iterator[Round]:
        """The rounds."""
        numbers = int64_view(self._plan.files[BIN].combine_chunks())
        sizes = int64_view(self._plan.files["size"].combine_chunks())
        starts = np.concatenate((np.flatnonzero(np.diff(numbers, prepend=-1)), [len(numbers)]))
        first = 0
        while first < len(starts) - 1:
            end = _end_of_round(starts, sizes, first, self._plan.settings.commit_bytes)
            files = self._plan.files.slice(starts[first], starts[end] - starts[first])
            adds = self._adds(files)
            bins = [
                adds.slice(start - starts[first], stop - start)
                for start, stop in zip(starts[first:end], starts[first + 1 : end + 1], strict=True)
            ]
            num_sorted = max(0, self._plan.num_sorted - first)
            yield Round(bins[:num_sorted], bins[num_sorted:])
            first = end

    def write(self, bins: Round, reporter: Reporter) -> list[Rewritten]:
        """Write the new files of a round."""
        return self._writer.write(bins, reporter)

    def commit(self, done: Sequence[Rewritten], result: OptimizeResult) -> OptimizeResult:
        """Commit a round, without the bins that others have changed meanwhile."""
        conflicts = 0
        while True:
            transaction = self._transaction()
            kept, lost = _still_live(transaction.base, done)
            if lost:
                self._new_files.delete([add for each in lost for add in each.adds])
                files = sum(len(each.sources) for each in lost)
                result = replace(result, num_lost=result.num_lost + files)
                done = kept
            if not done:
                return result
            self._new_files.check_stored([add for each in done for add in each.adds])
            metrics = _stage(transaction, done)
            try:
                commit = transaction.commit(operation_metrics=metrics)
            except CommitConflictError:
                conflicts += 1
                if conflicts == _MOST_CONFLICTS:
                    raise
                pause(conflicts)
                continue
            except BaseException as error:
                if may_be_made(error):
                    self._new_files.keep([add for each in done for add in each.adds])
                raise
            self._new_files.keep([add for each in done for add in each.adds])
            return replace(
                result,
                version=commit.version,
                first_version=(
                    commit.version if result.first_version is None else result.first_version
                ),
                num_commits=result.num_commits + 1,
                num_removed=result.num_removed + metrics["numRemovedFiles"],
                bytes_removed=result.bytes_removed + metrics["numRemovedBytes"],
                num_added=result.num_added + metrics["numAddedFiles"],
                bytes_added=result.bytes_added + metrics["numAddedBytes"],
                num_copied=result.num_copied + sum(each.num_copied for each in done),
            )

    def _transaction(self) -> OptimisticTransaction:
        operation, parameters = _operation(self._plan.settings)
        transaction = self._begin(
            operation,
            operation_parameters=parameters,
            enforces=enforced_features(self._snapshot),
        )
        # So that a change of the clustering columns after this check is a conflict.
        transaction.read_domain(DOMAIN)
        check_same_form(self._snapshot, transaction.base)
        return transaction

    def _adds(self, files: pa.Table) -> pa.Table:
        """The adds of planned files, in their order."""
        table = self._snapshot.table
        keys = file_keys(files, table=table).combine_chunks()
        found = self._snapshot.state.live_adds(row_filter=FilesAmong(keys, table=table))
        found_keys = file_keys(found, table=table).combine_chunks()
        return found.take(pc.index_in(keys, value_set=found_keys)).combine_chunks()


def _operation(settings: OptimizeSettings) -> tuple[str, dict[str, Any]]:
    """The operation and its parameters for ``commitInfo``, as Delta Spark has them."""
    predicate = [] if settings.condition is None else [settings.condition]
    if settings.purge:
        return "REORG", {"predicate": predicate, "applyPurge": True}
    order = settings.order
    is_clustering = order is not None and order.is_clustering
    names = [] if order is None else order.names
    return "OPTIMIZE", {
        "predicate": predicate,
        "zOrderBy": [] if is_clustering else names,
        "clusterBy": names if is_clustering else [],
        "auto": False,
        **({"isFull": settings.full} if is_clustering else {}),
    }


def _end_of_round(starts: npt.NDArray[np.int64], sizes: Int64Vector, first: int, most: int) -> int:
    """The first bin after a round that begins with a bin, and has at least that one."""
    ends = np.cumsum(sizes[starts[first] :])
    fitting = int(np.searchsorted(ends, most, side="right")) + int(starts[first])
    return max(first + 1, int(np.searchsorted(starts, fitting, side="right")) - 1)


def _still_live(
    base: Snapshot, done: Sequence[Rewritten]
) -> tuple[list[Rewritten], list[Rewritten]]:
    """What is still to be committed, and what isn't: a file is gone, or has another deletion vector."""
    keys = [file_keys(each.sources, table=base.table) for each in done]
    wanted = pa.chunked_array([chunk for each in keys for chunk in each.chunks], pa.string())
    live = base.state.live_adds(FILE_KEY_COLUMNS, row_filter=FilesAmong(wanted, table=base.table))
    found = file_keys(live, table=base.table).combine_chunks()
    kept: list[Rewritten] = []
    lost: list[Rewritten] = []
    for each, own in zip(done, keys, strict=True):
        is_live = pc.all(pc.is_in(own, value_set=found)).as_py()
        (kept if is_live else lost).append(each)
    return kept, lost


def _stage(transaction: OptimisticTransaction, done: Sequence[Rewritten]) -> dict[str, int]:
    """Stage the removed and the added files, and return the metrics, as Delta Spark has them."""
    sources = pa.concat_tables([each.sources for each in done])
    adds = [add for each in done for add in each.adds]
    transaction.add_files(adds)
    transaction.remove_files(sources.select(FILE_KEY_COLUMNS), data_change=False)
    sizes = sorted(add.size for add in adds)
    metrics = {
        "numRemovedFiles": len(sources),
        "numRemovedBytes": pc.sum(sources["size"]).as_py(),
        "numAddedFiles": len(adds),
        "numAddedBytes": sum(sizes),
        "numDeletionVectorsRemoved": len(sources) - sources["deletionVector"].null_count,
    }
    if sizes:
        count = len(sizes)
        quarters = {"p25": count // 4, "p50": count // 2, "p75": 3 * count // 4}
        metrics.update({f"{name}FileSize": sizes[index] for name, index in quarters.items()})
        metrics.update(minFileSize=sizes[0], maxFileSize=sizes[-1])
    return metrics
