"""Drop a feature, step by step, and open the table again after each step.

Each step is a commit or a file, after which the table is as usable as before. If a run is interrupted, the
next one finds out from the table how far it has come. That holds for the last step too: if the feature is
dropped but the checkpoint that hides its versions doesn't exist yet, the next run writes it first,
whichever feature it is about.

A concurrent commit may be a conflict. Then the table is opened again, and the step is planned again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from airflow_delta.engine.clock import now_ms
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
from airflow_delta.engine.maintenance.drop_feature.truncation import find_last_use
from airflow_delta.engine.maintenance.metadata_cleanup.execution import execute_metadata_cleanup
from airflow_delta.engine.model.arguments import check_text
from airflow_delta.engine.snapshot.opening import open_newest
from airflow_delta.engine.snapshot.snapshot import Snapshot
from airflow_delta.engine.storage.base import Storage
from airflow_delta.engine.storage.file_access import FileAccess
from airflow_delta.engine.transaction.commit_loop import pause

__all__ = ["DropFeatureResult", "drop_feature"]

_CONFLICTS = 20
"""A run gives up after this many conflicts in a row."""

_REPETITIONS = 20
"""A run gives up if it has done a step so often, and others have undone it again."""

_REWRITES = 3
"""A run gives up after this many rewrites, since other writers keep adding files with the feature."""

_SEARCHED = 200
"""How many of the newest commits are searched for the one that has dropped a feature."""


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
    """Drop a feature; see `DeltaTable.drop_feature`, also for the errors.

    Args:
        access: opens the table's files.
        owners: the known commit owners.
        name: the feature, in any case.
        truncate_history: let the versions with the feature expire, instead of hiding them.
        rewriter: rewrites data files.
        dry_run: only make the plan.
        clock: returns the time, in epoch ms.
    """
    table = access.storage.root
    check_text("name", name, table=table)
    feature = find_feature(name, table=table)
    way = choose_way(feature, truncate_history=truncate_history, table=table)
    return _Run(access, owners, feature, way, rewriter, clock).drop(dry_run=dry_run)


@dataclass(slots=True)
class _Run:
    """The state of one run.

    Attributes:
        commits: how many commits it has made.
        barriers: the versions of those of them that hide every version with the feature, ascending.
        checked: the version up to which the commits of others were searched for uses of the feature.
        rewrites: how often files were rewritten.
        done: how often each other step was done, all commits that it takes counted as one.
        first: the first version that was committed, also by the rewriter; None for none.
        last: the last one.
    """

    access: FileAccess
    owners: CommitOwners
    feature: str
    way: Way
    rewriter: Rewriter | None
    clock: Callable[[], int]
    commits: int = 0
    barriers: list[int] = field(default_factory=list)
    checked: int = -1
    rewrites: int = 0
    done: Counter[str] = field(default_factory=Counter)
    first: int | None = None
    last: int | None = None

    @property
    def storage(self) -> Storage:
        """The table's storage."""
        return self.access.storage

    def drop(self, *, dry_run: bool) -> DropFeatureResult:
        """Do as many steps as possible now."""
        conflicts = 0
        base = self._open(dry_run=dry_run)
        if not dry_run:
            hide_versions_below_boundary(self.storage, self.owners, base)
        while True:
            if self.feature not in supported_features(base.protocol):
                return self._find_earlier_run(base)
            self._discard_overtaken_barriers(base)
            plan = self._plan(base)
            if dry_run:
                return self._make_result("planned", base.version, plan)
            try:
                result = self._do_step(base, plan)
            except (CommitConflictError, ConstraintViolationError) as error:
                conflicts += 1
                if conflicts == _CONFLICTS or not self._is_worth_another_try(error, plan):
                    raise
                pause(conflicts)
            else:
                conflicts = 0
                if result is not None:
                    return result
            base = self._open(dry_run=False)

    def _open(self, *, dry_run: bool) -> Snapshot:
        if self.way == "truncated" and not dry_run:
            ensure_backfilled(self.storage, self.owners)
        base = open_newest(self.storage, owners=self.owners, for_writing=True, parsed=True)
        check_writable(base.protocol, base.metadata, table=base.table, operation=Operation.COMMIT)
        return base

    def _plan(self, base: Snapshot) -> DropFeaturePlan:
        return plan_drop_feature(
            self.access,
            base,
            self.feature,
            way=self.way,
            now_ms=self.clock(),
            barriers_made=len(self.barriers),
        )

    def _discard_overtaken_barriers(self, base: Snapshot) -> None:
        """Don't count barriers if others have used the feature since, even if the use is gone again.

        They don't hide these commits. Others may also have committed them while the newest barrier was
        made, which hides them but no older one does.
        """
        if self.barriers and base.version > self.checked:
            ensure_backfilled(self.storage, self.owners, base.version)
            last_use = find_last_use(self.storage, base, self.feature, first=self.checked)
            if last_use is not None and last_use >= self.barriers[0]:
                self._check_is_not_undone("barriers", "hide the versions with the feature")
                self.done["barriers"] += 1
                self.barriers = [version for version in self.barriers if version > last_use]
        self.checked = base.version

    def _is_worth_another_try(self, error: DeltaError, plan: DropFeaturePlan) -> bool:
        """Whether other writers have caused the error."""
        if isinstance(error, CommitConflictError):
            return True
        return not plan.preparations and bool(self._plan(self._open(dry_run=True)).preparations)

    def _do_step(self, base: Snapshot, plan: DropFeaturePlan) -> DropFeatureResult | None:
        """Do the next step; return None if there are more."""
        if plan.preparations:
            return self._prepare(base, plan)
        if plan.barriers:
            version = add_barrier(self.storage, self.owners, base)
            self._note_commit(version)
            self.barriers.append(version)
            if version == base.version + 1:
                self.checked = version
            return None
        truncation = plan.truncation
        if truncation is not None and truncation.needs_checkpoint:
            if truncation.needs_version:
                self._note_commit(add_barrier(self.storage, self.owners, base))
            else:
                write_checked_checkpoint(self.storage, self.owners, base.version)
            return None
        if truncation is not None and truncation.waits:
            return self._make_result("waiting", base.version, plan)
        if truncation is not None and truncation.cleanup is not None:
            execute_metadata_cleanup(self.storage, truncation.cleanup)
        version = commit_downgrade(self.storage, self.owners, base, plan).version
        self._note_commit(version)
        if self.way == "hidden":
            write_checked_checkpoint(self.storage, self.owners, version)
        return self._make_result("dropped", version, plan)

    def _prepare(self, base: Snapshot, plan: DropFeaturePlan) -> DropFeatureResult | None:
        step, self.barriers = plan.preparations[0], []
        if step.rewrite is None:
            self._check_is_not_undone(step.kind, step.description)
            if step.kind == "turn off":
                version = turn_off(self.storage, self.owners, base, self.feature)
            else:
                version = STEPS[step.kind](self.storage, self.owners, base)
            self._note_commit(version)
            self.done[step.kind] += step.commits == 1
            return None
        if self.rewriter is None:
            return self._make_result("needs rewrite", base.version, plan)
        if self.rewrites == _REWRITES:
            raise ConstraintViolationError(
                f"the data files were rewritten {_REWRITES} times without {self.feature}, and there are "
                f"still {step.rewrite.num_files} with it: other writers keep adding them, or the rewrite "
                "doesn't work; stop the writers, and run the operation again",
                table=self.storage.root,
                feature=self.feature,
            )
        self.rewrites += 1
        self.rewriter(self.storage.root, step.rewrite)
        # It reports no versions. Others may have committed some of these.
        newest = self._open(dry_run=True).version
        if newest > base.version:
            self._note_versions(base.version + 1, newest)
        return None

    def _check_is_not_undone(self, step: str, description: str) -> None:
        if self.done[step] < _REPETITIONS:
            return
        raise ConstraintViolationError(
            f"{self.feature} can't be dropped, since other writers undo a step again and again: it was "
            f"done {_REPETITIONS} times, and is still needed ({description}); stop the writers that "
            "use the feature, and run the operation again",
            table=self.storage.root,
            feature=self.feature,
        )

    def _note_commit(self, version: int) -> None:
        self.commits += 1
        self._note_versions(version, version)

    def _note_versions(self, first: int, last: int) -> None:
        self.first = first if self.first is None else self.first
        self.last = last

    def _find_earlier_run(self, base: Snapshot) -> DropFeatureResult:
        """Return the result of an earlier run that has dropped the feature, by its commit.

        Raises:
            InvalidArgumentError: there is no such commit among the newest ones.
        """
        dropped_by = self._find_drop(base)
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
            base.table,
            self.feature,
            way,
            "dropped",
            version,
            None,
            self.commits,
            self.first,
            self.last,
        )

    def _find_drop(self, base: Snapshot) -> tuple[int, Way] | None:
        """Find the version that dropped the feature, and how, which may differ from the requested way."""
        for info in base.timeline.history(_SEARCHED):
            parameters = info.operation_parameters or {}
            if info.operation == OPERATION and parameters.get(FEATURE_NAME) == self.feature:
                if parameters.get(TRUNCATE_HISTORY) in (True, "true"):
                    return info.version, "truncated"
                hides = how_to_drop(self.feature, table=base.table).hides_history
                return info.version, "hidden" if hides else "at once"
        return None

    def _make_result(
        self, status: Status, version: int, plan: DropFeaturePlan | None
    ) -> DropFeatureResult:
        return DropFeatureResult(
            self.storage.root,
            self.feature,
            self.way,
            status,
            version,
            plan,
            self.commits,
            self.first,
            self.last,
        )
