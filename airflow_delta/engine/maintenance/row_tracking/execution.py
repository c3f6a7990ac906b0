"""Enable row tracking in steps; each step begins with the newest version.

=========================  =============================================================================
commit                     what it does
=========================  =============================================================================
``UPGRADE PROTOCOL``       adds the feature ``rowTracking`` to the protocol, and what it requires. From
                           here on, files get row ids when they are committed
``ROW TRACKING BACKFILL``  commits files without row ids again, which gives them theirs
``SET TBLPROPERTIES``      sets ``delta.enableRowTracking``, and names the two hidden columns. Each attempt
                           checks that no file is without row ids
=========================  =============================================================================

The commits are those of Delta Spark, whose writers recognise them. If a run is stopped, the next one
continues: the table shows what is left to be done. After a conflict the newest version decides again. For
example, a file that others have removed is left out of the next commit.

Spec: PROTOCOL.md, "Row Tracking".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from airflow_delta.engine.commit.registry import CommitOwners
from airflow_delta.engine.errors import CommitConflictError, ConstraintViolationError
from airflow_delta.engine.features.negotiation.upgrade import upgrade_protocol
from airflow_delta.engine.features.protocol import Operation, check_writable
from airflow_delta.engine.features.row_tracking import FEATURE
from airflow_delta.engine.maintenance.row_tracking.plan import (
    BATCH,
    RowTrackingPlan,
    files_without_row_ids,
    plan_row_tracking,
)
from airflow_delta.engine.progress import Reporter, report_progress
from airflow_delta.engine.snapshot.opening import open_newest
from airflow_delta.engine.snapshot.snapshot import Snapshot
from airflow_delta.engine.storage.base import Storage
from airflow_delta.engine.transaction.alter.plan import Alteration, commit_alteration
from airflow_delta.engine.transaction.alter.table_settings import set_properties
from airflow_delta.engine.transaction.commit_loop import pause
from airflow_delta.engine.transaction.file_rows import add_actions
from airflow_delta.engine.transaction.transaction import OptimisticTransaction

__all__ = ["OPERATION", "RowTrackingResult", "enable_row_tracking"]

OPERATION = "ROW TRACKING BACKFILL"
"""Delta Spark's name of the commits that give row ids to files."""

_CONFLICTS = 20
"""The number of conflicts in a row after which the operation gives up."""


@dataclass(frozen=True, slots=True)
class RowTrackingResult:
    """The result of enabling row tracking.

    Attributes:
        table: the table's location.
        version: the newest version, as this call leaves it.
        enabled: whether row tracking is enabled.
        plan: what was to be done when the call began.
        num_backfilled: the number of files to which this call gave row ids.
        num_commits: the number of commits that it made.
        first_version: the version of its first commit; None for none.
        last_version: the version of its last commit; None for none.
    """

    table: str
    version: int
    enabled: bool
    plan: RowTrackingPlan
    num_backfilled: int = 0
    num_commits: int = 0
    first_version: int | None = None
    last_version: int | None = None

    def to_dict(self) -> dict[str, Any]:
        """The result as plain JSON values.

        Returns:
            ``version``, ``enabled``, ``files`` (of the table), ``files_backfilled``, ``num_commits``,
            ``first_version`` and ``last_version`` (of these commits; None for none), and ``steps``, which
            were to be done when the call began.
        """
        return {
            "version": self.version,
            "enabled": self.enabled,
            "files": self.plan.num_files,
            "files_backfilled": self.num_backfilled,
            "num_commits": self.num_commits,
            "first_version": self.first_version,
            "last_version": self.last_version,
            "steps": list(self.plan.steps),
        }


def enable_row_tracking(
    storage: Storage, owners: CommitOwners, *, dry_run: bool = False, batch: int = BATCH
) -> RowTrackingResult:
    """Enable row tracking; see `DeltaTable.enable_row_tracking`, for the errors too.

    Args:
        storage: where the table is.
        owners: the commit owners that there are.
        dry_run: only plan.
        batch: the maximum number of files in a commit.
    """
    return _Enabling(storage, owners, batch).run(dry_run=dry_run)


class _Enabling:
    """One call of `enable_row_tracking`."""

    def __init__(self, storage: Storage, owners: CommitOwners, batch: int) -> None:
        self._storage = storage
        self._owners = owners
        self._batch = batch
        self._batches = self._backfilled = 0
        self._versions: list[int] = []

    def run(self, *, dry_run: bool) -> RowTrackingResult:
        """Make the commits until row tracking is enabled, or plan them only.

        Args:
            dry_run: commit nothing.

        Raises:
            CommitConflictError: too many commits in a row were overtaken by conflicting ones.
            ConstraintViolationError: a commit isn't allowed, and another try wouldn't help.
        """
        base, plan = first = self._look()
        if not dry_run:
            with report_progress("give row ids", "files", plan.num_without_ids) as reporter:
                base, plan = self._enable(base, plan, reporter)
        return RowTrackingResult(
            self._storage.root,
            base.version,
            not plan.enables,
            first[1],
            self._backfilled,
            len(self._versions),
            self._versions[0] if self._versions else None,
            self._versions[-1] if self._versions else None,
        )

    def _enable(
        self, base: Snapshot, plan: RowTrackingPlan, reporter: Reporter
    ) -> tuple[Snapshot, RowTrackingPlan]:
        """Make the commits, and return the newest version with what is left to be done."""
        conflicts = 0
        while plan.enables:
            before = self._backfilled
            try:
                version = self._step(base, plan)
            except (CommitConflictError, ConstraintViolationError) as error:
                conflicts += 1
                if conflicts == _CONFLICTS or not self._is_worth_another_try(error):
                    raise
                pause(conflicts)
            else:
                conflicts = 0
                self._versions.append(version)
                reporter.advance(self._backfilled - before)
            base, plan = self._look()
        return base, plan

    def _look(self) -> tuple[Snapshot, RowTrackingPlan]:
        base = open_newest(self._storage, owners=self._owners, for_writing=True)
        check_writable(base.protocol, base.metadata, table=base.table, operation=Operation.COMMIT)
        return base, plan_row_tracking(base, batch=self._batch)

    def _step(self, base: Snapshot, plan: RowTrackingPlan) -> int:
        """Make the next commit, and return its version."""
        if plan.adds_feature:
            return self._add_feature(base)
        if plan.num_without_ids:
            return self._backfill(base)
        return self._commit(base, set_properties(base, {"delta.enableRowTracking": "true"}))

    def _add_feature(self, base: Snapshot) -> int:
        protocol = upgrade_protocol(
            base.protocol,
            base.metadata,
            before=base.metadata,
            requested=frozenset({FEATURE}),
            table=base.table,
        )
        features = protocol.reader_features, protocol.writer_features
        reader_features, writer_features = (None if f is None else sorted(f) for f in features)
        parameters = {
            "minReaderVersion": protocol.min_reader_version,
            "minWriterVersion": protocol.min_writer_version,
            "readerFeatures": reader_features,
            "writerFeatures": writer_features,
        }
        return self._commit(
            base,
            Alteration("UPGRADE PROTOCOL", {"newProtocol": parameters}, base.metadata, protocol),
        )

    def _backfill(self, base: Snapshot) -> int:
        files = files_without_row_ids(base.files()).slice(0, self._batch)
        transaction = OptimisticTransaction(
            self._storage,
            base,
            OPERATION,
            operation_parameters={"batchId": self._batches},
            owners=self._owners,
        )
        transaction.note_read(files)
        transaction.add_files([*add_actions(files, data_change=False)])
        version = transaction.commit().version
        self._batches += 1
        self._backfilled += files.num_rows
        return version

    def _commit(self, base: Snapshot, alteration: Alteration) -> int:
        return commit_alteration(self._storage, base, alteration, owners=self._owners).version

    def _is_worth_another_try(self, error: CommitConflictError | ConstraintViolationError) -> bool:
        """Whether it was others who were in the way."""
        if isinstance(error, CommitConflictError):
            return True
        # Somebody may have added files without row ids before the last step.
        return bool(self._look()[1].num_without_ids)
