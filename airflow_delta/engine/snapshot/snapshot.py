"""`Snapshot`: the state of a table at one version.

Opening a snapshot reads the hint, one listing, the non-file actions of the checkpoint and the
commits after it. Files, tombstones and statistics are read when they are needed, and only the
columns needed.

Libraries are loaded late as well: importing pyarrow takes 20 to 40 times as long as opening a table,
and the version, the schema and the history need neither pyarrow nor numpy. So the methods about
files import the modules that use them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from airflow_delta.engine.clock import now_ms
from airflow_delta.engine.errors import InvalidTableError
from airflow_delta.engine.features.protocol import (
    FeatureStatus,
    check_readable,
    describe_features,
)
from airflow_delta.engine.log.completeness import without_action
from airflow_delta.engine.log.files import LogCommit
from airflow_delta.engine.log.segment import LogSegment
from airflow_delta.engine.model.actions import (
    CommitInfo,
    DomainMetadata,
    Metadata,
    Protocol,
    Txn,
)
from airflow_delta.engine.model.lazy import lazy_property
from airflow_delta.engine.model.paths import resolve
from airflow_delta.engine.model.properties import TableProperties
from airflow_delta.engine.model.schema import StructType
from airflow_delta.engine.model.times import utc_datetime
from airflow_delta.engine.public_text import without_password
from airflow_delta.engine.snapshot.history import Timeline
from airflow_delta.engine.snapshot.row_tracking import RowTracking, row_tracking
from airflow_delta.engine.snapshot.segment_commits import info_of
from airflow_delta.engine.snapshot.state import LogState
from airflow_delta.engine.snapshot.table_schema import table_schema
from airflow_delta.engine.storage.base import Storage

if TYPE_CHECKING:
    import pyarrow as pa

    from airflow_delta.engine.arrow.json.reader import ParsedCommits
    from airflow_delta.engine.data_files.scan import Scan
    from airflow_delta.engine.scan.predicates.reading import PredicateLike
    from airflow_delta.engine.snapshot.verify import VerifyResult
    from airflow_delta.engine.storage.file_access import FileAccess

__all__ = ["Snapshot"]


class Snapshot:
    """A table at one version. Made by `DeltaTable.snapshot`; not for use by several threads at once.

    Args:
        storage: where the table is.
        segment: the segment of the version.
        state: the reconciled actions of the segment, if they are known; see `advance`.
        info: the ``commitInfo`` of the version, if it is known.

    Raises:
        CorruptLogError: a commit breaks the protocol, or protocol or metadata are missing.
        UnsupportedFeatureError: reading the table needs a feature that the engine doesn't support.
        InvalidTableError: protocol and metadata contradict each other.
    """

    def __init__(
        self,
        storage: Storage,
        segment: LogSegment,
        *,
        state: LogState | None = None,
        info: CommitInfo | None = None,
    ) -> None:
        self._state = LogState(storage, segment) if state is None else state
        self._info = info
        self._access: FileAccess | None = None
        non_file_state = self._state.non_file_state
        if non_file_state.protocol is None or non_file_state.metadata is None:
            missing = "protocol" if non_file_state.protocol is None else "metaData"
            raise without_action(
                missing, version=self.version, checkpoint=self.segment.checkpoint, table=self.table
            )
        self._protocol, self._metadata = non_file_state.protocol, non_file_state.metadata
        check_readable(self._protocol, self._metadata, table=self.table)

    def __repr__(self) -> str:
        return f"Snapshot({without_password(self.table)!r}, version={self.version})"

    @property
    def table(self) -> str:
        """The table's location."""
        return self._state.segment.table

    @property
    def storage(self) -> Storage:
        """The store that the table is in, bound to the table's root."""
        return self._state.storage

    @property
    def version(self) -> int:
        """The version of the table."""
        return self._state.segment.version

    @property
    def segment(self) -> LogSegment:
        """The files of the log that give this version."""
        return self._state.segment

    @property
    def state(self) -> LogState:
        """The reconciled actions behind the snapshot, for writers of checkpoints."""
        return self._state

    @property
    def protocol(self) -> Protocol:
        """The versions and features that readers and writers of the table must know."""
        return self._protocol

    @property
    def metadata(self) -> Metadata:
        """Schema, partition columns and configuration, as they are in the log."""
        return self._metadata

    @lazy_property
    def schema(self) -> StructType:
        """The schema, with logical names.

        Raises:
            InvalidTableError: the schema can't be parsed, or lacks a partition column.
        """
        return table_schema(self._metadata, table=self.table)

    @property
    def arrow_schema(self) -> pa.Schema:
        """The schema in Arrow's types; see ``arrow/types.py``.

        Raises:
            InvalidTableError: see `schema`; or a column's type has no Arrow equivalent.
        """
        from airflow_delta.engine.arrow.types import to_arrow_schema

        return to_arrow_schema(self.schema)

    @lazy_property
    def properties(self) -> TableProperties:
        """The table properties, typed."""
        return TableProperties(self._metadata.configuration, self.table)

    @property
    def transactions(self) -> Mapping[str, Txn]:
        """The newest transaction of each application, without expired ones.

        PROTOCOL.md, "Transaction Identifiers"; ``delta.setTransactionRetentionDuration``.
        """
        retention = self.properties.set_transaction_retention_ms
        if retention is None:
            return self._state.non_file_state.transactions
        oldest = now_ms() - retention
        return {
            app: txn
            for app, txn in self._state.non_file_state.transactions.items()
            if txn.last_updated is not None and txn.last_updated >= oldest
        }

    @property
    def domains(self) -> Mapping[str, DomainMetadata]:
        """The configuration of each metadata domain."""
        return self._state.non_file_state.domains

    @property
    def features(self) -> tuple[FeatureStatus, ...]:
        """The status of each table feature that the engine knows or the protocol lists."""
        return describe_features(self._protocol, self._metadata, table=self.table)

    @property
    def row_tracking(self) -> RowTracking | None:
        """The source of row ids and row commit versions; None without the feature.

        Raises:
            InvalidTableError: the high water mark of row ids can't be read.
        """
        return row_tracking(self._protocol, self.properties, self.domains)

    def advance(self, commits: Sequence[LogCommit], parsed: ParsedCommits) -> Snapshot:
        """The snapshot of the version that later commits have made.

        Args:
            commits: the commits, from the next version on.
            parsed: their actions; see `parse_common_columns`.

        Raises:
            CorruptLogError: a commit breaks the protocol.
            UnsupportedFeatureError: reading the later version needs a feature that the engine
                doesn't support.
            InvalidTableError: its protocol and metadata contradict each other.
        """
        segment = self.segment.extended(commits)
        state = self._state.advance(segment, parsed)
        info = info_of(parsed.non_file_actions, segment.version)
        later = Snapshot(self._state.storage, segment, state=state, info=info)
        later._access = self._access
        return later

    def duplicate(self) -> Snapshot:
        """A copy of the snapshot for another user, perhaps in another thread."""
        state = self._state.duplicate()
        same = Snapshot(self._state.storage, self.segment, state=state, info=self._info)
        same._access = self._access
        return same

    @lazy_property
    def timeline(self) -> Timeline:
        """The versions up to this one, with their times."""
        return Timeline(
            self._state.storage,
            self.segment,
            protocol=self._protocol,
            metadata=self._metadata,
            newest=self._info,
        )

    @lazy_property
    def timestamp_ms(self) -> int:
        """The time at which this version was committed, in epoch milliseconds.

        Raises:
            VersionNotFoundError: the commit's file is gone, so its time is unknown.
        """
        return self.timeline.timestamp_ms(self.version)

    @property
    def timestamp(self) -> datetime:
        """The time at which this version was committed, in UTC; see `timestamp_ms`.

        Raises:
            VersionNotFoundError: the commit's file is gone, so its time is unknown.
            InvalidTableError: the number in the log is no time of the years 1 to 9999.
        """
        moment = utc_datetime(self.timestamp_ms)
        if moment is None:
            raise InvalidTableError(
                f"the log says that version {self.version} was committed {self.timestamp_ms:,} ms "
                "after 1970, which is no time of the years 1 to 9999; `timestamp_ms` has the number",
                table=self.table,
                version=self.version,
            )
        return moment

    def files(
        self, columns: Sequence[str] | None = None, predicate: PredicateLike | None = None
    ) -> pa.Table:
        """The live files: one row per ``add``.

        Args:
            columns: columns of the protocol's ``add``, at least one; None for all.
            predicate: over the columns of the table. Leaves out files whose partition values or
                statistics show that no row matches; the other files may still have rows that don't
                match. It is a text as in SQL (``"day >= '2026-01-01' AND region IN ('eu',
                'us')"``), a list of tuples as for pyarrow and deltalake (``[("day", ">=",
                "2026-01-01"), ("region", "in", ["eu", "us"])]``), or a
                `pyarrow.compute.Expression`.

        Raises:
            InvalidArgumentError: a column doesn't exist, or ``columns`` is empty; or the predicate
                can't be parsed, uses other columns than the table's, or compares a column with a
                value of an incomparable type.
        """
        from airflow_delta.engine.snapshot.live_files import list_live_files

        return list_live_files(self, columns, predicate)

    def read_through(self, access: FileAccess) -> Snapshot:
        """Set how `scan` opens data files: with which options, and where outside of the table.

        Returns:
            The snapshot itself.
        """
        self._access = access
        return self

    def scan(
        self,
        columns: Sequence[str] | None = None,
        predicate: PredicateLike | None = None,
        *,
        with_row_tracking: bool = False,
        batch_size: int = 65_536,
    ) -> Scan:
        """The rows, as Arrow record batches: to iterate, or to hand to DuckDB, Polars or pandas.

        Example:
            ``polars.DataFrame(snapshot.scan(["id"], "day >= '2026-01-01'"))``

        Several files are read at once, and memory stays bounded whatever their sizes. Columns are nullable.
        Files and row groups are skipped if their statistics exclude the predicate.

        Args:
            columns: the columns to read, in this order; None for all.
            predicate: selects rows; see `files` for its forms. Comparisons with NaN are those of Arrow.
            with_row_tracking: whether to add each row's ``_row_id`` and ``_row_commit_version``; the table
                must have row tracking enabled.
            batch_size: the most rows in a batch. Batches of wide rows are smaller.

        Raises:
            InvalidArgumentError: a column doesn't exist, the predicate is invalid, or the table has no row
                tracking.
            UnsupportedFeatureError: the data files aren't Parquet files.
            InvalidTableError: a column has a type without equivalent in Arrow; leave it out.
            DeltaError: the log is damaged. Reading the rows raises further errors; see `Scan.__iter__`.
        """
        from airflow_delta.engine.snapshot.scanning import scan_snapshot
        from airflow_delta.engine.storage.file_access import FileAccess

        return scan_snapshot(
            self,
            self._access or FileAccess(self.storage),
            columns=columns,
            predicate=predicate,
            with_row_tracking=with_row_tracking,
            batch_size=batch_size,
        )

    def to_arrow(
        self,
        columns: Sequence[str] | None = None,
        predicate: PredicateLike | None = None,
        *,
        with_row_tracking: bool = False,
    ) -> pa.Table:
        """The rows as an Arrow table in memory, in the order of the files; see `scan`.

        Raises:
            DeltaError: see `scan` and `Scan.__iter__`.
        """
        scan = self.scan(columns, predicate, with_row_tracking=with_row_tracking)
        return scan.to_table()

    def tombstones(self, *, include_expired: bool = False) -> pa.Table:
        """The removed files that are still protected from vacuum: one row per ``remove``.

        A tombstone expires ``delta.deletedFileRetentionDuration`` after its ``deletionTimestamp``;
        without a timestamp it has expired.

        Args:
            include_expired: also those that the next checkpoint would drop.
        """
        from airflow_delta.engine.replay.tombstones import unexpired

        removes = self._state.removes()
        oldest = now_ms() - self.properties.deleted_file_retention_ms
        return removes if include_expired else unexpired(removes, oldest)

    def file_uris(self, predicate: PredicateLike | None = None) -> list[str]:
        """The absolute, decoded locations of the live files.

        Args:
            predicate: see `files`.
        """
        # A loop in Python, because the result is Python strings.
        paths = self.files(columns=["path"], predicate=predicate)["path"].to_pylist()
        return [resolve(self.table, path) for path in paths]

    def verify(self) -> VerifyResult:
        """Compare this version with its checksum file, if there is one.

        Raises:
            CorruptLogError: the checksum file can't be read.
        """
        from airflow_delta.engine.snapshot.verify import verify

        return verify(self._state, unexpired=self.transactions)

    @lazy_property
    def num_files(self) -> int:
        """The number of live files."""
        return len(self._sizes)

    @lazy_property
    def size_in_bytes(self) -> int:
        """The sum of the sizes of the live files."""
        import pyarrow.compute as pc

        return int(pc.sum(self._sizes).as_py() or 0)

    @lazy_property
    def num_rows(self) -> int | None:
        """Live rows, without those that deletion vectors delete; None if a file has no count."""
        from airflow_delta.engine.snapshot.row_counts import num_rows

        return num_rows(self.files(columns=["stats", "deletionVector"]))

    @lazy_property
    def _sizes(self) -> pa.ChunkedArray:
        return self.files(columns=["size"])["size"]
