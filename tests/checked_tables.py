"""A table in good health, as files, and what a check finds when one thing about it is changed.

The history is small and has one of everything. Each test lays it out in files, damages these in one way,
and says which findings there must be; of `healthy` files there is none.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Collection, Sequence
from typing import Any

from airflow_delta.engine.commit.owner import CommitOwner
from airflow_delta.engine.commit.registry import CommitOwners
from airflow_delta.engine.deletion_vectors import z85
from airflow_delta.engine.maintenance.check.checking import check_table
from airflow_delta.engine.maintenance.check.findings import CheckReport, Depth, Finding
from airflow_delta.engine.storage.file_access import FileAccess
from tests.laws.histories import protocol
from tests.log_builder import add, metadata, remove
from tests.table_builder import (
    FAR_FUTURE_MS,
    Action,
    Files,
    MemoryTable,
    State,
    checksum,
    classic_checkpoint,
    commits,
    hint,
    states,
)

__all__ = [
    "HISTORY",
    "LAST",
    "MIDDLE",
    "STATES",
    "VECTOR",
    "VECTOR_FILE",
    "checked",
    "codes",
    "data_of",
    "file",
    "healthy",
    "only",
    "removed",
]

_UUID = uuid.UUID("d2c639aa-8816-431a-aaf6-d3fe2512ff61")
VECTOR: Action = {
    "storageType": "u",
    "pathOrInlineDv": z85.encode(_UUID.bytes),
    "offset": 1,
    "sizeInBytes": 34,
    "cardinality": 2,
}
VECTOR_FILE = f"deletion_vector_{_UUID}.bin"
"""One byte for the version, then size, content and CRC-32: 43 bytes."""

SIZE = 100
NOW_MS = time.time_ns() // 1_000_000


def file(name: str, **fields: Any) -> Action:
    """An add of a file in the partition ``part=x``."""
    base = {
        "partitionValues": {"part": "x"},
        "size": SIZE,
        "stats": json.dumps({"numRecords": 9}),
        "modificationTime": NOW_MS,
    }
    return add(f"part=x/{name}.parquet", **{**base, **fields})


def removed(name: str, **fields: Any) -> Action:
    """A remove of such a file, whose tombstone doesn't expire."""
    return remove(f"part=x/{name}.parquet", **{"deletionTimestamp": FAR_FUTURE_MS, **fields})


HISTORY: Sequence[Sequence[Action]] = (
    (protocol(set()), metadata(partition_columns=["part"]), file("a")),
    (file("b%20b"), file("gone")),
    (removed("gone"), {"txn": {"appId": "app", "version": 1}}),
    ({"domainMetadata": {"domain": "d", "configuration": "{}", "removed": False}}, file("c")),
    (removed("a"), file("a", deletionVector=VECTOR)),
    (file("e"),),
)
LAST, MIDDLE = 5, 3
STATES = states(HISTORY)


def data_of(state: State) -> Files:
    """The live files of a state, with the sizes that the log tells."""
    from urllib.parse import unquote

    found = {unquote(path): bytes(each["size"]) for (path, _), each in state.files.items()}
    if any(vector for _, vector in state.files):
        found[VECTOR_FILE] = bytes(43)
    return found


def healthy(*, checkpoint: int | None = MIDDLE) -> Files:
    """The history with a checkpoint, a hint to it, a checksum of the newest version, and all data."""
    files = {**commits(HISTORY), **data_of(STATES[LAST]), **checksum(STATES[LAST], LAST)}
    if checkpoint is not None:
        files |= classic_checkpoint(STATES[checkpoint], checkpoint)
        files |= hint(checkpoint)
    return files


def checked(
    files: Files,
    *,
    depth: Depth = "files",
    owners: dict[str, CommitOwner] | None = None,
    now_ms: int | None = None,
) -> CheckReport:
    """What a check of some files finds. It must change none of them."""
    with MemoryTable(files) as table:
        report = check_table(
            FileAccess(table.storage), CommitOwners(owners), depth=depth, now_ms=now_ms
        )
        assert table.files() == files, "a check has changed something"
    return report


def codes(report: CheckReport, but: Collection[str] = ()) -> dict[str, str]:
    """The severity of each finding by its code, but for some codes."""
    return {found.code: found.severity for found in report.findings if found.code not in but}


def only(report: CheckReport, code: str) -> Finding:
    """The one finding of a code."""
    (found,) = [each for each in report.findings if each.code == code]
    assert found.remedy, "a finding must say what repairs it"
    return found
