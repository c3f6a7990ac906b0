"""Whether a checkpoint holds each file once, as it must (PROTOCOL.md, "Action Reconciliation").

Readers would count a file twice that is in two rows, parts or sidecars. So the keys of files are compared
while the files of a table are listed, at little cost (`each_file_once`). All keys of a checkpoint are
compared before a new checkpoint is made from it, and before the commits are deleted that could replace it
(`DistinctFiles`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from threading import Lock

import numpy as np
import pyarrow as pa

from airflow_delta.engine.checkpoint.read import CheckpointReader
from airflow_delta.engine.errors import CorruptLogError
from airflow_delta.engine.replay.file_key import file_keys
from airflow_delta.engine.replay.key_hashes import KeyHasher
from airflow_delta.engine.replay.repeated_keys import RepeatedKeys
from airflow_delta.engine.replay.seen_keys import SeenKeys

__all__ = ["DistinctFiles", "each_file_once", "holds_twice"]


class DistinctFiles:
    """Makes sure that no two actions of a checkpoint are about one file. For use by several threads.

    Args:
        path: of the checkpoint, for errors.
        version: the version of the table that it holds, for errors.
        table: the table's location, for errors.
    """

    def __init__(self, *, path: str, version: int, table: str) -> None:
        self._path = path
        self._version = version
        self._table = table
        self._hasher = KeyHasher()
        self._seen = SeenKeys()
        self._lock = Lock()

    def meet(self, actions: pa.Table) -> None:
        """Take in actions.

        Args:
            actions: adds or removes, with at least ``path`` and ``deletionVector``.

        Raises:
            CorruptLogError: there has been one about the same file before, or among them.
        """
        if not actions.num_rows:
            return
        hashes = self._hasher.hashes(file_keys(actions, table=self._table))
        numbers, keys = hashes.factorize()
        twice = np.bincount(numbers, minlength=len(keys)) > 1
        with self._lock:
            twice |= self._seen.add(keys) >= 0
        if twice.any():
            row = int(np.flatnonzero(twice[numbers])[0])
            file = actions["path"][row].as_py()
            raise holds_twice(file, path=self._path, version=self._version, table=self._table)


def each_file_once(
    checkpoint: CheckpointReader,
    rows: Iterable[pa.Table],
    *,
    table: str,
    count: Callable[[], int | None] = lambda: None,
) -> Iterator[pa.Table]:
    """Adds of a checkpoint as they come, after a look at whether one is about a file of another.

    If there is one, the caller must throw away the rows it has got. The keys of few rows are compared; many
    rows are counted, where it is known how many there must be. Tombstones aren't looked at: one that is
    there twice changes no answer.

    Args:
        checkpoint: the checkpoint, to look at the keys themselves where hashes raise a suspicion.
        rows: its adds, or some of them, with at least ``path`` and ``deletionVector``.
        table: the table's location, for errors.
        count: gives the number of rows that there must be, from the version checksum say; None where it
            isn't known. Called once, if there are many rows.

    Raises:
        CorruptLogError: the checkpoint has two adds of one file.
    """
    repeated, expected, found, compared = RepeatedKeys(), None, 0, False
    for some in rows:
        if found <= _FEW < found + some.num_rows:
            expected = count()
        found += some.num_rows
        if not compared:
            compared = (
                repeated.add(file_keys(some, table=table)) if expected is None else found > expected
            )
            if compared:
                _compare_keys(checkpoint, table=table)
        yield some
    if not compared and (repeated.any() if expected is None else found != expected):
        _compare_keys(checkpoint, table=table)


_FEW = 50_000
"""So many keys are compared in no time."""


def _compare_keys(checkpoint: CheckpointReader, *, table: str) -> None:
    distinct = DistinctFiles(path=checkpoint.path, version=checkpoint.version, table=table)
    columns = ("path", "deletionVector")
    for rows in checkpoint.adds(columns):
        distinct.meet(rows)


def holds_twice(file: str, *, path: str, version: int, table: str) -> CorruptLogError:
    """The error that tells that a checkpoint holds a file twice.

    Args:
        file: the path of the file, as in the actions.
        path: of the checkpoint.
        version: the version of the table that it holds.
        table: the table's location.
    """
    return CorruptLogError(
        f"{path} is damaged: it holds the file {file!r} twice. An earlier checkpoint, or the commits "
        "where they are still there, may hold what it should",
        table=table,
        path=path,
        version=version,
        file=file,
    )
