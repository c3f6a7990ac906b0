"""The methods of `DeltaTable` that rewrite data files without changing rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_delta.engine.table.base import TableBase

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow_delta.engine.features.column_changes.column_paths import ColumnName
    from airflow_delta.engine.maintenance.health import TableHealth
    from airflow_delta.engine.maintenance.optimize.execution import OptimizeResult
    from airflow_delta.engine.scan.predicates.reading import PredicateLike

__all__ = ["OptimizeMethods"]


class OptimizeMethods(TableBase):
    """Give the data files of a table a good size."""

    def optimize(
        self,
        where: PredicateLike | None = None,
        *,
        min_file_size: int | None = None,
        max_file_size: int | None = None,
        max_deleted_ratio: float | None = None,
        purge: bool = False,
        z_order_by: Sequence[ColumnName] = (),
        full: bool = False,
        max_bytes: int | None = None,
        commit_bytes: int | None = None,
        min_cube_size: int | None = None,
        dry_run: bool = False,
    ) -> OptimizeResult:
        """Rewrite small files, and files with many deleted rows, as files of a good size.

        With ``z_order_by``, and if the table is clustered, the rows of several files are sorted together,
        so that queries with conditions about these columns read fewer files.

        The rows stay the same, with their row ids. Concurrent appends don't conflict. Files that others
        change concurrently are left out.

        Args:
            where: a condition over partition columns that chooses the files; see `Snapshot.files` for its
                forms. None for all files.
            min_file_size: files of fewer bytes are rewritten together; None for half of ``max_file_size``.
            max_file_size: the size of new files in bytes, nearly; None for ``delta.targetFileSize``, or
                128 MiB.
            max_deleted_ratio: a file with a larger part of deleted rows is rewritten, even alone; None for
                0.05.
            purge: rewrite just the files with deleted rows, however few.
            z_order_by: columns by which the files of each partition are sorted (Z-order): a text for a
                column of the table, a list of names for a column inside structs. Partitions whose files
                were sorted together by these columns stay.
            full: sort also what is sorted already; of a clustered table also files that another provider
                has clustered, or that were clustered by other columns.
            max_bytes: the most bytes of files to rewrite in this run; None for any number. The rest is left
                to another run.
            commit_bytes: the bytes of files after which what is done is committed; None for 16 GiB. If a
                run fails, its earlier commits stay.
            min_cube_size: of a clustered table: no other files are clustered with files that were
                clustered together and have at least this many bytes; None for 100 GiB, as in Delta Spark.
            dry_run: only plan.

        Raises:
            InvalidArgumentError: an argument makes no sense, or the condition isn't about partition columns
                alone; a column of ``z_order_by`` doesn't exist, is a partition column, or gets no
                statistics, or the table is clustered.
            InvalidTableError: the clustering columns, or a property, can't be read.
            UnsupportedFeatureError: the engine can't write such files.
            DataFileError: a data file is damaged, or isn't as in the log. Facts: path.
            MissingFilesError: a data file doesn't exist. Facts: path.
            MetadataChangedError, ProtocolChangedError: others have changed the columns, or the protocol.
            CommitConflictError: others were faster, twenty times in a row.
            CommitOutcomeUnknownError: the store failed, and the last commit may have been made.
            StorageError: the store failed, or the folder for temporary files is full.
            DeltaError: the log is damaged.
        """
        from airflow_delta.engine.maintenance.optimize.execution import (
            OptimizeResult,
            execute_optimization,
        )
        from airflow_delta.engine.maintenance.optimize.plan import plan_optimization
        from airflow_delta.engine.maintenance.optimize.settings import (
            OptimizeRequest,
            OptimizeSettings,
        )

        request = OptimizeRequest(
            where,
            min_file_size,
            max_file_size,
            max_deleted_ratio,
            purge,
            max_bytes,
            commit_bytes,
            z_order_by,
            full,
            min_cube_size,
        )
        snapshot = self._newest.get()
        plan = plan_optimization(snapshot, OptimizeSettings.of(request, snapshot))
        if dry_run:
            return OptimizeResult(plan)
        return execute_optimization(self._begin, self.file_access, snapshot, plan)

    def health(self) -> TableHealth:
        """Report the state of the table in numbers, and what each operation would gain, from the log alone.

        Raises:
            TableNotFoundError: there is no table.
            DeltaError: the newest version can't be read.
        """
        from airflow_delta.engine.maintenance.health import read_health
        from airflow_delta.engine.snapshot.opening import open_newest

        return read_health(open_newest(self.storage, owners=self._owners))
