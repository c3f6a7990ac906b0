"""Stream the file actions of a version in bounded memory, to write a checkpoint from them.

The log is read from its newest end. First come the commits: which of their actions survive is known
as soon as they are read (`newest_first`). Then come the rows of the checkpoint that no commit
mentions. Only a hash for each file that a commit mentions stays in memory.
"""

from __future__ import annotations

from collections.abc import Iterator

from airflow_delta.engine.arrow.json.reader import stream_commits
from airflow_delta.engine.checkpoint.action_rows import FileActionTable
from airflow_delta.engine.checkpoint.distinct_files import DistinctFiles
from airflow_delta.engine.checkpoint.read import open_checkpoint
from airflow_delta.engine.replay.newest_first import NewestFirst
from airflow_delta.engine.replay.tombstones import unexpired
from airflow_delta.engine.snapshot.commit_texts import (
    commit_texts,
    compacted_versions,
    unusual_paths,
)
from airflow_delta.engine.snapshot.state import LogState

__all__ = ["stream_file_actions"]


def stream_file_actions(state: LogState, *, oldest_tombstone_ms: int) -> Iterator[FileActionTable]:
    """The live adds and the unexpired removes of a version, mixed, the newest part of the log first.

    Args:
        state: the state of the version.
        oldest_tombstone_ms: see ``tombstones.expired``. Expired removes are left out, but still
            cancel older adds.

    Raises:
        CorruptLogError, ObjectNotFoundError: a file can't be read, or the checkpoint or a
        compaction holds a file twice. `LogState.recover` may help; then the caller must discard the
        rows that it has got.
    """
    compacted = compacted_versions(state.segment.plan())
    replay = NewestFirst(table=state.segment.table, compactions=compacted)
    for kind, rows in _survivors(state, replay):
        kept = rows if kind == "add" else unexpired(rows, oldest_tombstone_ms)
        if kept.num_rows:
            yield kind, kept


def _survivors(state: LogState, replay: NewestFirst) -> Iterator[FileActionTable]:
    segment = state.segment
    newest_first = tuple(reversed(segment.plan()))
    batches = stream_commits(
        commit_texts(state.storage, newest_first, table=segment.table),
        lambda parsed: replay.batch(parsed.files),
        table=segment.table,
        paths=unusual_paths(newest_first),
    )
    for actions in map(replay.survivors, batches):
        yield "add", actions.adds
        yield "remove", actions.removes
    if segment.checkpoint is not None:
        base = open_checkpoint(
            state.storage,
            segment.checkpoint,
            table=segment.table,
            actions=segment.checkpoint_actions,
        )
        distinct = DistinctFiles(path=base.path, version=base.version, table=segment.table)
        for kind, tables in (("add", base.adds()), ("remove", base.removes())):
            for rows in tables:
                distinct.meet(rows)
                yield kind, replay.survivors_of_base(rows)
