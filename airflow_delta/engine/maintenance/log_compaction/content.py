"""Reconcile a range of commits into the lines of a log compaction.

Lines are taken from the commits as they are, with unknown fields; `_reconcile` chooses them. They are in
the order of the log, after a pledge that no removal and no line is missing (``log/compacted.py``).

PROTOCOL.md, "Log Compaction Files" and "Action Reconciliation".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import numpy as np
import pyarrow as pa

from airflow_delta.engine.arrow.action_schema import FILE_KEY_COLUMNS, POSITION
from airflow_delta.engine.arrow.json.lines import cut_slices, index_lines
from airflow_delta.engine.arrow.json.reader import NonFileAction, parse_commits
from airflow_delta.engine.arrow.numpy_arrays import Int64Vector, int64_view
from airflow_delta.engine.errors import InvalidTableError
from airflow_delta.engine.log.compacted import check_pledge, pledged
from airflow_delta.engine.log.files import CompactedCommits, compacted_path
from airflow_delta.engine.model.actions import DomainMetadata, Txn
from airflow_delta.engine.replay.reconcile import reconcile_commits

__all__ = ["ReconciledLines", "reconcile_lines"]

_STATE_KINDS = ("protocol", "metaData", "txn", "domainMetadata")


@dataclass(frozen=True, slots=True)
class ReconciledLines:
    """The content of a compaction.

    Attributes:
        text: all of it.
        count: the number of actions in it.
        passed: all ``protocol`` and ``metaData`` actions of the commits, in the order of the log, also
            those that newer ones have replaced.
    """

    text: bytes
    count: int
    passed: tuple[NonFileAction, ...]


def reconcile_lines(
    commits: Sequence[tuple[int, bytes]], *, start: int, end: int, table: str
) -> ReconciledLines:
    """Reconcile commits. The result is read again and compared with them.

    Args:
        commits: version and content of each, ascending.
        start: the version of the first one.
        end: the version of the last one.
        table: the table's location, for errors.

    Raises:
        CorruptLogError: a commit breaks the protocol.
        InvalidTableError: the lines don't have the same effect as the commits.
    """
    effect = _reconcile(commits, table)
    parts = [*_select_lines(commits, effect.positions, table)]
    text = pledged(start, end, parts, lines=len(effect.positions))
    _check(text, effect, start=start, end=end, table=table)
    return ReconciledLines(text, len(effect.positions), effect.passed)


@dataclass(frozen=True, slots=True)
class _Effect:
    """The effect of commits on the state.

    Attributes:
        adds: the keys of the adds, in the order of the log.
        removes: the keys of the removes, likewise.
        non_file_actions: name and fields of the other actions, likewise.
        positions: the positions of all their lines, ascending; see ``arrow/json/lines.py``.
        passed: see `ReconciledLines`.
    """

    adds: pa.Table
    removes: pa.Table
    non_file_actions: tuple[tuple[str, Any], ...]
    positions: Int64Vector
    passed: tuple[NonFileAction, ...]


def _reconcile(commits: Sequence[tuple[int, bytes]], table: str) -> _Effect:
    """Reconcile commits: of each key keep the newest action.

    Removes and removed domains are kept, however old: they may cancel actions from before the range.
    ``commitInfo`` and ``cdc`` belong to their commit and not to the state. Other actions are left out too
    ("Protocol Evolution": clients may ignore them): one that mattered would come with a table feature, and
    a table with an unknown feature is refused.
    """
    parsed = parse_commits(commits, columns=(), kinds=_STATE_KINDS, table=table)
    files = reconcile_commits(parsed.files, table=table)
    newest = {_make_key(action): action for action in parsed.non_file_actions}
    non_file_actions = sorted(newest.values(), key=attrgetter("position"))
    positions = [
        np.fromiter(
            (action.position for action in non_file_actions), np.int64, len(non_file_actions)
        ),
        *(int64_view(chunk) for chunk in files.adds[POSITION].chunks),
        *(int64_view(chunk) for chunk in files.removes[POSITION].chunks),
    ]
    return _Effect(
        files.adds.select(FILE_KEY_COLUMNS),
        files.removes.select(FILE_KEY_COLUMNS),
        tuple((action.kind, action.value) for action in non_file_actions),
        np.sort(np.concatenate(positions)),
        tuple(
            action for action in parsed.non_file_actions if action.kind in ("protocol", "metaData")
        ),
    )


def _make_key(action: NonFileAction) -> tuple[str, str | None]:
    """Return the key of an action. A newer action replaces an older one with the same key."""
    where = f"commit {action.version}: {action.kind}"
    if action.kind == "txn":
        return action.kind, Txn.from_json(action.value, where).app_id
    if action.kind == "domainMetadata":
        return action.kind, DomainMetadata.from_json(action.value, where).domain
    return action.kind, None


def _select_lines(
    commits: Sequence[tuple[int, bytes]], positions: Int64Vector, table: str
) -> Iterator[memoryview]:
    """Yield the lines at some positions, unchanged."""
    for source in cut_slices(commits, table=table):
        lines = index_lines(source)
        chosen = lines.select(np.isin(lines.positions(), positions, assume_unique=True))
        if len(chosen):
            yield chosen.join()


def _check(text: bytes, effect: _Effect, *, start: int, end: int, table: str) -> None:
    """Read a compaction as a reader would, and check that it has the effect of the commits."""
    path = compacted_path(start, end)
    check_pledge(CompactedCommits(start, end, path, len(text), 0), text, table=table)
    parsed = parse_commits([(end, text)], columns=(), table=table, paths={end: path})
    adds, removes = (
        actions.select(FILE_KEY_COLUMNS) for actions in (parsed.files.adds, parsed.files.removes)
    )
    non_file_actions = tuple((action.kind, action.value) for action in parsed.non_file_actions)
    if not (
        adds.equals(effect.adds)
        and removes.equals(effect.removes)
        and non_file_actions == effect.non_file_actions
    ):
        raise InvalidTableError(
            f"the compaction {path} was not published: its {adds.num_rows} adds, "
            f"{removes.num_rows} removes and {len(non_file_actions)} other actions don't have the effect "
            "of the commits; leave the commits uncompacted and report this",
            table=table,
            version=end,
            path=path,
        )
