"""`Subject`: the table that is checked. Each fact about it is found out once, when a check first needs it.

The checks share a listing of the log, the newest version and its live files. A fact that can't be found out
is None, or an error that the check reports. Only the listing itself may fail: a table without a log, or a
store that doesn't answer, can't be checked at all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_delta.engine.commit.registry import CommitOwners
from airflow_delta.engine.errors import (
    DeltaError,
    InvalidTableError,
    StorageError,
    TableNotFoundError,
    TableStateError,
    UnsupportedFeatureError,
)
from airflow_delta.engine.log.files import LOG_DIRECTORY, Checkpoint
from airflow_delta.engine.log.listing import Listing, listing_of
from airflow_delta.engine.log.segment import load_segment
from airflow_delta.engine.model.actions import Metadata, Protocol
from airflow_delta.engine.model.lazy import lazy_property
from airflow_delta.engine.model.properties import TableProperties
from airflow_delta.engine.model.schema import StructType
from airflow_delta.engine.model.schema_json import parse_schema
from airflow_delta.engine.snapshot.opening import open_newest
from airflow_delta.engine.snapshot.snapshot import Snapshot
from airflow_delta.engine.snapshot.state import LogState
from airflow_delta.engine.storage.base import FileInfo
from airflow_delta.engine.storage.file_access import FileAccess

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Subject"]

_FILE_COLUMNS = ("path", "partitionValues", "size", "stats", "deletionVector", "baseRowId")


class Subject:
    """A table that is checked; see the module.

    Args:
        access: opens its files.
        owners: the commit owners to ask for its newest version.
        now_ms: the time, in epoch ms.

    Attributes:
        reported_commits: what is wrong with the commits that the newest version needs and that can't be
            read. They have a finding of their own.

    Raises:
        TableNotFoundError: there is no commit and no checkpoint.
        StorageError: the log can't be listed.
    """

    def __init__(
        self,
        access: FileAccess,
        owners: CommitOwners,
        *,
        now_ms: int,
    ) -> None:
        self.access = access
        self.storage = storage = access.storage
        self.owners = owners
        self.now_ms = now_ms
        self.table = storage.root
        self.reported_commits: list[str] = []
        self.log_files: tuple[FileInfo, ...] = tuple(storage.list(LOG_DIRECTORY))
        self.listing: Listing = listing_of(self.log_files)
        latest = self.listing.latest
        if latest is None:
            raise TableNotFoundError(
                f"there is no Delta table: no commit and no checkpoint in {LOG_DIRECTORY}; check the "
                "location",
                table=self.table,
            )
        self.latest_logged: int = latest

    @property
    def version(self) -> int:
        """The newest version; if it can't be opened, the newest one that has files in the log."""
        return self.latest_logged if self.snapshot is None else self.snapshot.version

    @property
    def snapshot(self) -> Snapshot | None:
        """The newest version; None if it can't be opened."""
        return self._opened if isinstance(self._opened, Snapshot) else None

    @property
    def refusal(self) -> DeltaError | None:
        """Why the newest version can't be opened; None if it can."""
        return None if isinstance(self._opened, Snapshot) else self._opened

    def probe(self) -> None:
        """Check that the store still answers, after a file couldn't be read.

        Raises:
            StorageError: the store doesn't answer.
        """
        next(self.storage.list(LOG_DIRECTORY), None)

    @lazy_property
    def definition(self) -> tuple[Protocol, Metadata] | None:
        """Protocol and metadata; None if unknown.

        Known even if the engine doesn't support the protocol, or if commits are lost that aren't
        backfilled.
        """
        if self.snapshot is not None:
            return self.snapshot.protocol, self.snapshot.metadata
        try:
            non_file_state = LogState(self.storage, load_segment(self.storage)).non_file_state
        except TableStateError:
            return None
        except StorageError:
            self.probe()
            return None
        if non_file_state.protocol is None or non_file_state.metadata is None:
            return None
        return non_file_state.protocol, non_file_state.metadata

    @property
    def properties(self) -> TableProperties | None:
        """The table's properties; None if unknown."""
        if self.definition is None:
            return None
        return TableProperties(self.definition[1].configuration, self.table)

    @lazy_property
    def schema(self) -> StructType | None:
        """The table's schema; None if unknown, or if it can't be read."""
        if self.definition is None or self.definition[1].schema_string is None:
            return None
        try:
            return parse_schema(self.definition[1].schema_string, self.table)
        except InvalidTableError:
            return None

    @property
    def newest_checkpoint(self) -> Checkpoint | None:
        """The checkpoint that readers choose first, by the names of files; None if there is none."""
        return self.listing.checkpoints[-1] if self.listing.checkpoints else None

    @lazy_property
    def files(self) -> pa.Table:
        """The live files of the newest version, with the columns that checks read.

        Raises:
            CorruptLogError: a file of the log is damaged.
            StorageError: a file of the log can't be read.
        """
        assert self.snapshot is not None
        return self.snapshot.files(columns=_FILE_COLUMNS)

    @lazy_property
    def locations(self) -> pa.ChunkedArray:
        """The location below the root of each of `files`; null for files elsewhere.

        Raises:
            CorruptLogError: a path can't be decoded.
        """
        from airflow_delta.engine.maintenance.table_files.locations import locate_paths

        return locate_paths(self.files["path"], root=self.table)

    @lazy_property
    def row_counts(self) -> pa.ChunkedArray:
        """The number of rows of each of `files`, by its statistics; null if they lack it."""
        from airflow_delta.engine.arrow.statistics.parse import num_records

        return num_records(self.files["stats"])

    @lazy_property
    def _opened(self) -> Snapshot | DeltaError:
        try:
            return open_newest(self.storage, owners=self.owners)
        except (TableStateError, UnsupportedFeatureError) as refusal:
            return refusal
        except StorageError as failure:
            self.probe()
            return failure
