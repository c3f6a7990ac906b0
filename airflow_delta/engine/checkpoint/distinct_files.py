"""Check that a checkpoint holds each file once, as it must (PROTOCOL.md, "Action Reconciliation").

Otherwise readers would count a file twice that is in two rows, parts or sidecars. So the keys of
files are compared while the files of a table are listed, at little cost (`each_file_once`). All
keys of a checkpoint are compared before a new checkpoint is made from it, and before commits are
deleted that could replace it (`DistinctFiles`).
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
    """Checks that no two actions of a checkpoint are about one file. For use by several threads.

    Args:
        path: the path of the checkpoint, for errors.
        version: its version, for errors.
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
        """Add actions.

        Args:
            actions: adds or removes, with at least ``path`` and ``deletionVector``.

        Raises:
            CorruptLogError: two actions, in this call or the calls before, are about the same file.
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
    """Pass on the adds of a checkpoint, and check that no two are about the same file.

    On an error, the caller must discard the rows that it has got. The keys of a few rows are
    compared. Many rows are counted instead, if their number is known. Tombstones aren't checked: a
    duplicate changes no result.

    Args:
        checkpoint: the checkpoint, to read the keys themselves if hashes raise a suspicion.
        rows: its adds, or some of them, with at least ``path`` and ``deletionVector``.
        table: the table's location, for errors.
        count: gives the number of rows that there must be, for example from the version checksum;
            None if it isn't known. Called once, if there are many rows.

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
"""Comparing so many keys takes no noticeable time."""


def _compare_keys(checkpoint: CheckpointReader, *, table: str) -> None:
    distinct = DistinctFiles(path=checkpoint.path, version=checkpoint.version, table=table)
    columns = ("path", "deletionVector")
    for rows in checkpoint.adds(columns):
        distinct.meet(rows)


def holds_twice(file: str, *, path: str, version: int, table: str) -> CorruptLogError:
    """Create the error about a checkpoint that holds a file twice.

    Args:
        file: the path of the file, as in the actions.
        path: the path of the checkpoint.
        version: its version.
        table: the table's location.
    """
    return CorruptLogError(
        f"{path} is damaged: it holds the file {file!r} twice. An earlier checkpoint, or the commits "
        "if they still exist, may have the right content",
        table=table,
        path=path,
        version=version,
        file=file,
    )
