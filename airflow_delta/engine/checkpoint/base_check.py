"""Check the previous checkpoint before a new one is made from it: no file missing, and none twice.

A checkpoint of this engine has a version checksum with the number of its files and their sizes.
Only these totals are compared. For a checkpoint of another writer, or one without a checksum, all
keys are compared with each other (`distinct_files`); that takes the time to decode them, and some
thirty bytes of memory for each. Another writer's checksum proves nothing about its own checkpoint,
because it may have counted a file twice. The new checkpoint is written by this engine, so the long
check happens only once.
"""

from __future__ import annotations

from airflow_delta.engine.checkpoint.write import ExpectedFiles
from airflow_delta.engine.errors import CorruptLogError
from airflow_delta.engine.model.sizes import size_text

__all__ = ["check_expected_files"]


def check_expected_files(
    expected: ExpectedFiles, *, num_adds: int, adds_size: int, path: str, version: int, table: str
) -> None:
    """Compare the live files of a checkpoint with the checksum of its version.

    Args:
        expected: see `ExpectedFiles`.
        num_adds: the number of live files.
        adds_size: the sum of their sizes, in bytes.
        path: the path of the checkpoint, for errors.
        version: its version, for errors.
        table: the table's location, for errors.

    Raises:
        CorruptLogError: they differ.
    """
    totals = (expected.num_adds, expected.adds_size)
    if expected.num_adds is None or expected.adds_size is None:
        return
    if (num_adds, adds_size) != totals:
        raise CorruptLogError(
            f"{path} is damaged: it holds {num_adds:,} live files of {size_text(adds_size)}, and by "
            f"{expected.checksum} version {version} has {expected.num_adds:,} of "
            f"{size_text(expected.adds_size)}. If the checkpoint is right, delete the other file, which is "
            "optional; if it isn't, an earlier one, or the commits if they still exist, may have the right "
            "content",
            table=table,
            path=path,
            version=version,
            found=(num_adds, adds_size),
            expected=totals,
        )
