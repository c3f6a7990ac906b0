from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from airflow_delta.engine.errors import CorruptLogError
from airflow_delta.engine.log.files import checksum_path
from airflow_delta.engine.log.version_checksum import (
    VersionChecksum,
    read_checksum,
    write_checksum,
)
from airflow_delta.engine.model.actions import Protocol, Txn
from airflow_delta.engine.storage.memory import MemoryStorage
from tests.engine.log.logs import make_log

REQUIRED = {"tableSizeBytes": 10, "numFiles": 2, "numMetadata": 1, "numProtocol": 1}


def holding(content: bytes) -> MemoryStorage:
    storage = make_log([])
    storage.replace(checksum_path(3), content)
    return storage


def test_none_is_ordinary():
    assert read_checksum(make_log([]), 3) is None


def test_what_is_not_told_is_none_and_not_empty():
    checksum = read_checksum(holding(json.dumps({**REQUIRED, "domainMetadata": []}).encode()), 3)
    assert checksum == VersionChecksum(table_size_bytes=10, num_files=2, domain_metadata=())


def test_the_histogram_is_read_by_its_old_name_too():
    old, new = {"fileCounts": [1]}, {"fileCounts": [2]}
    for fields, expected in [
        ({"histogramOpt": old}, old),
        ({"fileSizeHistogram": new}, new),
        ({"fileSizeHistogram": new, "histogramOpt": old}, new),
        ({"fileSizeHistogram": None, "histogramOpt": old}, old),
    ]:
        checksum = read_checksum(holding(json.dumps({**REQUIRED, **fields}).encode()), 3)
        assert checksum is not None
        assert checksum.file_size_histogram == expected


def comparable(value: Any) -> Any:
    """Without nulls, which say the same as nothing, and without the order of feature names."""
    if isinstance(value, dict):
        return {
            key: sorted(item) if key.endswith("Features") else comparable(item)
            for key, item in value.items()
            if item is not None
        }
    return [comparable(item) for item in value] if isinstance(value, list) else value


RENAMED = {"histogramOpt": "fileSizeHistogram"}
OBSOLETE = {"numTransactions"}


def test_checksums_of_spark_are_read_and_written_back_without_loss(golden_root: Path):
    seen = set()
    for archive in sorted((golden_root / "cases").glob("*.tar.gz")):
        with tarfile.open(archive) as tar:
            for member in tar:
                if not member.name.endswith(".crc") or "/." in member.name:
                    continue
                file = tar.extractfile(member)
                assert file is not None
                content = file.read()
                checksum = read_checksum(holding(content), 3)
                assert checksum is not None
                expected = {
                    RENAMED.get(key, key): value
                    for key, value in comparable(json.loads(content)).items()
                    if key not in OBSOLETE
                }
                found = comparable(json.loads(json.dumps(checksum.to_json())))
                assert found == expected, f"{archive.name}: {member.name}"
                seen |= set(expected)
    assert {"allFiles", "setTransactions", "domainMetadata", "inCommitTimestampOpt"} < seen


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "Expecting value"),
        (b"{bad", "Expecting property name"),
        (b"\xff", "decode"),
        (b"[1]", "expected an object"),
        (b"{}", "tableSizeBytes"),
        (json.dumps({**REQUIRED, "numFiles": "2"}).encode(), "numFiles"),
        (json.dumps({**REQUIRED, "metadata": []}).encode(), "metadata"),
        (json.dumps({**REQUIRED, "metadata": {}}).encode(), "metadata"),
        (json.dumps({**REQUIRED, "setTransactions": {}}).encode(), "setTransactions"),
        (json.dumps({**REQUIRED, "setTransactions": [{}]}).encode(), r"setTransactions\[0\]"),
        (json.dumps({**REQUIRED, "allFiles": [1]}).encode(), r"allFiles\[0\]"),
        (json.dumps({**REQUIRED, "fileSizeHistogram": 1}).encode(), "fileSizeHistogram"),
    ],
)
def test_what_is_no_checksum_is_an_error_that_says_so(content, message):
    with pytest.raises(CorruptLogError, match=message) as caught:
        read_checksum(holding(content), 3)
    assert (caught.value.version, caught.value.path) == (3, checksum_path(3))


def test_writing_never_overwrites():
    storage = make_log([])
    first = VersionChecksum(
        table_size_bytes=1,
        num_files=1,
        protocol=Protocol(1, 2),
        set_transactions=(Txn("app", 4, None),),
    )
    assert write_checksum(storage, 3, first)
    assert not write_checksum(storage, 3, VersionChecksum(table_size_bytes=2, num_files=2))
    assert read_checksum(storage, 3) == first
