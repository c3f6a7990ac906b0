"""Plan a vacuum: which files in a table's directory nobody needs any more.

Writers remove files from a table by a line in its log, and never from the store. A vacuum does that, when
the retention has passed for which older versions shall stay readable (PROTOCOL.md: "lazily deleted by the
vacuum command after a user-specified retention period"; ``delta.deletedFileRetentionDuration``).

====================  ==================================================  ============================
mode                  candidates                                          finds files no commit names
====================  ==================================================  ============================
``full``              all files that the store lists                      yes
full, by inventory    all files that an inventory has                     yes
``lite``              what commits since the last vacuum have removed     no
====================  ==================================================  ============================

Of the candidates these stay (in parentheses the module that knows):

* what the newest version refers to, and what its unexpired tombstones do; also by commits that only the
  commit owner of a managed table knows: where it can't be asked nothing is planned (`vacuum_references`);
* what is younger than the retention: the files of a commit that is being made aren't in any log, and
  change data files are kept for readers of changes;
* what is hidden, the log above all, and what lies in the directory of another table (`vacuum_scope`,
  `vacuum_other_tables`).

Files outside the table's root are no candidates, whoever refers to them. The other way round nobody knows:
a shallow clone refers to files of its source, and a vacuum of the source takes them.

The newest version is asked for after the files have been listed, so that no file is looked at that is
younger than what it is compared with.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, get_args

import pyarrow as pa
import pyarrow.compute as pc

from airflow_delta.engine.arrow.python_arrays import scalar_of
from airflow_delta.engine.commit.registry import CommitOwners
from airflow_delta.engine.errors import InvalidArgumentError, StorageError, TableStateError
from airflow_delta.engine.features.protocol import Operation, check_writable
from airflow_delta.engine.maintenance.table_files.listing import existing, list_files
from airflow_delta.engine.maintenance.table_files.oldest_restorable import oldest_restorable
from airflow_delta.engine.maintenance.table_files.past_versions import version_by
from airflow_delta.engine.maintenance.table_files.removals import removed_since
from airflow_delta.engine.maintenance.vacuum.classification import (
    KeptFiles,
    is_expired,
    is_not_among,
    sifted,
)
from airflow_delta.engine.maintenance.vacuum.inventory import inventory_files
from airflow_delta.engine.maintenance.vacuum.last_vacuum import read_last_vacuum
from airflow_delta.engine.maintenance.vacuum.lite import lite_versions, named_files
from airflow_delta.engine.maintenance.vacuum.other_tables import without_other_tables
from airflow_delta.engine.maintenance.vacuum.references import References, references
from airflow_delta.engine.maintenance.vacuum.retention import Retention, retention_of
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
    "open_for_vacuum",
    "plan_vacuum",
    "reached_version",
    "why_nothing",
]

Mode = Literal["full", "lite"]
"""Where the candidates come from; see the module."""

_KEY = ("path", "deletionVector")


_HOUR_MS = 60 * 60 * 1000
_EXAMPLES = 5
"""So many paths show what kind of files would go."""


@dataclass(frozen=True, slots=True)
class FileTotals:
    """So many files, and so many bytes together; those of unknown size count as empty."""

    num_files: int
    size_in_bytes: int


@dataclass(frozen=True, slots=True)
class VacuumPlan:
    """What a vacuum will do.

    Attributes:
        table: the table's location.
        version: the newest version, which says what the table needs.
        mode: where the candidates come from: ``full``, ``lite`` or ``inventory``.
        retention: how old files must be.
        files: what is to be deleted, with the columns ``path`` (below the table's root, decoded),
            ``size`` (bytes; null where a lite vacuum can't know), ``modificationTime`` (epoch ms; null
            in a lite vacuum) and ``kind`` (``data``, ``deletion vectors`` or ``change data``).
        kept: why the other candidates stay.
        oldest_restorable: the oldest version from which on all are whole when the files are gone.
        commits: the versions that a lite vacuum has its candidates from; else empty.
        vacuumed: what is to be noted in ``_last_vacuum_info``; None where it stays as it is.
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
        return _totals(self.files)

    @property
    def by_kind(self) -> Mapping[str, FileTotals]:
        """The files that are to be deleted, by their kind; every kind is there."""
        kinds = self.files["kind"]
        return {
            kind: _totals(self.files.filter(pc.equal(kinds, scalar_of(kind, pa.string()))))
            for kind in KINDS
        }

    def to_dict(self) -> dict[str, Any]:
        """The plan as plain JSON values, in which a few files are named and all are counted.

        Returns:
            ``version`` (the newest one), ``mode`` (``full``, ``lite`` or ``inventory``),
            ``retention_hours``, ``cutoff`` (ISO-8601; what is older may go), ``files`` and ``bytes`` to be
            deleted, ``by_kind`` the same of each kind of files, ``examples`` (a few of their paths),
            ``kept`` (how many stay, by reason), ``oldest_restorable`` (from that version on all are whole)
            and the ``reason`` why nothing goes.
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
        owners: the commit owners to be asked for the newest version.
        retention_hours: how old files must be; None for what the table's property says.
        mode: where the candidates come from.
        inventory: files to be looked at in place of a listing; see `vacuum_inventory`.
        enforce_retention: refuse less than the table's property says.
        now_ms: the time, in epoch ms; by the clock unless given.

    Raises:
        UnsupportedFeatureError: the engine can't write the table.
        CommitOwnerError: the commit owner can't tell the newest version.
        RetentionError: less was asked for than the property says; or more, and the log doesn't reach
            back so far.
        VersionNotFoundError: a lite vacuum needs commits that cleanup has taken.
        InvalidArgumentError: an argument makes no sense.
        CorruptLogError: the log is damaged, or a path in it can't be decoded.
        DeletionVectorError: a deletion vector's file can't be told.
        StorageError: the store failed.
    """
    if mode not in get_args(Mode) or (mode == "lite" and inventory is not None):
        raise InvalidArgumentError(
            f"a vacuum is 'full' or 'lite', and with an inventory it is 'full': found {mode!r}"
            f"{'' if inventory is None else ' with an inventory'}",
            table=storage.root,
        )
    now_ms = time.time_ns() // 1_000_000 if now_ms is None else now_ms
    retain = partial(retention_of, hours=retention_hours, now_ms=now_ms, enforce=enforce_retention)
    before = open_for_vacuum(storage, owners)
    retention = retain(before.properties)
    if mode == "lite":
        return _lite_plan(before, retention)
    if inventory is not None:
        found, listed = inventory_files(inventory, root=storage.root), None
    else:
        found, listed = _listed(storage), before.version
    newest = open_for_vacuum(storage, owners)
    snapshot = before if newest.version == before.version else newest
    return _full_plan(snapshot, found, retain(snapshot.properties), listed=listed)


def open_for_vacuum(storage: Storage, owners: CommitOwners) -> Snapshot:
    """The newest version, of a table that may be written.

    Raises:
        UnsupportedFeatureError: the engine can't write the table.
        CommitOwnerError: the commit owner can't tell the newest version.
        DeltaError: the table can't be read.
    """
    snapshot = open_newest(storage, owners=owners, for_writing=True)
    check_writable(
        snapshot.protocol, snapshot.metadata, table=snapshot.table, operation=Operation.COMMIT
    )
    return snapshot


def _listed(storage: Storage) -> pa.Table:
    try:
        return list_files(storage)
    except StorageError as error:
        # Clients of object stores refuse a listing with such a name in it as a whole.
        if "invalid path" not in error.message:
            raise
        raise StorageError(
            f"{error.message}. An object with such a name can't be listed, so that a full vacuum by a "
            "listing isn't possible: run a lite vacuum, give an inventory, or remove the object",
            table=storage.root,
            **error.facts,
        ) from error


def _full_plan(
    snapshot: Snapshot, found: pa.Table, retention: Retention, *, listed: int | None
) -> VacuumPlan:
    """The plan for the files that were found.

    Args:
        snapshot: the newest version.
        found: the files.
        retention: how old they must be.
        listed: the version at which all files were found; None for those of an inventory.
    """
    live = references([snapshot.files(columns=_KEY)], table=snapshot.table)
    protected = live | _recent(snapshot, retention)
    scope, is_listed = Scope.of(snapshot), listed is not None
    files, kept = sifted(found, scope, protected, retention.cutoff_ms, is_listed=is_listed)
    files, kept = without_other_tables(files, kept, snapshot.storage, is_listed=is_listed)
    vacuumed = None
    if listed is None:
        is_gone = is_expired(protected, retention, deleted=files)
    else:
        files = existing(files, snapshot.storage)
        is_gone = is_not_among(found, files, live)
        vacuumed = reached_version(snapshot, retention)
    return VacuumPlan(
        snapshot.table,
        snapshot.version,
        "inventory" if listed is None else "full",
        retention,
        files,
        kept,
        oldest_restorable(snapshot, is_gone, listed=listed),
        vacuumed=vacuumed,
        reason=None if files.num_rows else why_nothing(found.num_rows, kept),
    )


def _lite_plan(snapshot: Snapshot, retention: Retention) -> VacuumPlan:
    storage, cutoff_ms = snapshot.storage, retention.cutoff_ms
    vacuumed = read_last_vacuum(storage)
    versions = lite_versions(snapshot, cutoff_ms, vacuumed=vacuumed)
    live = references([snapshot.files(columns=_KEY)], table=snapshot.table)
    protected = live | _recent(snapshot, retention)
    named = named_files(snapshot, versions, cutoff_ms)
    found = named.files
    scope = Scope.of(snapshot)
    files, kept = sifted(found, scope, protected, cutoff_ms, is_listed=False)
    files, kept = without_other_tables(files, kept, storage, is_listed=False)
    if versions:
        reason = why_nothing(found.num_rows, kept)
    else:
        reason = f"no commit from version {versions.start} on is older than the retention"
    return VacuumPlan(
        snapshot.table,
        snapshot.version,
        "lite",
        retention,
        files,
        kept,
        oldest_restorable(snapshot, is_expired(protected, retention, deleted=files)),
        commits=versions,
        vacuumed=named.done[-1] if named.done else None,
        reason=None if files.num_rows else reason,
    )


def _recent(snapshot: Snapshot, retention: Retention) -> References:
    """The files that were removed so recently that they must stay."""
    removes = snapshot.state.removes((*_KEY, "deletionTimestamp"))
    actions = [unexpired(removes, retention.cutoff_ms - 1)]
    longer = retention.duration_ms > retention.configured_ms
    actions += removed_since(snapshot, retention.cutoff_ms, all_needed=longer)
    return references(actions, table=snapshot.table)


def reached_version(snapshot: Snapshot, retention: Retention) -> int | None:
    """The last version whose removed files a full vacuum has seen to; None where that is known by now.

    Args:
        snapshot: the newest version.
        retention: that of the vacuum.
    """
    try:
        version = version_by(snapshot, retention.cutoff_ms)
    except TableStateError:
        # No more than a note depends on the times of commits here.
        return None
    noted = read_last_vacuum(snapshot.storage)
    known = noted is not None and noted <= snapshot.version
    if version is None or (known and noted is not None and noted >= version):
        return None
    return version


def why_nothing(num_found: int, kept: KeptFiles) -> str:
    """Why there is nothing to delete, as a sentence.

    Args:
        num_found: how many candidates there are.
        kept: why they stay.
    """
    return (
        f"of {num_found:,} files that were looked at the table needs {kept.referenced:,}, for its newest "
        f"version or for older ones within the retention; of the others {kept.young:,} are younger than "
        f"the retention, {kept.hidden:,} are hidden and {kept.other_tables:,} belong to other tables"
    )


def _totals(files: pa.Table) -> FileTotals:
    return FileTotals(files.num_rows, pc.sum(files["size"]).as_py() or 0)
