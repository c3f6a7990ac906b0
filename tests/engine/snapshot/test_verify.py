"""Versions against their checksums: the corpus's agree, and every wrong field is reported."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from airflow_delta.engine import DeltaTable
from airflow_delta.engine.errors import CorruptLogError
from airflow_delta.engine.snapshot.verify import Difference
from tests.conftest import golden_manifest
from tests.log_builder import add, metadata, write_commit, write_table

EDITED = {("cdc_ict_table", 1): ("inCommitTimestampOpt", 1783874206883, 1683874206883)}
"""The corpus has one commit whose in-commit timestamp was changed after its checksum was written."""


def crc_path(root: Path, version: int) -> Path:
    return root / "_delta_log" / f"{version:020}.crc"


def test_all_golden_checksums_agree_with_their_versions(
    golden_case: Callable[[str], Path],
) -> None:
    found = 0
    for name in (case["name"] for case in golden_manifest()):
        root = golden_case(name)
        for path in sorted((root / "_delta_log").glob("0*.crc")):
            version = int(path.stem)
            result = DeltaTable(str(root)).snapshot(version=version).verify()
            wrong = EDITED.get((name, version))
            assert result.differences == (() if wrong is None else (Difference(*wrong),)), path
            assert told_by(path) - set(result.checked) <= UNCHECKED, path
            found += 1
    assert found == 105


UNCHECKED = {"numTransactions", "txnId"}
"""A field of early writers that the specification lacks, and one that needs a commitInfo."""


def told_by(path: Path) -> set[str]:
    """The fields of a checksum, by their newest names."""
    fields = {key for key, value in json.loads(path.read_text()).items() if value is not None}
    return {"fileSizeHistogram" if field == "histogramOpt" else field for field in fields}


TABLE, VERSION = "table_with_deletion_logs", 4
"""A golden version whose checksum contains files, deletion vectors and histograms."""


def edited(
    root: Path, version: int, change: Callable[[dict[str, Any]], object]
) -> tuple[Difference, ...]:
    """The differences after a change of a checksum file."""
    path = crc_path(root, version)
    checksum = json.loads(path.read_text())
    change(checksum)
    path.write_text(json.dumps(checksum))
    return DeltaTable(str(root)).snapshot(version=version).verify().differences


@pytest.mark.parametrize(
    "field",
    [
        "tableSizeBytes",
        "numFiles",
        "numMetadata",
        "numProtocol",
        "numDeletedRecordsOpt",
        "numDeletionVectorsOpt",
    ],
)
def test_a_wrong_number_is_told(golden_copy: Callable[[str], Path], field: str) -> None:
    was: dict[str, int] = {}

    def change(checksum: dict[str, Any]) -> None:
        was[field] = checksum[field]
        checksum[field] += 1

    differences = edited(golden_copy(TABLE), VERSION, change)
    assert differences == (Difference(field, was[field] + 1, was[field]),)


CHANGES: dict[str, Callable[[dict[str, Any]], object]] = {
    "metadata": lambda crc: crc["metadata"].update(name="other"),
    "protocol": lambda crc: crc["protocol"].update(minReaderVersion=1),
    "txnId": lambda crc: crc.update(txnId="other"),
    "inCommitTimestampOpt": lambda crc: crc.update(inCommitTimestampOpt=1),
    "setTransactions[x]": lambda crc: crc.update(setTransactions=[{"appId": "x", "version": 1}]),
    "domainMetadata[x]": lambda crc: crc.update(
        domainMetadata=[{"domain": "x", "configuration": "", "removed": False}]
    ),
    "fileSizeHistogram": lambda crc: crc["histogramOpt"]["totalBytes"].reverse(),
    "deletedRecordCountsHistogramOpt": lambda crc: crc["deletedRecordCountsHistogramOpt"][
        "deletedRecordCounts"
    ].reverse(),
}


@pytest.mark.parametrize("what", CHANGES)
def test_a_wrong_field_is_told(golden_copy: Callable[[str], Path], what: str) -> None:
    differences = edited(golden_copy(TABLE), VERSION, CHANGES[what])
    assert [difference.what for difference in differences] == [what]


def test_each_file_that_differs_is_told(golden_copy: Callable[[str], Path]) -> None:
    def change(checksum: dict[str, Any]) -> None:
        (file,) = checksum["allFiles"]
        checksum["allFiles"] = [{**file, "size": 1}, {**file, "path": "other"}]

    found = edited(golden_copy(TABLE), VERSION, change)
    assert [difference.what.partition(" ")[0] for difference in found] == [
        "allFiles[part-00000-cb251d5e-b665-437a-a9a7-fbfc5137c77d.c000.snappy.parquet",
        "allFiles[other",
    ]
    assert found[1].found is None


def test_statistics_are_compared_by_content(golden_copy: Callable[[str], Path]) -> None:
    def respelt(checksum: dict[str, Any]) -> None:
        (file,) = checksum["allFiles"]
        stats = json.loads(file["stats"])
        file["stats"] = json.dumps({**stats, "none": None}, indent=1, sort_keys=True)

    def changed(checksum: dict[str, Any]) -> None:
        (file,) = checksum["allFiles"]
        file["stats"] = file["stats"].replace('"numRecords":100', '"numRecords":101')

    assert edited(golden_copy(TABLE), VERSION, respelt) == ()
    assert len(edited(golden_copy(TABLE), VERSION, changed)) == 1


def checked_table(root: Path, checksum: dict[str, Any], **options: Any) -> DeltaTable:
    """A table of one file of 1 byte and a transaction long ago, with a checksum."""
    old = {"txn": {"appId": "old", "version": 3, "lastUpdated": 1}}
    write_table(root, [add("a"), old], **options)
    totals = {"tableSizeBytes": 1, "numFiles": 1, "numMetadata": 1, "numProtocol": 1}
    crc_path(root, 0).write_text(json.dumps({**totals, **checksum}))
    return DeltaTable(str(root))


def test_without_a_checksum_nothing_is_checked(tmp_path: Path) -> None:
    table = checked_table(tmp_path, {})
    write_commit(tmp_path, 1, add("b"))
    assert table.snapshot(version=0).verify().checked == (
        "tableSizeBytes",
        "numFiles",
        "numMetadata",
        "numProtocol",
    )
    result = table.snapshot().verify()
    assert (result.version, result.checked, result.differences) == (1, (), ())


@pytest.mark.parametrize(
    ("retention", "recorded", "differences"),
    [
        (None, [], 1),
        (None, [{"appId": "old", "version": 3, "lastUpdated": 1}], 0),
        ("interval 1 day", [], 0),
        ("interval 1 day", [{"appId": "old", "version": 3, "lastUpdated": 1}], 0),
        ("interval 1 day", [{"appId": "old", "version": 2, "lastUpdated": 1}], 1),
    ],
)
def test_only_expired_transactions_may_be_missing(
    tmp_path: Path, retention: str | None, recorded: list[dict[str, Any]], differences: int
) -> None:
    properties = {} if retention is None else {"delta.setTransactionRetentionDuration": retention}
    table = checked_table(tmp_path, {"setTransactions": recorded}, configuration=properties)
    assert len(table.snapshot().verify().differences) == differences


def test_a_commit_that_cleanup_took_is_not_checked(tmp_path: Path) -> None:
    table = checked_table(tmp_path, {"txnId": "x", "inCommitTimestampOpt": 5})
    assert [d.what for d in table.snapshot().verify().differences] == ["inCommitTimestampOpt"]
    table.checkpoint()
    (tmp_path / "_delta_log" / f"{0:020}.json").unlink()
    result = table.snapshot().verify()
    assert "inCommitTimestampOpt" not in result.checked
    assert result.differences == ()


def test_an_in_commit_timestamp_that_the_checksum_lacks_is_told(tmp_path: Path) -> None:
    protocol = {
        "minReaderVersion": 1,
        "minWriterVersion": 7,
        "writerFeatures": ["inCommitTimestamp"],
    }
    write_commit(
        tmp_path,
        0,
        {"commitInfo": {"inCommitTimestamp": 7}},
        {"protocol": protocol},
        metadata(configuration={"delta.enableInCommitTimestamps": "true"}),
    )
    totals = {"tableSizeBytes": 0, "numFiles": 0, "numMetadata": 1, "numProtocol": 1}
    crc_path(tmp_path, 0).write_text(json.dumps(totals))
    result = DeltaTable(str(tmp_path)).snapshot().verify()
    assert result.differences == (Difference("inCommitTimestampOpt", None, 7),)


@pytest.mark.parametrize(("deleted", "bin_"), [(0, 0), (1, 1), (9, 1), (10, 2), (99, 2), (100, 3)])
@pytest.mark.parametrize("scale", [1, 100_000])
def test_the_bins_of_deleted_records(tmp_path: Path, deleted: int, bin_: int, scale: int) -> None:
    """Bins: 0, 1 to 9, 10 to 99, … 10,000,000 to 2³¹ - 2, and the rest."""
    cardinality = deleted * scale
    bin_ = bin_ + 5 if scale > 1 and deleted else bin_
    vector = {
        "storageType": "i",
        "pathOrInlineDv": "x",
        "sizeInBytes": 1,
        "cardinality": cardinality,
    }
    counts = [0] * 10
    counts[bin_] = 1
    histogram = {"deletedRecordCountsHistogramOpt": {"deletedRecordCounts": counts}}
    table = checked_table(tmp_path, histogram)
    write_commit(
        tmp_path,
        0,
        *[{"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}, metadata()],
        add("a", deletionVector=vector),
    )
    assert table.snapshot().verify().differences == ()


@pytest.mark.parametrize(
    "boundaries", [None, [], [1, 2], [0, 2, 1], [0, "1"]], ids=["none", "no", "1", "desc", "text"]
)
def test_a_histogram_that_is_none_is_a_typed_error(tmp_path: Path, boundaries: Any) -> None:
    histogram = {"sortedBinBoundaries": boundaries, "fileCounts": [], "totalBytes": []}
    table = checked_table(tmp_path, {"fileSizeHistogram": histogram})
    with pytest.raises(CorruptLogError, match="sortedBinBoundaries") as caught:
        table.snapshot().verify()
    assert (caught.value.version, caught.value.path) == (0, f"_delta_log/{0:020}.crc")


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b'{"numFiles":1}', b"\xff"])
def test_a_file_that_is_no_checksum_is_a_typed_error(tmp_path: Path, content: bytes) -> None:
    table = checked_table(tmp_path, {})
    crc_path(tmp_path, 0).write_bytes(content)
    with pytest.raises(CorruptLogError, match="delete it"):
        table.snapshot().verify()


def test_files_that_are_no_adds_are_a_typed_error(tmp_path: Path) -> None:
    table = checked_table(tmp_path, {"allFiles": [{"path": "a"}]})
    with pytest.raises(CorruptLogError, match=r"allFiles.*delete it") as caught:
        table.snapshot().verify()
    assert caught.value.version == 0
