"""The facade, and above all what it says of bad input: typed, naming table, file and remedy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest

from airflow_delta.engine import DeltaTable
from airflow_delta.engine.errors import (
    CommitOwnerUnavailableError,
    CorruptLogError,
    DeltaWarning,
    InvalidArgumentError,
    InvalidTableError,
    TableNotFoundError,
    UnsupportedFeatureError,
    VersionNotFoundError,
)
from tests.log_builder import (
    PROTOCOL,
    add,
    commit_path,
    metadata,
    remove,
    write_commit,
    write_table,
)


def paths(table: DeltaTable, version: int | None = None) -> set[str]:
    return set(table.snapshot(version=version).files(columns=["path"])["path"].to_pylist())


def test_a_table_is_made_without_looking(tmp_path: Path) -> None:
    table = DeltaTable(str(tmp_path / "nowhere"))
    assert table.uri.endswith("nowhere")
    assert not table.exists()


def test_a_missing_table_is_named(tmp_path: Path) -> None:
    with pytest.raises(TableNotFoundError, match="nowhere"):
        DeltaTable(str(tmp_path / "nowhere")).snapshot()


@pytest.mark.parametrize("version", [2, 99])
def test_a_version_after_the_last_is_not_found(tmp_path: Path, version: int) -> None:
    table = DeltaTable(str(write_table(tmp_path, [add("a")], [add("b")])))
    with pytest.raises(VersionNotFoundError, match=str(version)) as caught:
        table.snapshot(version=version)
    assert caught.value.latest == 1


def test_a_version_before_the_first_is_not_found(tmp_path: Path) -> None:
    table = DeltaTable(str(write_table(tmp_path, [add("a")], [add("b")], [add("c")])))
    table.checkpoint(version=1)
    commit_path(tmp_path, 0).unlink()
    assert paths(table) == {"a", "b", "c"}
    with pytest.raises(VersionNotFoundError, match="0") as caught:
        table.snapshot(version=0)
    assert caught.value.earliest == 1


@pytest.mark.parametrize("version", [-1, True, "1", 1.0])
def test_a_version_that_is_none_is_refused(tmp_path: Path, version: object) -> None:
    table = DeltaTable(str(write_table(tmp_path, [add("a")], [add("b")])))
    with pytest.raises(InvalidArgumentError, match="version"):
        table.snapshot(version=version)


def test_a_version_and_a_timestamp_together_are_refused(tmp_path: Path) -> None:
    table = DeltaTable(str(write_table(tmp_path, [add("a")])))
    with pytest.raises(InvalidArgumentError, match="not both"):
        table.snapshot(version=0, timestamp=1)


@pytest.mark.parametrize("text", ["{broken", '{"add":', "[1]", '"text"', '{"add":{"path":1}}'])
def test_a_commit_that_is_not_json_names_file_and_line(tmp_path: Path, text: str) -> None:
    write_table(tmp_path, [add("a")])
    commit_path(tmp_path, 1).write_text(f"{{}}\n{text}\n", encoding="utf-8")
    with pytest.raises(CorruptLogError, match=r"00000000000000000001\.json") as caught:
        DeltaTable(str(tmp_path)).snapshot()
    assert caught.value.version == 1
    assert caught.value.line == 2


def test_a_commit_of_zero_bytes_is_an_error(tmp_path: Path) -> None:
    write_table(tmp_path, [add("a")], [add("b")])
    commit_path(tmp_path, 1).write_bytes(b"")
    table = DeltaTable(str(tmp_path))
    with pytest.raises(CorruptLogError, match=r"00000000000000000001\.json"):
        table.snapshot()
    assert paths(table, version=0) == {"a"}


def test_a_gap_in_the_versions_is_an_error(tmp_path: Path) -> None:
    write_table(tmp_path, [add("a")], [add("b")], [add("c")])
    commit_path(tmp_path, 1).unlink()
    with pytest.raises(CorruptLogError, match="1"):
        DeltaTable(str(tmp_path)).snapshot()


def test_a_truncated_log_is_not_a_missing_table(tmp_path: Path) -> None:
    write_table(tmp_path, [add("a")], [add("b")])
    commit_path(tmp_path, 0).unlink()
    with pytest.raises((CorruptLogError, VersionNotFoundError), match="checkpoint"):
        DeltaTable(str(tmp_path)).snapshot()


@pytest.mark.parametrize(
    ("actions", "missing"), [([PROTOCOL], "metaData"), ([metadata()], "protocol")]
)
def test_a_table_without_protocol_or_metadata_is_corrupt(
    tmp_path: Path, actions: list, missing: str
) -> None:
    write_commit(tmp_path, 0, *actions)
    with pytest.raises(CorruptLogError, match=f"no {missing} action"):
        DeltaTable(str(tmp_path)).snapshot()


def test_an_unknown_reader_feature_is_refused_by_name(tmp_path: Path) -> None:
    protocol = {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": ["novelty"],
        "writerFeatures": ["novelty"],
    }
    write_commit(tmp_path, 0, {"protocol": protocol}, metadata())
    with pytest.raises(UnsupportedFeatureError, match="novelty"):
        DeltaTable(str(tmp_path)).snapshot()


def test_a_managed_table_is_read_with_a_warning_and_not_written(tmp_path: Path) -> None:
    features = ["managedCommit", "inCommitTimestamp"]
    protocol = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": features}
    configuration = {
        "delta.managedCommit.commitOwner": "registry",
        "delta.enableInCommitTimestamps": "true",
    }
    write_commit(
        tmp_path, 0, {"protocol": protocol}, metadata(configuration=configuration), add("a")
    )
    table = DeltaTable(str(tmp_path))
    with pytest.warns(DeltaWarning, match="may be stale: the commit owner 'registry' isn't known"):
        assert paths(table) == {"a"}
    with pytest.raises(CommitOwnerUnavailableError, match="'registry' isn't known"):
        table.transaction("WRITE")


def test_a_partition_column_that_is_no_column_is_invalid(tmp_path: Path) -> None:
    write_table(tmp_path, [add("a")], partition_columns=["nowhere"])
    with pytest.raises(InvalidTableError, match="'nowhere'"):
        _ = DeltaTable(str(tmp_path)).snapshot().schema


def test_files_come_with_the_columns_asked_for(tmp_path: Path) -> None:
    write_table(tmp_path, [add("a", size=5, stats='{"numRecords":3}'), add("b", size=7)])
    snapshot = DeltaTable(str(tmp_path)).snapshot()
    assert snapshot.files(columns=["size", "path"]).to_pydict() == {
        "path": ["a", "b"],
        "size": [5, 7],
    }
    assert snapshot.files()["stats"].to_pylist() == ['{"numRecords":3}', None]
    assert (snapshot.num_files, snapshot.size_in_bytes, snapshot.num_rows) == (2, 12, None)
    with pytest.raises(InvalidArgumentError, match="nonsense"):
        snapshot.files(columns=["nonsense"])
    with pytest.raises(InvalidArgumentError, match="unknown columns 'path': expected a list"):
        snapshot.files(columns="path")
    with pytest.raises(InvalidArgumentError, match="unknown columns 'id > 1': expected a list"):
        snapshot.files("id > 1")


@pytest.mark.parametrize("predicate", [None, pc.field("id") > 1])
def test_files_without_columns_are_refused(tmp_path: Path, predicate: pc.Expression) -> None:
    """A table without columns would have no rows, and seem to say that there are no files."""
    write_table(tmp_path, [add("a")])
    with pytest.raises(InvalidArgumentError, match=rf"{tmp_path}: no columns"):
        DeltaTable(str(tmp_path)).snapshot().files(columns=[], predicate=predicate)


@pytest.mark.parametrize("timestamp", ["yesterday", "2026-01-31T12:00:00", True, None, 1.5])
def test_a_bad_timestamp_names_the_table(tmp_path: Path, timestamp: Any) -> None:
    write_table(tmp_path, [add("a")])
    table = DeltaTable(str(tmp_path))
    with pytest.raises(InvalidArgumentError, match=rf"{tmp_path}: .*is no"):
        table.version_at(timestamp)
    if not isinstance(timestamp, bool):  # which is an int, and therefore a version
        with pytest.raises(InvalidArgumentError, match=rf"{tmp_path}: .*is no"):
            table.changes(timestamp)


def test_a_version_that_was_cleaned_away_is_confirmed_on_request(tmp_path: Path) -> None:
    table = DeltaTable(str(write_table(tmp_path, *[[add(f"{n}")] for n in range(6)])))
    table.checkpoint(version=4)
    for version in range(4):
        commit_path(tmp_path, version).unlink()
    assert table.latest_version(1) == 1
    assert table.latest_version(1, confirm=True) == 5
    assert table.latest_version(5, confirm=True) == 5


def test_tombstones_expire(tmp_path: Path) -> None:
    far = 2**42
    write_table(
        tmp_path,
        [add("a"), add("b"), add("c")],
        [remove("a"), remove("b", deletionTimestamp=far), {"remove": {"path": "c"}}],
    )
    snapshot = DeltaTable(str(tmp_path)).snapshot()
    assert snapshot.tombstones()["path"].to_pylist() == ["b"]
    assert snapshot.tombstones(include_expired=True)["path"].to_pylist() == ["a", "b", "c"]


def test_transactions_expire_where_the_table_says_so(tmp_path: Path) -> None:
    write_table(
        tmp_path,
        [
            {"txn": {"appId": "old", "version": 1, "lastUpdated": 5}},
            {"txn": {"appId": "undated", "version": 1}},
            {"txn": {"appId": "new", "version": 1, "lastUpdated": 2**42}},
        ],
        configuration={"delta.setTransactionRetentionDuration": "interval 1 day"},
    )
    assert set(DeltaTable(str(tmp_path)).snapshot().transactions) == {"new"}


def test_file_uris_are_absolute_and_decoded(tmp_path: Path) -> None:
    write_table(tmp_path, [add("a%20b.parquet"), add("file:///elsewhere/x%25y")])
    uris = DeltaTable(str(tmp_path)).snapshot().file_uris()
    assert uris == [f"{tmp_path}/a b.parquet", "/elsewhere/x%y"]


def test_a_checkpoint_changes_nothing_but_the_log(tmp_path: Path) -> None:
    write_table(
        tmp_path,
        [add("a", stats='{"numRecords":3}', tags={"k": "v"}), add("b")],
        [remove("a"), {"txn": {"appId": "app", "version": 4}}],
        [{"domainMetadata": {"domain": "d", "configuration": "{}", "removed": False}}],
    )
    table = DeltaTable(str(tmp_path))
    before = table.snapshot()
    result = table.checkpoint()
    assert (result.version, result.written, result.num_files) == (2, True, 1)
    for version in (0, 1):
        commit_path(tmp_path, version).unlink()
    after = DeltaTable(str(tmp_path)).snapshot()
    assert after.files().to_pylist() == [
        {**row, "dataChange": False} for row in before.files().to_pylist()
    ]
    assert dict(after.transactions) == dict(before.transactions)
    assert dict(after.domains) == dict(before.domains)
    assert (after.protocol, after.metadata) == (before.protocol, before.metadata)


def test_a_checkpoint_that_is_there_is_not_written_again(tmp_path: Path) -> None:
    table = DeltaTable(str(write_table(tmp_path, [add("a")])))
    dry = table.checkpoint(dry_run=True)
    assert (dry.written, dry.plan.needed) == (False, True)
    assert not list((tmp_path / "_delta_log").glob("*.parquet"))
    assert table.checkpoint().written
    assert not table.checkpoint().written


def test_a_damaged_checkpoint_is_left_out_with_a_warning(tmp_path: Path) -> None:
    table = DeltaTable(str(write_table(tmp_path, [add("a")], [add("b")], [add("c")])))
    table.checkpoint(version=1)
    checkpoint = next((tmp_path / "_delta_log").glob("*.checkpoint.parquet"))
    checkpoint.write_bytes(b"PAR1 nonsense PAR1")
    with pytest.warns(DeltaWarning, match=checkpoint.name):
        assert paths(table) == {"a", "b", "c"}


def test_a_damaged_checkpoint_is_replaced_by_a_new_one(tmp_path: Path) -> None:
    table = DeltaTable(str(write_table(tmp_path, [add("a")], [add("b")])))
    table.checkpoint()
    checkpoint = next((tmp_path / "_delta_log").glob("*.checkpoint.parquet"))
    checkpoint.write_bytes(b"PAR1 nonsense PAR1")
    with pytest.warns(DeltaWarning, match=checkpoint.name):
        assert table.checkpoint().written
    assert paths(table) == {"a", "b"}


def test_a_checkpoint_of_a_missing_version_is_refused(tmp_path: Path) -> None:
    table = DeltaTable(str(write_table(tmp_path, [add("a")])))
    with pytest.raises(VersionNotFoundError, match="5"):
        table.checkpoint(version=5)
