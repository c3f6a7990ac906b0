"""Reconcile a log of any length in bounded memory, from its newest end.

PROTOCOL.md, "Action Reconciliation": the newest action about a file decides. When the log is read
backwards, that is the first one. So it is known at once which actions of a batch survive, and
nothing of the batch must be kept except the hashes of its files (`key_hashes` has the probability
that two files share one).

The surviving actions are the same as those of `reconcile`, which holds the actions in memory and
returns them in log order. This module is for callers that pass every action on, such as the writer
of a checkpoint.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from airflow_delta.engine.arrow.action_schema import POSITION, VERSION, FileActions
from airflow_delta.engine.arrow.numpy_arrays import BoolVector, Int64Vector, bool_array
from airflow_delta.engine.replay.file_key import file_keys
from airflow_delta.engine.replay.key_hashes import KeyHasher, KeyHashes
from airflow_delta.engine.replay.reconcile import (
    check_contradictions,
    contradictions,
    filter_actions,
    newest_mentions,
    values_of,
    warn_of_contradiction,
)
from airflow_delta.engine.replay.seen_keys import SeenKeys

__all__ = ["Batch", "NewestFirst"]


@dataclass(frozen=True, slots=True)
class Batch:
    """File actions of a part of the log, reconciled with each other.

    Attributes:
        actions: with `VERSION` and `POSITION`.
        codes: the file of each action as a number; the adds come before the removes.
        files: the hashed key of each file, ascending.
        newest: the newest action of each file.
    """

    actions: FileActions
    codes: Int64Vector
    files: KeyHashes
    newest: Int64Vector


class NewestFirst:
    """Finds the surviving actions of a log, batch by batch, from the newest to the oldest.

    The batches of the commits come first, then the rows of the checkpoint before them.

    Args:
        table: the table's location, for warnings.
        compactions: the versions whose actions come from a compaction, with its path.
    """

    def __init__(self, *, table: str, compactions: Mapping[int, str] | None = None) -> None:
        self._table = table
        self._compactions = compactions or {}
        self._hasher = KeyHasher()
        self._seen = SeenKeys()
        # A large commit comes in several batches. These are its version, the number of the first
        # key that it brought, and those of its files that newer commits had mentioned before.
        self._commit: int | None = None
        self._first_key = 0
        self._known_keys = SeenKeys()
        self._warned = False

    def batch(self, actions: FileActions) -> Batch:
        """Prepare actions. Several threads may prepare batches, in any order.

        Args:
            actions: with `VERSION` and `POSITION`; the batches of one commit are in order.
        """
        keys = KeyHashes.concat([self._hashes(actions.adds), self._hashes(actions.removes)])
        codes, files = keys.factorize()
        newest = newest_mentions(codes, values_of(actions, POSITION))
        return Batch(actions, codes, files, newest)

    def survivors(self, batch: Batch) -> FileActions:
        """The actions of a batch that no newer action overrides.

        If a commit has several actions for one file, the last one is used, and a `DeltaWarning`
        reports the first such case.

        Args:
            batch: its actions must be older than those of all batches before.

        Returns:
            The actions without `VERSION` and `POSITION`.

        Raises:
            CorruptLogError: a compaction has several actions for one file.
        """
        known = self._mentioned_before(batch)
        wins = np.zeros(len(batch.codes), np.bool_)
        wins[batch.newest.compress(~known)] = True
        return filter_actions(_without_log_positions(batch.actions), wins)

    def survivors_of_base(self, rows: pa.Table) -> pa.Table:
        """The rows of the checkpoint, adds or removes, whose files no commit mentions."""
        if not len(self._seen) or not rows.num_rows:
            return rows
        keys = self._hashes(rows)
        order = keys.order()
        known = np.empty(len(keys), np.bool_)
        known[order] = self._seen.contains(keys.pick(order))
        return rows.filter(bool_array(~known)) if known.any() else rows

    def _hashes(self, actions: pa.Table) -> KeyHashes:
        return self._hasher.hashes(file_keys(actions, table=self._table))

    def _mentioned_before(self, batch: Batch) -> BoolVector:
        """Whether newer batches mention each file. This batch is recorded for the next ones."""
        # One warning about a contradictory commit is enough, but every compaction must be checked.
        if (self._warned and not self._compactions) or not len(batch.codes):
            return self._seen.add(batch.files) >= 0
        versions = values_of(batch.actions, VERSION)
        rows = contradictions(batch.codes, versions)
        oldest, newest = int(versions.min()), int(versions.max())
        if oldest == newest:
            first_key, of_oldest = len(self._seen), None
            numbers = self._seen.add(batch.files)
        else:
            # The oldest commit may continue in the next batch. Its files come last, so they have
            # the numbers from the first of them on.
            of_oldest = _mentioned(batch, versions == oldest)
            numbers = np.empty(len(batch.files), np.int64)
            numbers[~of_oldest] = self._seen.add(batch.files.pick(~of_oldest))
            first_key = len(self._seen)
            numbers[of_oldest] = self._seen.add(batch.files.pick(of_oldest))
        known = numbers >= 0
        if newest == self._commit and known.any():
            rows = np.concatenate([rows, self._second_mentions(batch, versions, numbers)])
        if len(rows):
            self._report(batch, rows)
            if not self._compactions:
                self._known_keys = SeenKeys()
                return known
        if oldest != self._commit:
            self._commit, self._first_key, self._known_keys = oldest, first_key, SeenKeys()
        if known.any():
            again = known if of_oldest is None else known & of_oldest
            self._known_keys.add(batch.files.pick(again))
        return known

    def _report(self, batch: Batch, rows: Int64Vector) -> None:
        """Refuse a compaction that contradicts itself; warn about the first commit that does."""
        check_contradictions(batch.actions, rows, table=self._table, compactions=self._compactions)
        if not self._warned:
            warn_of_contradiction(batch.actions, int(rows[0]), table=self._table)
            self._warned = True

    def _second_mentions(
        self, batch: Batch, versions: Int64Vector, numbers: Int64Vector
    ) -> Int64Vector:
        """The actions about files for which a batch before has an action of the same commit.

        Args:
            batch: its newest commit is the oldest one of the batch before.
            versions: the versions of its actions.
            numbers: the numbers, among all keys, of its files that were known.
        """
        known = np.flatnonzero((numbers >= 0) & _mentioned(batch, versions == self._commit))
        twice = numbers[known] >= self._first_key
        twice |= self._known_keys.contains(batch.files.pick(known))
        files = known[twice]
        return batch.newest[files]


def _without_log_positions(actions: FileActions) -> FileActions:
    """Actions without their positions in the log, which are no longer needed."""
    columns = [VERSION, POSITION]
    return FileActions(actions.adds.drop_columns(columns), actions.removes.drop_columns(columns))


def _mentioned(batch: Batch, actions: BoolVector) -> BoolVector:
    """Whether each file has one of the given actions."""
    mentioned = np.zeros(len(batch.files), np.bool_)
    mentioned[batch.codes[actions]] = True
    return mentioned
