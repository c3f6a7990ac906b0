"""Don't take over from the previous checkpoint what can't be true: a file that it holds twice, or not.

A checkpoint holds each file once, as an add or as a remove (PROTOCOL.md, "Action Reconciliation"). Were one
in two of its parts or sidecars, whoever goes through them would count it twice, and whoever makes the next
checkpoint from it would pass it on. Who writes a checkpoint of ours knows what he writes. Of a base that
isn't known so well there are two ways to find out:

* the version checksum of its version, where there is one, tells how many files there are and how large.
  Its writer has counted them in another way, and it is left behind with each checkpoint of ours;
* otherwise all keys of the base are looked at: `DistinctFiles`. It takes the time to decode them, and some
  thirty bytes of memory for each. The new checkpoint leaves a checksum, so that happens once.
"""

from __future__ import annotations

from threading import Lock

import numpy as np
import pyarrow as pa

from airflow_delta.engine.checkpoint.write import ExpectedFiles
from airflow_delta.engine.errors import CorruptLogError
from airflow_delta.engine.replay.file_key import file_keys
from airflow_delta.engine.replay.key_hashes import KeyHasher
from airflow_delta.engine.replay.seen_keys import SeenKeys

__all__ = ["DistinctFiles", "check_told", "holds_twice"]


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
        numbers, keys = hashes.numbered()
        twice = np.bincount(numbers, minlength=len(keys)) > 1
        with self._lock:
            twice |= self._seen.add(keys) >= 0
        if twice.any():
            row = int(np.flatnonzero(twice[numbers])[0])
            file = actions["path"][row].as_py()
            raise holds_twice(file, path=self._path, version=self._version, table=self._table)


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


def check_told(
    told: ExpectedFiles, *, num_adds: int, adds_size: int, path: str, version: int, table: str
) -> None:
    """Compare the live files of a checkpoint with what its version's checksum tells.

    Args:
        told: see `ExpectedFiles`.
        num_adds: how many there are.
        adds_size: their sizes summed up, in bytes.
        path: of the checkpoint, for errors.
        version: the version of the table that it holds, for errors.
        table: the table's location, for errors.

    Raises:
        CorruptLogError: they differ.
    """
    expected = (told.num_adds, told.adds_size)
    if None not in expected and (num_adds, adds_size) != expected:
        raise CorruptLogError(
            f"{path} is damaged: it holds {num_adds} live files of {adds_size} bytes, and by "
            f"{told.checksum} version {version} has {expected[0]} of {expected[1]} bytes. If the "
            "checkpoint is right, delete the other file, which is optional; if it isn't, an earlier one, "
            "or the commits where they are still there, may hold what it should",
            table=table,
            path=path,
            version=version,
            found=(num_adds, adds_size),
            expected=expected,
        )
