"""Reconcile a log of any length in bounded memory, by reading it from its newest end.

PROTOCOL.md, "Action Reconciliation": the newest mention of a file decides. Read backwards, that is
the first one, so what survives of a batch is known at once and nothing of it need be kept, except
which files were mentioned: as hashes, see `key_hashes` for the odds that two files share one.

The result is that of `reconcile`, which holds the actions in memory and answers in the order of the
log. It is for whoever passes all actions on, as the writer of a checkpoint does.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from airflow_delta.engine.arrow.action_schema import POSITION, VERSION, FileActions
from airflow_delta.engine.arrow.numpy_arrays import BoolVector, Int64Vector, bool_array
from airflow_delta.engine.replay.file_key import file_keys
from airflow_delta.engine.replay.key_hashes import KeyHasher, KeyHashes
from airflow_delta.engine.replay.reconcile import (
    chosen,
    contradiction,
    newest_mentions,
    values_of,
    warn_of_contradiction,
)
from airflow_delta.engine.replay.seen_keys import SeenKeys

__all__ = ["Batch", "NewestFirst"]


@dataclass(frozen=True, slots=True)
class Batch:
    """File actions of a part of the log, reconciled among themselves.

    Attributes:
        actions: with `VERSION` and `POSITION`.
        codes: the file of each action, the adds before the removes, as a number.
        files: the hashed key of each file, ascending.
        newest: for each file the newest action about it.
    """

    actions: FileActions
    codes: Int64Vector
    files: KeyHashes
    newest: Int64Vector


class NewestFirst:
    """Tells which actions of a log survive, batch by batch, from the newest to the oldest.

    The batches of the commits come first, then the rows of the checkpoint before them.

    Args:
        table: the table's location, for warnings.
    """

    def __init__(self, *, table: str) -> None:
        self._table = table
        self._hasher = KeyHasher()
        self._seen = SeenKeys()
        # A large commit comes in several batches: which one is coming, and its files so far.
        self._commit: int | None = None
        self._of_commit = SeenKeys()
        self._warned = False

    def batch(self, actions: FileActions) -> Batch:
        """Prepare actions. Threads may do so for any batches at any time.

        Args:
            actions: with `VERSION` and `POSITION`; a commit that is in several batches is in order.
        """
        keys = KeyHashes.joined([self._hashes(actions.adds), self._hashes(actions.removes)])
        codes, files = keys.numbered()
        newest = newest_mentions(codes, values_of(actions, POSITION))
        return Batch(actions, codes, files, newest)

    def survivors(self, batch: Batch) -> FileActions:
        """The actions of a batch that no newer one overrides.

        Where a commit has several actions for one file, the last one is taken, and `DeltaWarning`
        tells of the first such case that is met.

        Args:
            batch: its actions are older than those of all batches before.
        """
        known = self._seen.contain(batch.files)
        self._seen.add(batch.files.pick(~known))
        if not self._warned and len(batch.codes):
            self._look_for_contradictions(batch, known)
        wins = np.zeros(len(batch.codes), np.bool_)
        wins[batch.newest[~known]] = True
        return chosen(batch.actions, wins)

    def survivors_of_base(self, rows: pa.Table) -> pa.Table:
        """The rows of the checkpoint, adds or removes, whose files no commit mentions."""
        if not len(self._seen) or not rows.num_rows:
            return rows
        keys = self._hashes(rows)
        order = keys.order()
        known = np.empty(len(keys), np.bool_)
        known[order] = self._seen.contain(keys.pick(order))
        return rows.filter(bool_array(~known)) if known.any() else rows

    def _hashes(self, actions: pa.Table) -> KeyHashes:
        return self._hasher.hashes(file_keys(actions, table=self._table))

    def _look_for_contradictions(self, batch: Batch, known: BoolVector) -> None:
        versions = values_of(batch.actions, VERSION)
        row = contradiction(batch.codes, versions)
        if row is None and self._commit is not None and known.any():
            again = known & _mentioned(batch, versions == self._commit)
            files = np.flatnonzero(again)
            files = files[self._of_commit.contain(batch.files.pick(files))]
            row = int(batch.newest[files[0]]) if len(files) else None
        if row is not None:
            warn_of_contradiction(batch.actions, row, table=self._table)
            self._warned = True
            self._of_commit = SeenKeys()
            return
        oldest = int(versions.min())
        if oldest != self._commit:
            self._commit, self._of_commit = oldest, SeenKeys()
        # None of them is there already: that would have been a contradiction.
        self._of_commit.add(batch.files.pick(_mentioned(batch, versions == oldest)))


def _mentioned(batch: Batch, actions: BoolVector) -> BoolVector:
    """Which files some of the actions are about."""
    mentioned = np.zeros(len(batch.files), np.bool_)
    mentioned[batch.codes[actions]] = True
    return mentioned
