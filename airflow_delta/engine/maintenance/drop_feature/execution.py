"""Drop a feature: one step after the other, and the table looked at again after each.

**Broken off.** Each step is a commit or a file, after which the table is as good as before. The next run
finds out by the table itself how far the last one has come; there is nothing else to remember. That holds
for the last step, too: where a feature is gone, and the checkpoint that hides its versions isn't there
yet, the next run writes it before anything else, whichever feature it is about.

**Others meanwhile.** A commit that gets in the way of a step is a conflict; the table is looked at anew
then.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from airflow_delta.engine.commit.registry import CommitOwners
from airflow_delta.engine.errors import (
    CommitConflictError,
    ConstraintViolationError,
    DeltaError,
    InvalidArgumentError,
)
from airflow_delta.engine.features.dropping import find_feature, how_to_drop
from airflow_delta.engine.features.protocol import Operation, check_writable, supported_features
from airflow_delta.engine.maintenance.backfill.execution import ensure_backfilled
from airflow_delta.engine.maintenance.drop_feature.barriers import (
    add_barrier,
    hide_versions_below_boundary,
    write_checked_checkpoint,
)
from airflow_delta.engine.maintenance.drop_feature.downgrade import (
    FEATURE_NAME,
    OPERATION,
    TRUNCATE_HISTORY,
    commit_downgrade,
)
from airflow_delta.engine.maintenance.drop_feature.plan import (
    DropFeaturePlan,
    Way,
    choose_way,
    plan_drop_feature,
)
from airflow_delta.engine.maintenance.drop_feature.preparing import STEPS, turn_off
from airflow_delta.engine.maintenance.drop_feature.result import DropFeatureResult, Status
from airflow_delta.engine.maintenance.drop_feature.rewrite import Rewriter
from airflow_delta.engine.maintenance.metadata_cleanup.execution import execute_metadata_cleanup
from airflow_delta.engine.model.arguments import check_text
from airflow_delta.engine.snapshot.opening import open_newest
from airflow_delta.engine.snapshot.snapshot import Snapshot
from airflow_delta.engine.storage.base import Storage
from airflow_delta.engine.storage.file_access import FileAccess
from airflow_delta.engine.transaction.commit_loop import now_ms, pause

__all__ = ["DropFeatureResult", "drop_feature"]

_CONFLICTS = 20
"""So many conflicts in a row, or steps undone by others, are met before it is given up."""

_REWRITES = 3
"""So often files are had written anew: others may add files of the former kind meanwhile."""

_SEARCHED = 200
"""Among so many of the newest commits it is looked for the one that has dropped a feature."""


def drop_feature(
    access: FileAccess,
    owners: CommitOwners,
    name: str,
    *,
    truncate_history: bool = False,
    rewriter: Rewriter | None = None,
    dry_run: bool = False,
    clock: Callable[[], int] = now_ms,
) -> DropFeatureResult:
    """Drop a feature; see `DeltaTable.drop_feature`, for the errors too.

    Args:
        access: opens the table's files.
        owners: the commit owners that there are.
        name: the feature, in any case.
        truncate_history: have the versions with the feature expire, instead of hiding them.
        rewriter: writes data files anew.
        dry_run: only make the plan.
        clock: tells the time, in epoch ms.
    """
    table = access.storage.root
    check_text("name", name, table=table)
    feature = find_feature(name, table=table)
    way = choose_way(feature, truncate_history=truncate_history, table=table)
    return _Run(access, owners, feature, way, rewriter, clock).drop(dry_run=dry_run)


@dataclass(slots=True)
class _Run:
    """One run.

    Attributes:
        commits: how many were made.
        barriers: how many of them were barriers, since there are no traces.
        rewrites: how often files were had written anew.
    """

    access: FileAccess
    owners: CommitOwners
    feature: str
    way: Way
    rewriter: Rewriter | None
    clock: Callable[[], int]
    commits: int = 0
    barriers: int = 0
    rewrites: int = 0

    @property
    def storage(self) -> Storage:
        """Where the table is."""
        return self.access.storage

    def drop(self, *, dry_run: bool) -> DropFeatureResult:
        """Go as far as can be gone."""
        conflicts = 0
        base = self._opened(dry_run=dry_run)
        if not dry_run:
            hide_versions_below_boundary(self.storage, self.owners, base)
        while True:
            if self.feature not in supported_features(base.protocol):
                return self._gone(base)
            plan = self._planned(base)
            if dry_run:
                return self._result("planned", base.version, plan)
            try:
                result = self._step(base, plan)
            except (CommitConflictError, ConstraintViolationError) as error:
                conflicts += 1
                if conflicts == _CONFLICTS or not self._is_worth_another_try(error, plan):
                    raise
                pause(conflicts)
            else:
                conflicts = 0
                if result is not None:
                    return result
            base = self._opened(dry_run=False)

    def _opened(self, *, dry_run: bool) -> Snapshot:
        if self.way == "truncated" and not dry_run:
            ensure_backfilled(self.storage, self.owners)
        base = open_newest(self.storage, owners=self.owners, for_writing=True, parsed=True)
        check_writable(base.protocol, base.metadata, table=base.table, operation=Operation.COMMIT)
        return base

    def _planned(self, base: Snapshot) -> DropFeaturePlan:
        return plan_drop_feature(
            self.access,
            base,
            self.feature,
            way=self.way,
            now_ms=self.clock(),
            barriers_made=self.barriers,
        )

    def _is_worth_another_try(self, error: DeltaError, plan: DropFeaturePlan) -> bool:
        """Whether it was others who were in the way."""
        if isinstance(error, CommitConflictError):
            return True
        return not plan.preparations and bool(
            self._planned(self._opened(dry_run=True)).preparations
        )

    def _step(self, base: Snapshot, plan: DropFeaturePlan) -> DropFeatureResult | None:
        """Do what comes first; None where there is more to do."""
        if plan.preparations:
            return self._prepare(base, plan)
        if plan.barriers:
            add_barrier(self.storage, self.owners, base)
            self.commits += 1
            self.barriers += 1
            return None
        truncation = plan.truncation
        if truncation is not None and truncation.needs_checkpoint:
            if truncation.needs_version:
                add_barrier(self.storage, self.owners, base)
                self.commits += 1
            else:
                write_checked_checkpoint(self.storage, self.owners, base.version)
            return None
        if truncation is not None and truncation.waits:
            return self._result("waiting", base.version, plan)
        if truncation is not None and truncation.cleanup is not None:
            execute_metadata_cleanup(self.storage, truncation.cleanup)
        version = commit_downgrade(self.storage, self.owners, base, plan).version
        self.commits += 1
        if self.way == "hidden":
            write_checked_checkpoint(self.storage, self.owners, version)
        return self._result("dropped", version, plan)

    def _prepare(self, base: Snapshot, plan: DropFeaturePlan) -> DropFeatureResult | None:
        step, self.barriers = plan.preparations[0], 0
        if step.rewrite is None:
            if step.kind == "turn off":
                turn_off(self.storage, self.owners, base, self.feature)
            else:
                STEPS[step.kind](self.storage, self.owners, base)
            self.commits += 1
            return None
        if self.rewriter is None:
            return self._result("needs rewrite", base.version, plan)
        if self.rewrites == _REWRITES:
            raise ConstraintViolationError(
                f"the data files were written anew {_REWRITES} times without {self.feature}, and there "
                f"still are {step.rewrite.num_files} with it: other writers go on making them, or those "
                "who wrote them anew didn't; stop them, and run the operation again",
                table=self.storage.root,
                feature=self.feature,
            )
        self.rewrites += 1
        self.rewriter(self.storage.root, step.rewrite)
        return None

    def _gone(self, base: Snapshot) -> DropFeatureResult:
        """The result where the table doesn't have the feature: that of an earlier run, by its commit.

        Raises:
            InvalidArgumentError: it didn't have it lately either.
        """
        dropped_by = self._dropped_by(base)
        if dropped_by is None:
            supported = ", ".join(sorted(supported_features(base.protocol))) or "none"
            raise InvalidArgumentError(
                f"the table doesn't support the feature {self.feature}, so it can't be dropped; it "
                f"supports {supported}",
                table=base.table,
                feature=self.feature,
            )
        version, way = dropped_by
        return DropFeatureResult(
            base.table, self.feature, way, "dropped", version, None, self.commits
        )

    def _dropped_by(self, base: Snapshot) -> tuple[int, Way] | None:
        """The version that dropped the feature, and how, which needn't be as it is asked for now."""
        for info in base.timeline.history(_SEARCHED):
            parameters = info.operation_parameters or {}
            if info.operation == OPERATION and parameters.get(FEATURE_NAME) == self.feature:
                if parameters.get(TRUNCATE_HISTORY) in (True, "true"):
                    return info.version, "truncated"
                hides = how_to_drop(self.feature, table=base.table).hides_history
                return info.version, "hidden" if hides else "at once"
        return None

    def _result(
        self, status: Status, version: int, plan: DropFeaturePlan | None
    ) -> DropFeatureResult:
        return DropFeatureResult(
            self.storage.root, self.feature, self.way, status, version, plan, self.commits
        )
