"""Spare the files that commits bring back while a vacuum deletes.

A commit that is made after the plan may bring back files that were removed long ago, above all a restore.
`Deletions` reads the new commits before each batch, and takes the files that they add out of the batch.

A commit may still come between that look and the deletion. Then the look after the last batch reports the
loss. If the commit comes even later, the restore reports it, since it looks for its files after its commit
(``restore/missing_files.py``).
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from airflow_delta.engine.arrow.json.reader import ParsedCommits
from airflow_delta.engine.arrow.python_arrays import array_of
from airflow_delta.engine.commit.registry import CommitOwners
from airflow_delta.engine.errors import CommitConflictError, ObjectNotFoundError
from airflow_delta.engine.features.protocol import Operation, check_writable
from airflow_delta.engine.maintenance.vacuum.aliases import fold_names, may_be_aliases
from airflow_delta.engine.maintenance.vacuum.plan import VacuumPlan, open_for_vacuum
from airflow_delta.engine.maintenance.vacuum.references import References, collect_references
from airflow_delta.engine.snapshot.segment_commits import parse_common_columns
from airflow_delta.engine.snapshot.snapshot import Snapshot
from airflow_delta.engine.storage.base import Storage
from airflow_delta.engine.transaction.winning_commits import load_concurrent_commits

__all__ = ["Deletions"]

_KEY = ("path", "deletionVector")
_MOST_REPORTED = 100
_SHOWN = 5


class Deletions:
    """The files of a plan without those that commits bring back. For use by several threads.

    Args:
        storage: where the table is.
        owners: the commit owners to ask for newer versions.
        plan: what is to be deleted.
    """

    def __init__(self, storage: Storage, owners: CommitOwners, plan: VacuumPlan) -> None:
        self._storage = storage
        self._owners = owners
        self._plan = plan
        self._paths = plan.files["path"]
        self._names: pa.ChunkedArray | None = None
        self._newest: Snapshot | None = None
        self._brought_back: set[str] = set()
        self._spared: set[str] = set()
        self._lock = threading.Lock()

    def drop_needed(self, paths: Sequence[str]) -> list[str]:
        """Drop the files of a batch that the newest version needs. Delete the others at once.

        Raises:
            CommitConflictError: the table isn't the one that the plan was made for.
            UnsupportedFeatureError: the engine can't write the table any more.
            DeltaError: the newest version can't be found.
        """
        with self._lock:
            self._look()
            self._spared |= self._brought_back.intersection(paths)
            return [path for path in paths if path not in self._spared]

    def finish(self) -> pa.Table:
        """Return the files that were deleted, after checking that no commit needs one.

        Call it after the last batch.

        Raises:
            ObjectNotFoundError: commits made concurrently need files that were deleted. Facts: path (the
                first), paths (at most 100), version.
            DeltaError: see `drop_needed`.
        """
        newest = self._look()
        lost = sorted(self._brought_back - self._spared)
        if lost:
            raise _lost_files_error(newest.table, newest.version, lost)
        if not self._spared:
            return self._plan.files
        spared = array_of(sorted(self._spared), pa.string())
        return self._plan.files.filter(pc.invert(pc.is_in(self._paths, value_set=spared)))

    def _look(self) -> Snapshot:
        """Return the newest version, after reading the commits made since the last look."""
        known = self._newest
        if known is None:
            newest = open_for_vacuum(self._storage, self._owners)
            self._mark_brought_back(_collect_added_since(self._plan, newest))
        else:
            owned = self._owners.find_owned_table(self._storage, known.protocol, known.metadata)
            concurrent = load_concurrent_commits(known, self._owners, owned)
            if not concurrent.commits.commits:
                return known
            newest = concurrent.newest()
            check_writable(
                newest.protocol, newest.metadata, table=known.table, operation=Operation.COMMIT
            )
            self._mark_brought_back(_collect_added(concurrent.commits.parsed, known.table))
        self._newest = newest
        return newest

    def _mark_brought_back(self, needed: References | None) -> None:
        if needed is None:
            return
        if self._names is None:
            self._names = fold_names(self._paths)
        # A needed file, under any of its names, shares a last segment with its reference: mostly none does.
        suspects = pc.or_(
            pc.is_in(self._names, value_set=fold_names(needed.near)),
            pc.is_in(self._names, value_set=fold_names(needed.far)),
        )
        paths = self._paths.filter(suspects)
        if len(paths):
            stay = pc.or_(needed.protect(paths), may_be_aliases(paths, needed, None))
            self._brought_back.update(paths.filter(stay).to_pylist())


def _collect_added_since(plan: VacuumPlan, newest: Snapshot) -> References | None:
    """Collect the files that commits have added since the plan was made."""
    if newest.version < plan.version:
        raise CommitConflictError(
            f"version {plan.version}, for which the vacuum was planned, no longer exists, and the newest "
            f"is {newest.version}: the table was replaced, or put back from a backup; nothing was deleted, "
            "plan again",
            table=plan.table,
            version=newest.version,
        )
    commits = [commit for commit in newest.segment.commits if commit.version > plan.version]
    if len(commits) < newest.version - plan.version:
        # A newer checkpoint covers some of the commits.
        return collect_references([newest.files(columns=_KEY)], table=newest.table)
    if not commits:
        return None
    parsed = parse_common_columns(newest.storage, commits, table=newest.table)
    return _collect_added(parsed, newest.table)


def _collect_added(parsed: ParsedCommits, table: str) -> References | None:
    adds = parsed.files.adds
    return collect_references([adds.select(_KEY)], table=table) if adds.num_rows else None


def _lost_files_error(table: str, version: int, lost: list[str]) -> ObjectNotFoundError:
    return ObjectNotFoundError(
        f"a commit has brought back {len(lost)} files while the vacuum deleted them, such as "
        f"{', '.join(lost[:_SHOWN])}: version {version} can't be read as a whole. Restore a version that "
        "does without them, or put the files back from a backup; and don't restore an old version while a "
        "vacuum runs",
        table=table,
        path=lost[0],
        paths=tuple(lost[:_MOST_REPORTED]),
        version=version,
    )
