"""Find temporary files of writers that were killed or lost their connection.

===================================================  ====================================================
``.<name>.tmp`` in the log, ``_commits``             of this engine, and of Hadoop's file systems
``_commit_<uuid>.json.tmp``                          of delta-rs
``.tmp/<version>.json.<uuid>``                       of Delta Spark's store for S3 with DynamoDB
``.<any of these>.crc``                              Hadoop's checksum of one
===================================================  ====================================================

Nobody reads them once their writer is gone. A file counts as abandoned if it is a day old, as a sidecar
does (PROTOCOL.md, "Metadata Cleanup", step 5), and if the version in its name, if any, is taken: with
DynamoDB, a reader completes the newest commit of a dead writer from such a file. Files with other names
stay.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from airflow_delta.engine.log.files import LOG_DIRECTORY
from airflow_delta.engine.maintenance.metadata_cleanup.expired_files import FileGroup
from airflow_delta.engine.storage.base import FileInfo, Storage

__all__ = ["UnfinishedFiles", "find_unfinished_files"]

_DIRECTORY = f"{LOG_DIRECTORY}/.tmp"
_COMMITS = "_commit_"
_HIDDEN = re.compile(r"\..*\.tmp(\.crc)?")
_COMMIT = re.compile(r"_commit_.*\.json\.tmp")
_UUID = "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_IN_DIRECTORY = re.compile(rf"\.*[0-9]{{20}}\.[a-z.]+\.{_UUID}(\.crc)?")
_VERSION = re.compile(r"\.*([0-9]{20})\.")


@dataclass(frozen=True, slots=True)
class UnfinishedFiles:
    """The temporary files of writers.

    Attributes:
        abandoned: what is to be deleted.
        kept: how many files a writer may still need.
    """

    abandoned: FileGroup
    kept: int


def find_unfinished_files(
    storage: Storage, hidden: Iterable[FileInfo], *, latest: int, before_ms: int
) -> UnfinishedFiles:
    """Find the temporary files of writers in a log.

    Args:
        storage: where the table is.
        hidden: the files in the log's directories whose names begin with a dot.
        latest: the newest version of the table.
        before_ms: a writer may still need files written after this time, in epoch ms.

    Raises:
        StorageError: the store failed.
    """
    found = [info for info in hidden if _HIDDEN.fullmatch(info.name)]
    for info in storage.list(LOG_DIRECTORY, start_after=_COMMITS):
        if not info.name.startswith(_COMMITS):
            break
        if _COMMIT.fullmatch(info.name):
            found.append(info)
    found += [info for info in storage.list(_DIRECTORY) if _IN_DIRECTORY.fullmatch(info.name)]
    abandoned = [
        (version, info)
        for info, version in ((info, _parse_version(info.name)) for info in found)
        if info.modified_ms <= before_ms and (version is None or version <= latest)
    ]
    return UnfinishedFiles(
        FileGroup.of("files in the making", abandoned), len(found) - len(abandoned)
    )


def _parse_version(name: str) -> int | None:
    match = _VERSION.match(name)
    return None if match is None else int(match[1])
