"""What commits need of the files that a vacuum is deleting.

A plan says what the table needs at one version. While it is carried out others commit: new files they
write themselves, and those are too young for any plan. But one commit may bring back what was removed long
ago, a restore above all; and nothing in the store keeps a file that is about to be deleted. So between the
deletions the log is looked at, and what commits have added since stays.

That leaves the moment between a look and the deletion that follows it. What was lost in it is found out by
the look after the last deletion; or, where the commit came later than that, by the restore, which looks
for its files after its commit (`restore`). One of the two always tells.
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
from airflow_delta.engine.maintenance.vacuum.aliases import folded_names, under_other_names
from airflow_delta.engine.maintenance.vacuum.plan import VacuumPlan, open_for_vacuum
from airflow_delta.engine.maintenance.vacuum.references import References, references
from airflow_delta.engine.snapshot.segment_commits import parse_common_columns
from airflow_delta.engine.snapshot.snapshot import Snapshot
from airflow_delta.engine.storage.base import Storage
from airflow_delta.engine.transaction.winning_commits import load_concurrent_commits

__all__ = ["Deletions"]

_KEY = ("path", "deletionVector")
_MOST_TOLD = 100
_SHOWN = 5


class Deletions:
    """The files of a plan, of which those stay that commits bring back. For use by several threads.

    Args:
        storage: where the table is.
        owners: the commit owners to be asked for newer versions.
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

    def without_needed(self, paths: Sequence[str]) -> list[str]:
        """The files of a batch that nobody needs as of now: to be deleted at once.

        Raises:
            CommitConflictError: the table isn't any more the one that was planned for.
            UnsupportedFeatureError: the engine can't write the table any more.
            DeltaError: the newest version can't be told.
        """
        with self._lock:
            self._look()
            self._spared |= self._brought_back.intersection(paths)
            return [path for path in paths if path not in self._spared]

    def deleted(self) -> pa.Table:
        """What of the plan was deleted, after the last batch.

        Raises:
            ObjectNotFoundError: files that were deleted are needed by commits made meanwhile. Facts:
                path (the first), paths (100 at most), version.
            DeltaError: see `without_needed`.
        """
        newest = self._look()
        lost = sorted(self._brought_back - self._spared)
        if lost:
            raise _lost_files(newest.table, newest.version, lost)
        if not self._spared:
            return self._plan.files
        spared = array_of(sorted(self._spared), pa.string())
        return self._plan.files.filter(pc.invert(pc.is_in(self._paths, value_set=spared)))

    def _look(self) -> Snapshot:
        """The newest version, after a look at what has been committed since the last one."""
        known = self._newest
        if known is None:
            newest = open_for_vacuum(self._storage, self._owners)
            self._see(_needed_since(self._plan, newest))
        else:
            owned = self._owners.find_owned_table(self._storage, known.protocol, known.metadata)
            meanwhile = load_concurrent_commits(known, self._owners, owned)
            if not meanwhile.commits.commits:
                return known
            newest = meanwhile.newest()
            check_writable(
                newest.protocol, newest.metadata, table=known.table, operation=Operation.COMMIT
            )
            self._see(_needed_by(meanwhile.commits.parsed, known.table))
        self._newest = newest
        return newest

    def _see(self, needed: References | None) -> None:
        if needed is None:
            return
        if self._names is None:
            self._names = folded_names(self._paths)
        # Whatever is needed, under whichever name, has the name of what it needs: mostly of nothing here.
        suspects = pc.or_(
            pc.is_in(self._names, value_set=folded_names(needed.near)),
            pc.is_in(self._names, value_set=folded_names(needed.far)),
        )
        paths = self._paths.filter(suspects)
        if len(paths):
            stay = pc.or_(needed.protect(paths), under_other_names(paths, needed, None))
            self._brought_back.update(paths.filter(stay).to_pylist())


def _needed_since(plan: VacuumPlan, newest: Snapshot) -> References | None:
    """What commits have added since a plan was made."""
    if newest.version < plan.version:
        raise CommitConflictError(
            f"version {plan.version}, for which the vacuum was planned, is there no more, and the newest "
            f"is {newest.version}: the table was replaced, or taken back; nothing was deleted, plan again",
            table=plan.table,
            version=newest.version,
        )
    commits = [commit for commit in newest.segment.commits if commit.version > plan.version]
    if len(commits) < newest.version - plan.version:
        # There is a newer checkpoint.
        return references([newest.files(columns=_KEY)], table=newest.table)
    if not commits:
        return None
    parsed = parse_common_columns(newest.storage, commits, table=newest.table)
    return _needed_by(parsed, newest.table)


def _needed_by(parsed: ParsedCommits, table: str) -> References | None:
    adds = parsed.files.adds
    return references([adds.select(_KEY)], table=table) if adds.num_rows else None


def _lost_files(table: str, version: int, lost: list[str]) -> ObjectNotFoundError:
    return ObjectNotFoundError(
        f"{len(lost)} of the files that were deleted were brought back by a commit while the vacuum ran, "
        f"such as {', '.join(lost[:_SHOWN])}: version {version} can't be read as a whole. Restore a "
        "version that does without them, or put them back; and don't restore an old version beside a "
        "vacuum",
        table=table,
        path=lost[0],
        paths=tuple(lost[:_MOST_TOLD]),
        version=version,
    )
