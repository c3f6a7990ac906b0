"""The reconciled actions of a log segment, read when they are needed, and only the columns needed.

If a file can't be read, `recovery` finds other files that give the same version.

Arrow is imported where file actions are read; ``snapshot.py`` says why.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import copy
from typing import TYPE_CHECKING, TypeVar

from airflow_delta.engine.checkpoint.read import (
    CheckpointReader,
    open_checkpoint,
)
from airflow_delta.engine.errors import (
    CorruptLogError,
    ObjectNotFoundError,
)
from airflow_delta.engine.log.files import (
    CompactedCommits,
)
from airflow_delta.engine.log.segment import LogSegment
from airflow_delta.engine.log.version_checksum import read_checksum
from airflow_delta.engine.replay.non_file_actions import NonFileState, reconcile_non_file_actions
from airflow_delta.engine.snapshot.recovery import SegmentRecovery, with_table
from airflow_delta.engine.snapshot.segment_commits import SegmentCommits
from airflow_delta.engine.storage.base import Storage

if TYPE_CHECKING:
    import pyarrow as pa

    from airflow_delta.engine.arrow.json.reader import ParsedCommits
    from airflow_delta.engine.arrow.parquet.rows import RowFilter

__all__ = ["LogState"]

_T = TypeVar("_T")


class LogState:
    """The reconciled actions of one segment; not for use by several threads at once."""

    def __init__(self, storage: Storage, segment: LogSegment) -> None:
        self.storage = storage
        self.segment = segment
        self._recovery = SegmentRecovery(storage)
        self._reader: CheckpointReader | None = None
        self._segment_commits: SegmentCommits | None = None
        self._non_file_state: NonFileState | None = None

    def advance(self, segment: LogSegment, news: ParsedCommits) -> LogState:
        """The state of a later version, without reading anything again.

        Args:
            segment: the segment of the later version: this one's, extended.
            news: the actions of the new commits; see `parse_common_columns`.

        Raises:
            CorruptLogError: a new action lacks a field or has one of the wrong type.
        """
        later = LogState(self.storage, segment)
        later._recovery.excluded.update(self._recovery.excluded)
        actions = (
            (action.kind, action.value, f"commit {action.version}: {action.kind}")
            for action in news.non_file_actions
        )
        try:
            later._non_file_state = reconcile_non_file_actions(actions, self.non_file_state)
        except CorruptLogError as error:
            raise with_table(error, segment.table) from error
        later._segment_commits = self._commits().advance(segment.plan(), news)
        return later

    def duplicate(self) -> LogState:
        """A copy of the state for another user, which is independent of this one from now on."""
        same = LogState(self.storage, self.segment)
        same._recovery.excluded.update(self._recovery.excluded)
        same._non_file_state = self._non_file_state
        same._segment_commits = copy(self._segment_commits)
        return same

    @property
    def excluded(self) -> frozenset[str]:
        """The paths of checkpoints and compactions that turned out damaged."""
        return frozenset(self._recovery.excluded)

    @property
    def non_file_state(self) -> NonFileState:
        """Protocol, metadata, transactions and domains."""
        if self._non_file_state is None:
            self._non_file_state = self._attempt(self._read_non_file_state)
        return self._non_file_state

    def parse_commits(self) -> None:
        """Parse the commits after the checkpoint now, so that a broken one is found.

        Raises:
            CorruptLogError: a commit breaks the protocol.
        """
        if self.segment.commits:
            self._attempt(lambda: self._commits().files(("path",)))

    def live_adds(
        self, columns: tuple[str, ...] | None = None, *, row_filter: RowFilter | None = None
    ) -> pa.Table:
        """One row per live file, with some columns of its ``add`` (None: all).

        Args:
            columns: the columns.
            row_filter: leaves out files, by columns that needn't be among ``columns``.
        """
        from airflow_delta.engine.arrow.action_schema import ADD_FIELDS

        tables = self._attempt(
            lambda: list(self._stream(columns, adds=True, row_filter=row_filter))
        )
        return _concat_columns(tables, columns, ADD_FIELDS)

    def removes(self, columns: tuple[str, ...] | None = None) -> pa.Table:
        """One row per file that is removed and not live again, including expired ones."""
        from airflow_delta.engine.arrow.action_schema import REMOVE_FIELDS

        tables = self._attempt(lambda: list(self._stream(columns, adds=False)))
        return _concat_columns(tables, columns, REMOVE_FIELDS)

    def stream(self, *, adds: bool) -> Iterator[pa.Table]:
        """All columns of the live adds, or of the removes, batch by batch in bounded memory.

        Raises:
            CorruptLogError, ObjectNotFoundError: a file can't be read. `recover` may help; then the
            caller must discard the rows that it has got.
        """
        yield from self._stream(None, adds=adds)

    def read_through(self) -> None:
        """Read every action once, without keeping any, so that a damaged checkpoint is left out now.

        Raises:
            CorruptLogError, ObjectNotFoundError: the log can't be read from any of its checkpoints.
        """
        self._attempt(lambda: [sum(1 for _ in self.stream(adds=adds)) for adds in (True, False)])

    def recover(self, error: CorruptLogError | ObjectNotFoundError) -> None:
        """Leave out the file that an error is about, so that the caller can read again.

        Each call leaves out more, until the error is raised again.

        Raises:
            CorruptLogError, ObjectNotFoundError: the error itself, if nothing can be left out any
            more: the fault is in a commit. Also if protocol or metadata change, which shows more damage.
        """
        before = self._non_file_state
        self.segment, has_other_content = self._recovery.find_other_files(self.segment, error)
        self._forget()
        if has_other_content and before is not None:
            found = self.non_file_state
            if (before.protocol, before.metadata) != (found.protocol, found.metadata):
                raise error

    def _attempt(self, read: Callable[[], _T]) -> _T:
        while True:
            try:
                return read()
            except (CorruptLogError, ObjectNotFoundError) as error:
                self.recover(error)

    def _forget(self) -> None:
        self._reader = self._segment_commits = self._non_file_state = None

    def _checkpoint(self) -> CheckpointReader | None:
        if self._reader is None and self.segment.checkpoint is not None:
            self._reader = open_checkpoint(
                self.storage,
                self.segment.checkpoint,
                table=self.segment.table,
                actions=self.segment.checkpoint_actions,
            )
        return self._reader

    def _read_non_file_state(self) -> NonFileState:
        reader = self._checkpoint()
        base = None
        if reader is not None:
            base = reconcile_non_file_actions(
                (kind, value, f"{reader.path}: {kind}") for kind, value in reader.non_file_actions()
            )
        commits = self._commits()
        non_file_state = reconcile_non_file_actions(
            (
                (action.kind, action.value, f"{commits.name_of(action.version)}: {action.kind}")
                for action in commits.non_file_actions()
            ),
            base,
        )
        if non_file_state.protocol is None or non_file_state.metadata is None:
            self._check_first_compaction()
        return non_file_state

    def _check_first_compaction(self) -> None:
        """If protocol or metadata are missing, check whether a compaction has lost them.

        Only one from version 0 on can have: any other is compared with its checksum.
        """
        for file in self.segment.plan()[:1]:
            if isinstance(file, CompactedCommits) and file.start == 0:
                raise CorruptLogError(
                    "it lacks the protocol or the metadata",
                    table=self.segment.table,
                    path=file.path,
                )

    def _files_in_checkpoint(self) -> int | None:
        """The number of live files in the checkpoint by the version checksum; None without one."""
        file = self.segment.checkpoint_checksum
        try:
            checksum = None if file is None else read_checksum(self.storage, file.version)
        except CorruptLogError:
            return None  # The checksum is optional.
        return None if checksum is None else checksum.num_files

    def _commits(self) -> SegmentCommits:
        if self._segment_commits is None:
            segment = self.segment
            self._segment_commits = SegmentCommits(
                self.storage, segment.plan(), table=segment.table
            )
        return self._segment_commits

    def _stream(
        self,
        columns: tuple[str, ...] | None,
        *,
        adds: bool,
        row_filter: RowFilter | None = None,
    ) -> Iterator[pa.Table]:
        from airflow_delta.engine.arrow.action_schema import POSITION, VERSION
        from airflow_delta.engine.checkpoint.distinct_files import each_file_once

        looked_at = () if row_filter is None else row_filter.columns
        commits = self._commits().files(columns if columns is None else (*columns, *looked_at))
        reader = self._checkpoint()
        if reader is not None:
            wanted = columns if columns is None else (*columns, "path", "deletionVector")
            rows = reader.removes(wanted)
            if adds:
                rows = each_file_once(
                    reader,
                    reader.adds(wanted, row_filter=row_filter),
                    table=self.segment.table,
                    # A filter leaves files out, so their number isn't known.
                    count=self._files_in_checkpoint if row_filter is None else lambda: None,
                )
            yield from map(commits.survivors, rows)
        newest = commits.adds if adds else commits.removes
        if row_filter is not None:
            newest = row_filter.prune(newest)
        # The position of an action in the log no longer matters, and checkpoints don't store it.
        yield newest.drop_columns([VERSION, POSITION])


def _concat_columns(
    tables: list[pa.Table], columns: tuple[str, ...] | None, fields: dict[str, pa.DataType]
) -> pa.Table:
    """One table with just the wanted columns, whatever else the sources have."""
    import pyarrow as pa

    names = [name for name in fields if columns is None or name in columns]
    return pa.concat_tables([table.select(names) for table in tables])
