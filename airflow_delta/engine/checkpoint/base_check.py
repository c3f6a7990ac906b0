"""Don't take over from the previous checkpoint what can't be true: a file that it holds twice, or not.

A base that this engine has written isn't read through. It came with a version checksum, which has the
number of its files and their sizes, and these are compared. In a base of another writer, or one without a
checksum, all keys are compared with each other (`distinct_files`). That takes the time to decode them, and
some thirty bytes of memory for each. A checksum of another writer proves nothing about his own checkpoint:
he may have counted what he wrote twice. The new checkpoint is one of ours, so that happens once.
"""

from __future__ import annotations

from airflow_delta.engine.checkpoint.write import ExpectedFiles
from airflow_delta.engine.errors import CorruptLogError
from airflow_delta.engine.model.sizes import size_text

__all__ = ["check_told"]


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
    if told.num_adds is None or told.adds_size is None:
        return
    if (num_adds, adds_size) != expected:
        raise CorruptLogError(
            f"{path} is damaged: it holds {num_adds:,} live files of {size_text(adds_size)}, and by "
            f"{told.checksum} version {version} has {told.num_adds:,} of {size_text(told.adds_size)}. If "
            "the checkpoint is right, delete the other file, which is optional; if it isn't, an earlier "
            "one, or the commits where they are still there, may hold what it should",
            table=table,
            path=path,
            version=version,
            found=(num_adds, adds_size),
            expected=expected,
        )
