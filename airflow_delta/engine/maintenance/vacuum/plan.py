"""Plan a vacuum: which files in a table's directory no version needs any more.

Writers remove files from a table in its log, not from the store. A vacuum deletes them when the retention
of ``delta.deletedFileRetentionDuration`` is over (PROTOCOL.md, "Add File and Remove File").

====================  ==================================================  ============================
mode                  candidates                                          finds unreferenced files
====================  ==================================================  ============================
``full``              all files that the store lists                      yes
full, by inventory    all files in an inventory                           yes
``lite``              what commits since the last vacuum have removed     no
====================  ==================================================  ============================

These candidates stay (``classification.py`` applies the rules to each of them):

* files that the newest version, or one of its unexpired tombstones, refers to, however their paths are
  spelled (``references.py``);
* files younger than the retention (``retention.py`` chooses the cutoff): they may belong to a commit in
  progress, or be change data files;
* hidden files, the log above all, and those of other tables (``scope.py``);
* files whose names may be other names of needed ones (``aliases.py``).

After that, ``other_tables.py`` looks for tables whose logs weren't among the candidates, and a deletion
looks at the commits that others have made meanwhile (``concurrent_commits.py``).

``docs/explanation/how-a-vacuum-keeps-files.md`` has the reasons.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, get_args

import pyarrow as pa
import pyarrow.compute as pc

from airflow_delta.engine import clock
from airflow_delta.engine.arrow.python_arrays import scalar_of
from airflow_delta.engine.commit.registry import CommitOwners
from airflow_delta.engine.errors import (
    InvalidArgumentError,
    ObjectNotFoundError,
    StorageError,
    TableStateError,
)
from airflow_delta.engine.features.protocol import Operation, check_writable
from airflow_delta.engine.maintenance.table_files.listing import drop_phantoms, list_files
from airflow_delta.engine.maintenance.table_files.oldest_restorable import find_oldest_restorable
from airflow_delta.engine.maintenance.table_files.past_versions import find_version_at
from airflow_delta.engine.maintenance.table_files.removals import read_removes_since
from airflow_delta.engine.maintenance.vacuum.classification import (
    KeptFiles,
    classify_candidates,
    make_is_deleted,
    make_is_expired,
)
from airflow_delta.engine.maintenance.vacuum.inventory import select_inventory_files
from airflow_delta.engine.maintenance.vacuum.last_vacuum import read_last_vacuum
from airflow_delta.engine.maintenance.vacuum.lite import (
    find_lite_versions,
    find_vacuumed_versions,
    read_named_files,
)
from airflow_delta.engine.maintenance.vacuum.other_tables import drop_other_tables
from airflow_delta.engine.maintenance.vacuum.references import References, collect_references
from airflow_delta.engine.maintenance.vacuum.retention import Retention, choose_retention
from airflow_delta.engine.maintenance.vacuum.scope import KINDS, Scope
from airflow_delta.engine.model.times import utc_text
from airflow_delta.engine.replay.tombstones import unexpired
from airflow_delta.engine.snapshot.opening import open_newest
from airflow_delta.engine.snapshot.snapshot import Snapshot
from airflow_delta.engine.storage.base import Storage

__all__ = [
    "FileTotals",
    "Mode",
    "VacuumPlan",
    "explain_nothing_to_delete",
    "find_expired_versions",
    "open_for_vacuum",
    "plan_vacuum",
]

Mode = Literal["full", "lite"]
"""Where the candidates come from; see the module."""

_KEY = ("path", "deletionVector")
_HOUR_MS = 60 * 60 * 1000
_EXAMPLES = 5
"""How many paths a report shows of the files to be deleted."""


@dataclass(frozen=True, slots=True)
class FileTotals:
    """A number of files and their total size in bytes. Files of unknown size count as empty."""

    num_files: int
    size_in_bytes: int


@dataclass(frozen=True, slots=True)
class VacuumPlan:
    """The plan of a vacuum.

    Attributes:
        table: the table's location.
        version: the newest version, which decides what the table needs.
        mode: where the candidates come from: ``full``, ``lite`` or ``inventory``.
        retention: how old files must be.
        files: what is to be deleted, with the columns ``path`` (below the table's root, decoded), ``size``
            (bytes; null where a lite vacuum doesn't know it), ``modificationTime`` (epoch ms; null in a
            lite vacuum) and ``kind`` (``data``, ``deletion vectors`` or ``change data``).
        kept: why the other candidates stay.
        oldest_restorable: the oldest version from which on every version is whole after the vacuum.
        commits: the versions whose commits name the candidates of a lite vacuum; else empty.
        vacuumed: the version to write to ``_last_vacuum_info``; None to leave that file as it is.
        reason: why there is nothing to delete, as a sentence; None where there is something.
    """

    table: str
    version: int
    mode: str
    retention: Retention
    files: pa.Table = field(repr=False)
    kept: KeptFiles
    oldest_restorable: int
    commits: range = range(0)
    vacuumed: int | None = None
    reason: str | None = None

    @property
    def total(self) -> FileTotals:
        """All files that are to be deleted."""
        return _add_up(self.files)

    @property
    def by_kind(self) -> Mapping[str, FileTotals]:
        """The files that are to be deleted, by kind, with an entry for every kind."""
        kinds = self.files["kind"]
        return {
            kind: _add_up(self.files.filter(pc.equal(kinds, scalar_of(kind, pa.string()))))
            for kind in KINDS
        }

    def to_dict(self) -> dict[str, Any]:
        """The plan as plain JSON values. It counts all files and names a few.

        Returns:
            ``version`` (the newest one), ``mode`` (``full``, ``lite`` or ``inventory``),
            ``retention_hours``, ``cutoff`` (ISO-8601; what is older may be deleted), ``files`` and
            ``bytes`` to be deleted, ``by_kind`` (the same for each kind), ``examples`` (a few of their
            paths), ``kept`` (how many stay, by reason), ``oldest_restorable`` (all versions from this one
            on are whole afterwards) and the ``reason`` why nothing is deleted.
        """
        total = self.total
        return {
            "version": self.version,
            "mode": self.mode,
            "retention_hours": self.retention.duration_ms / _HOUR_MS,
            "cutoff": utc_text(self.retention.cutoff_ms),
            "files": total.num_files,
            "bytes": total.size_in_bytes,
            "by_kind": {
                kind: {"files": found.num_files, "bytes": found.size_in_bytes}
                for kind, found in self.by_kind.items()
            },
            "examples": self.files["path"].slice(0, _EXAMPLES).to_pylist(),
            "kept": {
                "referenced": self.kept.referenced,
                "young": self.kept.young,
                "hidden": self.kept.hidden,
                "other_tables": self.kept.other_tables,
            },
            "oldest_restorable": self.oldest_restorable,
            "reason": self.reason,
        }


def plan_vacuum(
    storage: Storage,
    owners: CommitOwners,
    *,
    retention_hours: float | None = None,
    mode: Mode = "full",
    inventory: pa.Table | None = None,
    enforce_retention: bool = True,
    now_ms: int | None = None,
) -> VacuumPlan:
    """Plan a vacuum. Nothing is changed.

    Args:
        storage: where the table is.
        owners: the commit owners to ask for the newest version.
        retention_hours: how old files must be; None for the table's property.
        mode: where the candidates come from.
        inventory: files to look at instead of a listing; see ``inventory.py``.
        enforce_retention: refuse less than the table's property says.
        now_ms: the time, in epoch ms; by the clock unless given.

    Raises:
        UnsupportedFeatureError: the engine can't write the table.
        CommitOwnerError: the commit owner can't report the newest version.
        RetentionError: the retention is shorter than the table's property; or longer, and the log doesn't
            reach back so far.
        VersionNotFoundError: a lite vacuum needs commits that cleanup has deleted.
        InvalidArgumentError: an argument makes no sense.
        CorruptLogError: the log is damaged, or a path in it can't be decoded.
        DeletionVectorError: a deletion vector's descriptor doesn't name a file.
        StorageError: the store failed.
    """
    if mode not in get_args(Mode) or (mode == "lite" and inventory is not None):
        raise InvalidArgumentError(
            f"a vacuum is 'full' or 'lite', and with an inventory it is 'full': found {mode!r}"
            f"{'' if inventory is None else ' with an inventory'}",
            table=storage.root,
        )
    now_ms = clock.now_ms() if now_ms is None else now_ms
    retain = partial(
        choose_retention, hours=retention_hours, now_ms=now_ms, enforce=enforce_retention
    )
    before = open_for_vacuum(storage, owners)
    retention = retain(before.properties)
    if mode == "lite":
        return _plan_lite(before, retention)
    if inventory is not None:
        found, listed = select_inventory_files(inventory, root=storage.root), None
    else:
        found, listed = _list_candidates(storage), before.version
    # Opened after the listing, so that no listed file is younger than the version it is compared with.
    newest = open_for_vacuum(storage, owners)
    snapshot = before if newest.version == before.version else newest
    return _plan_full(snapshot, found, retain(snapshot.properties), listed=listed)


def open_for_vacuum(storage: Storage, owners: CommitOwners) -> Snapshot:
    """Open the newest version, and check that the engine can write the table.

    Raises:
        UnsupportedFeatureError: the engine can't write the table.
        CommitOwnerError: the commit owner can't report the newest version.
        DeltaError: the table can't be read.
    """
    snapshot = open_newest(storage, owners=owners, for_writing=True)
    check_writable(
        snapshot.protocol, snapshot.metadata, table=snapshot.table, operation=Operation.COMMIT
    )
    return snapshot


def _list_candidates(storage: Storage) -> pa.Table:
    try:
        return list_files(storage)
    except StorageError as error:
        # Clients of object stores refuse a whole listing if it has such a name.
        if "invalid path" not in error.message:
            raise
        raise StorageError(
            f"{error.message}. An object with such a name can't be listed, so a full vacuum by a listing "
            "isn't possible: run a lite vacuum, pass an inventory, or delete the object",
            table=storage.root,
            **error.facts,
        ) from error


def _plan_full(
    snapshot: Snapshot, found: pa.Table, retention: Retention, *, listed: int | None
) -> VacuumPlan:
    """Make the plan for the files that were found.

    Args:
        snapshot: the newest version.
        found: the files.
        retention: how old they must be.
        listed: the version at which all files were found; None for those of an inventory.
    """
    live = collect_references([snapshot.files(columns=_KEY)], table=snapshot.table)
    protected = live | _collect_recently_removed(snapshot, retention)
    scope, is_listed = Scope.of(snapshot), listed is not None
    files, kept = classify_candidates(
        found, scope, protected, retention.cutoff_ms, is_listed=is_listed
    )
    files, kept = drop_other_tables(files, kept, snapshot.storage, is_listed=is_listed)
    vacuumed = None
    if listed is None:
        is_gone = make_is_expired(protected, retention, deleted=files)
    else:
        files = drop_phantoms(files, snapshot.storage)
        is_gone = make_is_deleted(found, files, live)
        vacuumed = _find_vacuumed_version(snapshot, found, protected, retention)
    return VacuumPlan(
        snapshot.table,
        snapshot.version,
        "inventory" if listed is None else "full",
        retention,
        files,
        kept,
        find_oldest_restorable(snapshot, is_gone, listed=listed),
        vacuumed=vacuumed,
        reason=None if files.num_rows else explain_nothing_to_delete(found.num_rows, kept),
    )


def _plan_lite(snapshot: Snapshot, retention: Retention) -> VacuumPlan:
    storage, cutoff_ms = snapshot.storage, retention.cutoff_ms
    vacuumed = read_last_vacuum(storage)
    versions = find_lite_versions(snapshot, cutoff_ms, vacuumed=vacuumed)
    live = collect_references([snapshot.files(columns=_KEY)], table=snapshot.table)
    protected = live | _collect_recently_removed(snapshot, retention)
    named = read_named_files(snapshot, versions, cutoff_ms)
    found = named.files
    scope = Scope.of(snapshot)
    files, kept = classify_candidates(found, scope, protected, cutoff_ms, is_listed=False)
    files, kept = drop_other_tables(files, kept, storage, is_listed=False)
    if versions:
        reason = explain_nothing_to_delete(found.num_rows, kept)
    else:
        reason = f"no commit from version {versions.start} on is older than the retention"
    return VacuumPlan(
        snapshot.table,
        snapshot.version,
        "lite",
        retention,
        files,
        kept,
        find_oldest_restorable(snapshot, make_is_expired(protected, retention, deleted=files)),
        commits=versions,
        vacuumed=named.done[-1] if named.done else None,
        reason=None if files.num_rows else reason,
    )


def _collect_recently_removed(snapshot: Snapshot, retention: Retention) -> References:
    """Collect the files that were removed within the retention."""
    removes = snapshot.state.removes((*_KEY, "deletionTimestamp"))
    actions = [unexpired(removes, retention.cutoff_ms - 1)]
    longer = retention.duration_ms > retention.configured_ms
    actions += read_removes_since(snapshot, retention.cutoff_ms, all_needed=longer)
    return collect_references(actions, table=snapshot.table)


def find_expired_versions(snapshot: Snapshot, retention: Retention) -> range:
    """Find the versions that have become older than the retention since the last vacuum; empty for none.

    Args:
        snapshot: the newest version.
        retention: the retention of the vacuum.
    """
    try:
        version = find_version_at(snapshot, retention.cutoff_ms)
    except TableStateError:
        # Only the record of the last vacuum depends on the times of commits here.
        version = None
    recorded = read_last_vacuum(snapshot.storage)
    start = 0 if recorded is None or recorded > snapshot.version else recorded + 1
    return range(start, start if version is None else max(start, version + 1))


def _find_vacuumed_version(
    snapshot: Snapshot, found: pa.Table, protected: References, retention: Retention
) -> int | None:
    """Find the last version up to which a full vacuum deletes all removed files; None for no progress."""
    versions = find_expired_versions(snapshot, retention)
    if not versions:
        return None
    young = found["path"].filter(
        pc.greater_equal(found["modificationTime"], scalar_of(retention.cutoff_ms, pa.int64()))
    )
    young = young.filter(pc.invert(protected.protect(young)))
    try:
        done = find_vacuumed_versions(snapshot, versions, retention.cutoff_ms, young=young)
    except (TableStateError, ObjectNotFoundError):
        # A damaged commit that a checkpoint covers, or a running cleanup. Only the record depends on it.
        return None
    return done[-1] if done else None


def explain_nothing_to_delete(num_found: int, kept: KeptFiles) -> str:
    """Explain why there is nothing to delete, as a sentence.

    Args:
        num_found: how many candidates there are.
        kept: why they stay.
    """
    return (
        f"of {num_found:,} candidates the table needs {kept.referenced:,}, for its newest version or older "
        f"ones within the retention; of the others {kept.young:,} are younger than the retention, "
        f"{kept.hidden:,} are hidden and {kept.other_tables:,} belong to other tables"
    )


def _add_up(files: pa.Table) -> FileTotals:
    return FileTotals(files.num_rows, pc.sum(files["size"]).as_py() or 0)
