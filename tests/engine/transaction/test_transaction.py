"""Commits: what is written, what is refused, and what happens when others are faster."""

from __future__ import annotations

import datetime
import json
import os
import pickle
import shutil
import subprocess
import sys
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable as Peer

from airflow_delta.engine import AddFile, DeltaTable, OptimisticTransaction, RemoveFile
from airflow_delta.engine.commit.filesystem import FileSystemCommitter
from airflow_delta.engine.errors import (
    CommitConflictError,
    ConstraintViolationError,
    CorruptLogError,
    DeltaWarning,
    InvalidArgumentError,
    MetadataChangedError,
    TableAlreadyExistsError,
    TableNotFoundError,
    UnsupportedFeatureError,
    VersionNotFoundError,
)
from airflow_delta.engine.log.files import checksum_path
from airflow_delta.engine.model.actions import AddCdcFile, Protocol
from airflow_delta.engine.model.schema import LONG, STRING, StructField, StructType
from airflow_delta.engine.transaction import commit_loop
from airflow_delta.engine.transaction.commit_loop import pause
from airflow_delta.engine.transaction.intent import DropFeatures, EmptyVersion
from tests.faulty_storage import Fault, FaultyStorage, How
from tests.log_builder import (
    add,
    commit_path,
    metadata,
    write_commit,
    write_table,
)

SCHEMA = StructType((StructField("id", LONG), StructField("part", STRING)))


def file(path: str, **values: str | None) -> AddFile:
    return AddFile(
        path=path, partition_values=values, size=1, modification_time=1, data_change=True
    )


def tombstone(path: str) -> RemoveFile:
    return RemoveFile(path=path, data_change=True, deletion_timestamp=1)


def lines(root: Path, version: int) -> list[dict]:
    text = commit_path(root, version).read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


def live(root: Path) -> set[str]:
    return set(DeltaTable(str(root)).snapshot().files(columns=["path"])["path"].to_pylist())


def test_a_new_table_can_be_opened_by_the_peer(tmp_path: Path) -> None:
    table = DeltaTable.create(str(tmp_path), SCHEMA, partition_by=["part"], name="sales")
    assert table.latest_version() == 0
    peer = Peer(tmp_path)
    assert peer.metadata().partition_columns == ["part"]
    assert peer.metadata().name == "sales"
    assert [field.name for field in peer.schema().fields] == ["id", "part"]


def test_a_table_is_not_created_twice(tmp_path: Path) -> None:
    DeltaTable.create(str(tmp_path), SCHEMA)
    with pytest.raises(TableAlreadyExistsError, match="already"):
        DeltaTable.create(str(tmp_path), SCHEMA)


def test_a_new_table_whose_features_cannot_be_written_is_refused(tmp_path: Path) -> None:
    properties = {"delta.feature.variantShredding": "supported"}
    with pytest.raises(UnsupportedFeatureError, match="variantShredding"):
        DeltaTable.create(str(tmp_path), SCHEMA, properties=properties)
    assert not (tmp_path / "_delta_log").exists()


def test_an_append_says_who_did_what(tmp_path: Path) -> None:
    write_table(tmp_path, [])
    txn = DeltaTable(str(tmp_path)).transaction(
        "WRITE", operation_parameters={"mode": "Append", "partitionBy": ["a"]}, user_metadata="u"
    )
    txn.add_file(file("f"))
    result = txn.commit(operation_metrics={"numFiles": 1})
    info = lines(tmp_path, 1)[0]["commitInfo"]
    assert (result.version, result.attempts) == (1, 1)
    assert info["operation"] == "WRITE"
    assert info["operationParameters"] == {"mode": "Append", "partitionBy": '["a"]'}
    assert info["operationMetrics"] == {"numFiles": "1"}
    assert (info["readVersion"], info["isBlindAppend"]) == (0, True)
    assert (info["isolationLevel"], info["userMetadata"]) == ("Serializable", "u")
    assert info["timestamp"] == result.timestamp_ms


def test_the_peer_sees_what_was_committed(tmp_path: Path) -> None:
    DeltaTable.create(str(tmp_path), SCHEMA)
    txn = DeltaTable(str(tmp_path)).transaction("WRITE")
    txn.add_files([file("a.parquet"), file("b.parquet")])
    txn.set_transaction("app", 3)
    txn.commit()
    peer = Peer(tmp_path)
    assert sorted(Path(uri).name for uri in peer.file_uris()) == ["a.parquet", "b.parquet"]
    assert peer.transaction_version("app") == 3


def test_a_transaction_commits_once_and_only_something(tmp_path: Path) -> None:
    write_table(tmp_path, [])
    txn = DeltaTable(str(tmp_path)).transaction("WRITE")
    with pytest.raises(InvalidArgumentError, match="nothing to commit"):
        txn.commit()
    txn.add_file(file("f"))
    txn.commit()
    with pytest.raises(InvalidArgumentError, match="committed already"):
        txn.commit()


@pytest.mark.parametrize(
    ("actions", "rule"),
    [
        ([file("f"), file("f")], "2 add actions"),
        ([tombstone("f"), tombstone("f")], "2 remove actions"),
        ([file("f"), tombstone("f")], "added and removed"),
        ([file("f", nonsense="x")], "partition values for"),
        ([file("/f"), file("file:///f")], "2 add actions"),
        ([file("/f"), tombstone("file:/f")], "added and removed"),
        ([file("/f%zz")], "'%' is not followed by two hexadecimal digits"),
    ],
)
def test_a_commit_that_breaks_the_protocol_is_refused(
    tmp_path: Path, actions: list, rule: str
) -> None:
    write_table(tmp_path, [])
    txn = DeltaTable(str(tmp_path)).transaction("WRITE")
    for action in actions:
        (txn.add_file if isinstance(action, AddFile) else txn.remove_file)(action)
    with pytest.raises(ConstraintViolationError, match=rule):
        txn.commit()
    assert not commit_path(tmp_path, 1).exists()


def test_an_append_only_table_keeps_its_data(tmp_path: Path) -> None:
    write_table(tmp_path, [add("f")], configuration={"delta.appendOnly": "true"})
    txn = DeltaTable(str(tmp_path)).transaction("DELETE")
    txn.remove_file(tombstone("f"))
    with pytest.raises(ConstraintViolationError, match="append-only"):
        txn.commit()


def test_a_table_with_an_unknown_writer_feature_is_not_written(tmp_path: Path) -> None:
    protocol = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["novelty"]}
    write_commit(tmp_path, 0, {"protocol": protocol}, metadata())
    table = DeltaTable(str(tmp_path))
    assert table.snapshot().num_files == 0
    with pytest.raises(UnsupportedFeatureError, match="novelty"):
        table.transaction("WRITE")
    with pytest.raises(UnsupportedFeatureError, match="novelty"):
        table.checkpoint()


def test_a_lost_race_is_tried_again_after_the_winner(tmp_path: Path) -> None:
    write_table(tmp_path, [])
    txn = DeltaTable(str(tmp_path)).transaction("WRITE")
    txn.add_file(file("mine"))
    write_commit(tmp_path, 1, add("theirs"))
    write_commit(tmp_path, 2, add("theirs too"))
    result = txn.commit()
    assert (result.version, result.attempts) == (3, 2)
    assert live(tmp_path) == {"mine", "theirs", "theirs too"}


def test_what_was_refused_can_be_put_right(tmp_path: Path) -> None:
    write_table(tmp_path, [], partition_columns=["part"])
    values: dict[str, str | None] = {}
    txn = DeltaTable(str(tmp_path)).transaction("WRITE")
    txn.add_file(AddFile("f", values, 1, 1, data_change=True))
    with pytest.raises(ConstraintViolationError, match="partition values for"):
        txn.commit()
    values["part"] = "a"
    assert txn.commit().version == 1


def test_a_winner_that_is_our_own_commit_is_the_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A committer may take a put for lost that arrives later."""
    write_table(tmp_path, [])
    commit = FileSystemCommitter.commit

    def lose(self: FileSystemCommitter, version: int, data: bytes, *, txn_id: str) -> None:
        commit(self, version, data, txn_id=txn_id)

    monkeypatch.setattr(FileSystemCommitter, "commit", lose)
    txn = DeltaTable(str(tmp_path)).transaction("WRITE")
    txn.read_table()
    txn.add_file(file("mine"))
    write_commit(tmp_path, 1, {"txn": {"appId": "theirs", "version": 1}})
    result = txn.commit()
    assert (result.version, result.attempts) == (2, 2)
    assert lines(tmp_path, 2)[0]["commitInfo"]["timestamp"] == result.timestamp_ms
    assert DeltaTable(str(tmp_path)).latest_version() == 2


def domain_table(root: Path, features: list[str]) -> DeltaTable:
    protocol = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": features}
    write_commit(root, 0, {"protocol": protocol}, metadata())
    return DeltaTable(str(root))


def test_a_domain_of_the_user_is_set(tmp_path: Path) -> None:
    table = domain_table(tmp_path, ["domainMetadata"])
    for configuration in ("{}", '{"a":1}'):
        txn = table.transaction("SET DOMAIN")
        txn.set_domain("org.example", configuration)
        txn.commit()
    assert lines(tmp_path, 1)[1] == {
        "domainMetadata": {"domain": "org.example", "configuration": "{}", "removed": False}
    }
    domains = table.snapshot().domains
    assert {name: domain.configuration for name, domain in domains.items()} == {
        "org.example": '{"a":1}'
    }


def test_a_domain_of_the_protocol_is_not_for_users(tmp_path: Path) -> None:
    txn = domain_table(tmp_path, ["domainMetadata"]).transaction("SET DOMAIN")
    with pytest.raises(InvalidArgumentError, match=r"'delta\.clustering' belongs to the protocol"):
        txn.set_domain("delta.clustering", "{}")


def test_domains_need_their_feature(tmp_path: Path) -> None:
    txn = domain_table(tmp_path, []).transaction("SET DOMAIN")
    txn.set_domain("org.example", "{}")
    with pytest.raises(ConstraintViolationError, match="lacks the feature domainMetadata"):
        txn.commit()


def test_in_commit_timestamps_ascend_whatever_the_clock_says(tmp_path: Path) -> None:
    table = DeltaTable.create(
        str(tmp_path), SCHEMA, properties={"delta.enableInCommitTimestamps": "true"}
    )
    first = lines(tmp_path, 0)[0]["commitInfo"]["inCommitTimestamp"]
    far = first + 10**9
    write_commit(tmp_path, 1, {"commitInfo": {"inCommitTimestamp": far, "operation": "X"}})
    txn = table.transaction("WRITE")
    txn.add_file(file("f"))
    assert txn.commit().timestamp_ms == far + 1
    assert lines(tmp_path, 2)[0]["commitInfo"]["inCommitTimestamp"] == far + 1


def test_the_commit_of_a_transaction_identifier_is_found(tmp_path: Path) -> None:
    write_table(tmp_path, [])
    table = DeltaTable(str(tmp_path))
    for number in (1, 2):
        txn = table.transaction("WRITE")
        txn.add_file(file(f"f{number}"))
        txn.set_transaction("app", number)
        txn.commit()
    assert table.version_of_transaction("app", 1) == 1
    assert table.version_of_transaction("app", 2) == 2
    assert table.version_of_transaction("app", 3) is None
    assert table.version_of_transaction("other", 1) is None


def test_a_winner_that_cannot_be_parsed_stops_the_commit(tmp_path: Path) -> None:
    write_table(tmp_path, [])
    txn = DeltaTable(str(tmp_path)).transaction("WRITE")
    txn.add_file(file("f"))
    commit_path(tmp_path, 1).write_text("{broken\n", encoding="utf-8")
    with pytest.raises(CorruptLogError, match=r"00000000000000000001\.json"):
        txn.commit()


# What a commit says of itself


def reads_files(txn: OptimisticTransaction) -> None:
    txn.read_files(pc.field("id") == 1)
    txn.add_file(file("m"))


def reads_the_table(txn: OptimisticTransaction) -> None:
    txn.read_table()
    txn.add_file(file("m"))


def streams(txn: OptimisticTransaction) -> None:
    """As a stream does: it looks up how far it has come, and appends."""
    assert txn.transaction_version("app") is None
    txn.set_transaction("app", 1)
    txn.add_file(file("m"))


@pytest.mark.parametrize(
    ("stage", "blind", "level"),
    [
        (lambda t: t.add_file(file("m")), True, "Serializable"),
        (streams, True, "Serializable"),
        (reads_files, False, "Serializable"),
        (reads_the_table, False, "Serializable"),
        (lambda t: t.remove_file(tombstone("f")), False, "Serializable"),
        (lambda t: t.add_file(replace(file("f"), data_change=False)), True, "SnapshotIsolation"),
        (lambda t: t.set_transaction("app", 1), True, "Serializable"),
    ],
)
def test_a_commit_says_what_it_took_for_granted(
    tmp_path: Path, stage: Callable[[OptimisticTransaction], None], blind: bool, level: str
) -> None:
    write_table(tmp_path, [add("f")])
    txn = DeltaTable(str(tmp_path)).transaction("WRITE")
    stage(txn)
    txn.commit()
    info = lines(tmp_path, 1)[0]["commitInfo"]
    assert (info["isBlindAppend"], info["isolationLevel"]) == (blind, level)


def test_parameters_are_texts_as_the_reference_writes_them(tmp_path: Path) -> None:
    write_table(tmp_path, [])
    parameters = {"mode": "Append", "partitionBy": [], "isManaged": False, "n": 3, "none": None}
    txn = DeltaTable(str(tmp_path)).transaction("WRITE", operation_parameters=parameters)
    txn.add_file(file("f"))
    txn.commit(operation_metrics={"numFiles": 1})
    info = lines(tmp_path, 1)[0]["commitInfo"]
    assert info["operationParameters"] == {
        "mode": "Append",
        "partitionBy": "[]",
        "isManaged": "false",
        "n": "3",
        "none": "null",
    }
    history = Peer(tmp_path).history()
    assert history[0]["operation"] == "WRITE"


@pytest.mark.parametrize(("interval", "due"), [("2", [2, 4]), ("10", []), ("1", [1, 2, 3, 4])])
def test_a_checkpoint_is_due_at_every_multiple_of_the_interval(
    tmp_path: Path, interval: str, due: list[int]
) -> None:
    properties = {"delta.checkpointInterval": interval}
    table = DeltaTable.create(str(tmp_path), SCHEMA, properties=properties)
    results = []
    for number in range(1, 5):
        txn = table.transaction("WRITE")
        txn.add_file(file(f"f{number}"))
        results.append(txn.commit())
    assert [result.version for result in results if result.checkpoint_due] == due
    assert not list((tmp_path / "_delta_log").glob("*.checkpoint*"))


# What can be staged


def test_protocol_and_metadata_of_a_table_can_be_changed(tmp_path: Path) -> None:
    table = DeltaTable.create(str(tmp_path), SCHEMA)
    txn = table.transaction("SET TBLPROPERTIES")
    assert txn.snapshot
    txn.set_metadata(replace(txn.snapshot.metadata, description="new"))
    txn.set_protocol(
        Protocol(1, 7, None, frozenset({"appendOnly", "invariants", "domainMetadata"}))
    )
    txn.commit()
    snapshot = table.snapshot()
    assert snapshot.metadata.description == "new"
    assert snapshot.protocol.writer_features == {"appendOnly", "invariants", "domainMetadata"}
    assert Peer(tmp_path).metadata().description == "new"


def test_a_domain_is_removed(tmp_path: Path) -> None:
    table = domain_table(tmp_path, ["domainMetadata"])
    txn = table.transaction("SET DOMAIN")
    txn.set_domain("d", '{"a":1}')
    txn.commit()
    txn = table.transaction("SET DOMAIN")
    domain = txn.read_domain("d")
    assert domain is not None
    assert domain.configuration == '{"a":1}'
    assert txn.read_domain("e") is None
    txn.remove_domain("d")
    txn.commit()
    assert not table.snapshot().domains
    with pytest.raises(InvalidArgumentError, match=r"'delta\.x' belongs to the protocol"):
        txn.remove_domain("delta.x")


def test_files_of_changed_rows_are_committed(tmp_path: Path) -> None:
    table = DeltaTable.create(
        str(tmp_path), SCHEMA, properties={"delta.enableChangeDataFeed": "true"}
    )
    txn = table.transaction("UPDATE")
    txn.add_file(file("f"))
    txn.add_cdc_file(AddCdcFile("_change_data/a", {}, 1))
    txn.add_cdc_files([AddCdcFile("_change_data/b", {}, 1)])
    txn.commit()
    paths = [line["cdc"]["path"] for line in lines(tmp_path, 1) if "cdc" in line]
    assert paths == ["_change_data/a", "_change_data/b"]
    assert lines(tmp_path, 1)[0]["commitInfo"]["isBlindAppend"] is False


IDENTITY = {"delta.identity.start": 1, "delta.identity.step": 2}


def test_the_marks_of_identity_columns_move_with_the_commit(tmp_path: Path) -> None:
    fields = [{"name": "id", "type": "long", "nullable": True, "metadata": IDENTITY}]
    protocol = {"minReaderVersion": 1, "minWriterVersion": 6}
    schema = {"type": "struct", "fields": fields}
    write_commit(tmp_path, 0, {"protocol": protocol}, metadata(schema=schema))
    table = DeltaTable(str(tmp_path))
    txn = table.transaction("WRITE", enforces=["identityColumns"])
    txn.add_file(file("f"))
    txn.use_identity_values("id", 8)
    other = table.transaction("WRITE", enforces=["identityColumns"])
    other.add_file(file("g"))
    other.use_identity_values("id", 9)
    txn.commit()
    # PROTOCOL.md, "Identity Columns": start + k * step.
    column = table.snapshot().schema.field("id")
    assert column is not None
    assert column.metadata["delta.identity.highWaterMark"] == 9
    assert lines(tmp_path, 1)[0]["commitInfo"]["tags"] == {"delta.identity.schemaUpdate": "true"}
    # Both made their values from one mark.
    with pytest.raises(MetadataChangedError, match="version 1"):
        other.commit()


def test_rules_about_rows_are_for_the_writer_to_enforce(tmp_path: Path) -> None:
    protocol = {"minReaderVersion": 1, "minWriterVersion": 3}
    configuration = {"delta.constraints.positive": "id > 0"}
    write_commit(
        tmp_path, 0, {"protocol": protocol}, metadata(configuration=configuration), add("f")
    )
    table = DeltaTable(str(tmp_path))
    txn = table.transaction("WRITE")
    txn.add_file(file("g"))
    with pytest.raises(UnsupportedFeatureError, match=r"enforces=\['checkConstraints'\]$"):
        txn.commit()
    txn = table.transaction("DELETE")
    txn.remove_file(tombstone("f"))
    assert txn.commit().version == 1
    txn = table.transaction("WRITE", enforces=["checkConstraints"])
    txn.add_file(file("g"))
    assert txn.commit().version == 2
    for wrong in (["checkConstraint"], "checkConstraints"):
        with pytest.raises(InvalidArgumentError, match="enforces: expected a list of names of"):
            table.transaction("WRITE", enforces=wrong)


def test_a_new_table_has_nothing_to_read(tmp_path: Path) -> None:
    txn = OptimisticTransaction(DeltaTable(str(tmp_path)).storage, None, "CREATE TABLE")
    assert (txn.snapshot, txn.read_version) == (None, None)
    assert txn.transaction_version("app") is None
    for read in (txn.read_table, txn.read_files, lambda: txn.base):
        with pytest.raises(InvalidArgumentError, match="a new table can't be read"):
            read()


def test_files_are_read_with_the_requested_columns(tmp_path: Path) -> None:
    write_table(tmp_path, [add("f"), add("g")])
    txn = DeltaTable(str(tmp_path)).transaction("WRITE")
    assert txn.read_files(columns=["size"]).column_names == ["size"]
    assert txn.read_files()["path"].to_pylist() == ["f", "g"]
    for wrong in ("path", ["nonsense"], []):
        with pytest.raises(InvalidArgumentError, match="columns"):
            txn.read_files(columns=wrong)


# Losing races


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The pauses, which aren't made."""
    made: list[int] = []
    monkeypatch.setattr(commit_loop, "pause", made.append)
    return made


def test_the_winners_are_looked_for_after_the_pause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that come meanwhile would win the next race else."""
    write_table(tmp_path, [])
    txn = DeltaTable(str(tmp_path)).transaction("WRITE")
    txn.add_file(file("mine"))
    write_commit(tmp_path, 1, add("theirs"))
    monkeypatch.setattr(
        commit_loop, "pause", lambda _: write_commit(tmp_path, 2, add("theirs too"))
    )
    result = txn.commit()
    assert (result.version, result.attempts) == (3, 2)


def outrun(monkeypatch: pytest.MonkeyPatch, root: Path, times: int) -> None:
    """Have another writer make two versions just before each put, so many times."""
    commit = FileSystemCommitter.commit
    left = [times]

    def late(self: FileSystemCommitter, version: int, data: bytes, *, txn_id: str) -> str | None:
        if left[0]:
            left[0] -= 1
            for each in (version, version + 1):
                write_commit(root, each, add(f"theirs{each}"))
        return commit(self, version, data, txn_id=txn_id)

    monkeypatch.setattr(FileSystemCommitter, "commit", late)


def test_a_loser_jumps_to_the_newest_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pauses: list[int]
) -> None:
    write_table(tmp_path, [])
    txn = DeltaTable(str(tmp_path)).transaction("WRITE")
    txn.add_file(file("mine"))
    outrun(monkeypatch, tmp_path, 3)
    result = txn.commit()
    assert (result.version, result.attempts, pauses) == (7, 4, [1, 2, 3])
    assert live(tmp_path) == {"mine", *(f"theirs{n}" for n in range(1, 7))}
    assert lines(tmp_path, 7)[0]["commitInfo"]["readVersion"] == 0
    verified = DeltaTable(str(tmp_path)).snapshot().verify()
    assert "numFiles" in verified.checked
    assert not verified.differences


def test_a_loser_gives_up_at_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pauses: list[int]
) -> None:
    write_table(tmp_path, [])
    txn = DeltaTable(str(tmp_path)).transaction("WRITE")
    txn.add_file(file("mine"))
    outrun(monkeypatch, tmp_path, 9)
    monkeypatch.setattr(commit_loop, "MAX_ATTEMPTS", 3)
    with pytest.raises(CommitConflictError, match="faster 3 times"):
        txn.commit()
    assert pauses == [1, 2, 3]
    assert "mine" not in live(tmp_path)


def test_a_race_that_is_lost_to_nobody_seen_is_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pauses: list[int]
) -> None:
    """A store may say that a commit is there before it shows it."""
    write_table(tmp_path, [])
    commit = FileSystemCommitter.commit
    answers = iter([False])

    def blind(self: FileSystemCommitter, version: int, data: bytes, *, txn_id: str) -> str | None:
        return commit(self, version, data, txn_id=txn_id) if next(answers, True) else None

    monkeypatch.setattr(FileSystemCommitter, "commit", blind)
    txn = DeltaTable(str(tmp_path)).transaction("WRITE")
    txn.add_file(file("mine"))
    result = txn.commit()
    assert (result.version, result.attempts, pauses) == (1, 2, [1])


def test_pauses_grow_and_are_left_to_chance(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(commit_loop.time, "sleep", slept.append)
    monkeypatch.setattr(commit_loop.random, "uniform", lambda low, high: (low + high) / 2)
    for attempt in (1, 2, 3, 200):
        pause(attempt)
    assert slept == [0.005, 0.01, 0.02, 0.125]


def test_each_attempt_prepares_the_actions_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pauses: list[int]
) -> None:
    """The commit that turns in-commit timestamps on names its own version and time."""
    write_table(tmp_path, [])
    table = DeltaTable(str(tmp_path))
    txn = table.transaction("SET TBLPROPERTIES")
    assert txn.snapshot
    old = txn.snapshot.metadata
    txn.set_protocol(
        Protocol(1, 7, None, frozenset({"appendOnly", "invariants", "inCommitTimestamp"}))
    )
    on = {"delta.enableInCommitTimestamps": "true"}
    txn.set_metadata(replace(old, configuration=on))
    outrun(monkeypatch, tmp_path, 1)
    far_ms = 10**14
    monkeypatch.setattr(
        commit_loop,
        "pause",
        lambda _: os.utime(commit_path(tmp_path, 2), ns=(far_ms * 10**6, far_ms * 10**6)),
    )
    assert txn.commit().version == 3
    configuration = table.snapshot().metadata.configuration
    assert configuration["delta.inCommitTimestampEnablementVersion"] == "3"
    time = lines(tmp_path, 3)[0]["commitInfo"]["inCommitTimestamp"]
    assert configuration["delta.inCommitTimestampEnablementTimestamp"] == str(time)
    assert not pauses


def test_of_two_that_create_a_table_one_does(tmp_path: Path) -> None:
    storage = DeltaTable(str(tmp_path)).storage
    txn = OptimisticTransaction(storage, None, "CREATE TABLE")
    table = DeltaTable.create(str(tmp_path), SCHEMA)
    txn.set_protocol(table.snapshot().protocol)
    txn.set_metadata(table.snapshot().metadata)
    with pytest.raises(TableAlreadyExistsError, match="created the table first"):
        txn.commit()


def test_a_creation_that_was_taken_for_lost_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = FileSystemCommitter.commit

    def lose(self: FileSystemCommitter, version: int, data: bytes, *, txn_id: str) -> None:
        commit(self, version, data, txn_id=txn_id)

    monkeypatch.setattr(FileSystemCommitter, "commit", lose)
    assert DeltaTable.create(str(tmp_path), SCHEMA).latest_version() == 0


@pytest.mark.usefixtures("pauses")
def test_a_table_that_was_replaced_is_another_one(tmp_path: Path) -> None:
    table = DeltaTable.create(str(tmp_path), SCHEMA)
    txn = table.transaction("WRITE")
    txn.add_file(file("mine"))
    commit_path(tmp_path, 0).unlink()
    for left in (tmp_path / "_delta_log").iterdir():
        left.unlink()
    other = DeltaTable.create(str(tmp_path), SCHEMA)
    again = other.transaction("WRITE")
    again.add_file(file("theirs"))
    again.commit()
    os.utime(commit_path(tmp_path, 0), ns=(1, 1))
    with pytest.raises(MetadataChangedError, match="replaced by another one"):
        txn.commit()
    assert live(tmp_path) == {"theirs"}


def test_a_winner_that_is_gone_cannot_be_judged(tmp_path: Path) -> None:
    write_table(tmp_path, [])
    txn = DeltaTable(str(tmp_path)).transaction("WRITE")
    txn.add_file(file("mine"))
    for version in (1, 2, 3):
        write_commit(tmp_path, version, add(f"f{version}"))
    DeltaTable(str(tmp_path)).checkpoint()
    for version in (0, 2):
        commit_path(tmp_path, version).unlink()
    with pytest.raises(
        CommitConflictError, match="newest version is 3, but commits since version 0"
    ) as caught:
        txn.commit()
    assert caught.value.version == 3
    assert "mine" not in live(tmp_path)


def test_nor_can_one_that_is_broken_below_a_checkpoint(tmp_path: Path) -> None:
    write_table(tmp_path, [])
    txn = DeltaTable(str(tmp_path)).transaction("WRITE")
    txn.add_file(file("mine"))
    for version in (1, 2):
        write_commit(tmp_path, version, add(f"f{version}"))
    DeltaTable(str(tmp_path)).checkpoint()
    commit_path(tmp_path, 1).write_text("{broken\n", encoding="utf-8")
    with pytest.raises(CommitConflictError, match="cleaned up or are damaged"):
        txn.commit()
    assert live(tmp_path) == {"f1", "f2"}


# Versions that are free because they are long past


def move_on(root: Path, *, to: int, gone: range) -> None:
    """Others commit, make a checkpoint, and clean up."""
    for version in range(DeltaTable(str(root)).latest_version() + 1, to + 1):
        write_commit(root, version, add(f"f{version}"))
    DeltaTable(str(root)).checkpoint()
    for version in gone:
        commit_path(root, version).unlink()


@pytest.mark.usefixtures("pauses")
def test_a_version_that_was_cleaned_up_is_not_made_again(tmp_path: Path) -> None:
    write_table(tmp_path, [])
    txn = DeltaTable(str(tmp_path)).transaction("WRITE")
    txn.add_file(file("mine"))
    move_on(tmp_path, to=12, gone=range(12))
    with pytest.raises(
        CommitConflictError, match="newest version is 12, but commits since version 0"
    ):
        txn.commit()
    assert not commit_path(tmp_path, 1).exists()


def test_nor_is_it_where_a_stage_needs_what_was_cleaned_up(tmp_path: Path) -> None:
    """Row tracking looks at the live files of the base, which can't be read any more."""
    table = DeltaTable.create(str(tmp_path), SCHEMA, properties={"delta.enableRowTracking": "true"})
    others = DeltaTable(str(tmp_path))
    for name in ("first", "second"):
        theirs = others.transaction("WRITE")
        theirs.add_file(replace(file(name), stats='{"numRecords":1}'))
        theirs.commit()
        others.checkpoint()
        if name == "first":
            txn = table.transaction("WRITE")
    txn.add_file(replace(file("mine"), stats='{"numRecords":1}'))
    for version in (0, 1):
        commit_path(tmp_path, version).unlink()
    (tmp_path / "_delta_log" / f"{1:020}.checkpoint.parquet").unlink()
    with pytest.raises(CommitConflictError, match="was cleaned up concurrently"):
        txn.commit()
    assert live(tmp_path) == {"first", "second"}


@pytest.mark.usefixtures("pauses")
def test_nor_by_an_attempt_after_a_lost_race(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_table(tmp_path, [])
    txn = DeltaTable(str(tmp_path)).transaction("WRITE")
    txn.add_file(file("mine"))
    write_commit(tmp_path, 1, add("f1"))
    prepare = commit_loop.prepare
    contexts: list[int] = []

    def slowly(actions: Any, context: Any) -> Any:
        contexts.append(context.version)
        if len(contexts) == 2:
            move_on(tmp_path, to=5, gone=range(5))
        return prepare(actions, context)

    monkeypatch.setattr(commit_loop, "prepare", slowly)
    with pytest.raises(
        CommitConflictError, match="newest version is 5, but commits since version 1"
    ):
        txn.commit()
    assert contexts == [1, 2]
    assert not commit_path(tmp_path, 2).exists()


@pytest.mark.usefixtures("pauses")
def test_winners_that_are_there_are_judged_though_the_version_before_them_is_gone(
    tmp_path: Path,
) -> None:
    write_table(tmp_path, [add("f0")], [add("f1")])
    DeltaTable(str(tmp_path)).checkpoint()
    txn = DeltaTable(str(tmp_path)).transaction("WRITE")
    txn.add_file(file("mine"))
    move_on(tmp_path, to=3, gone=range(2))
    assert txn.commit().version == 4
    assert live(tmp_path) == {"f0", "f1", "f2", "f3", "mine"}


@pytest.mark.usefixtures("pauses")
def test_a_table_that_replaced_a_longer_one_gets_no_commit_behind_a_gap(tmp_path: Path) -> None:
    root = tmp_path / "t"
    table = DeltaTable.create(str(root), SCHEMA)
    for version in (1, 2):
        write_commit(root, version, add(f"f{version}"))
    txn = table.transaction("WRITE")
    txn.add_file(file("mine"))
    shutil.rmtree(root)
    again = table.transaction
    with pytest.raises(TableNotFoundError):
        again("WRITE")
    DeltaTable.create(str(root), SCHEMA)
    with pytest.raises(MetadataChangedError, match="replaced by another one"):
        txn.commit()
    assert not commit_path(root, 3).exists()
    assert live(root) == set()


@pytest.mark.usefixtures("pauses")
@pytest.mark.parametrize("theirs", [None, add("another")])
def test_a_version_that_was_taken_back_is_not_built_on(tmp_path: Path, theirs: dict | None) -> None:
    write_table(tmp_path, [add("f0")], [add("f1")])
    txn = DeltaTable(str(tmp_path)).transaction("WRITE")
    txn.add_file(file("mine"))
    commit_path(tmp_path, 1).unlink()
    if theirs is not None:
        write_commit(tmp_path, 1, theirs)
    with pytest.raises(CommitConflictError, match=r"version 1, .* was taken back or replaced"):
        txn.commit()
    assert not commit_path(tmp_path, 2).exists()


def test_a_creation_does_not_begin_a_table_that_was_cleaned_up(tmp_path: Path) -> None:
    made = DeltaTable.create(str(tmp_path / "other"), SCHEMA).snapshot()
    root = tmp_path / "t"
    txn = OptimisticTransaction(DeltaTable(str(root)).storage, None, "CREATE TABLE")
    txn.set_protocol(made.protocol)
    txn.set_metadata(made.metadata)
    write_table(root, [])
    move_on(root, to=3, gone=range(3))
    with pytest.raises(TableAlreadyExistsError, match="there is a table already") as caught:
        txn.commit()
    assert caught.value.version == 3
    assert not commit_path(root, 0).exists()


class Remote(FaultyStorage):
    """A store where each look is a request."""

    @property
    def capabilities(self) -> Any:
        return replace(self.inner.capabilities, remote=True)


@pytest.mark.usefixtures("pauses")
@pytest.mark.parametrize(("waited_s", "looks"), [(4.9, 0), (5.1, 1)])
def test_a_remote_table_is_looked_at_again_after_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, waited_s: float, looks: int
) -> None:
    write_table(tmp_path, [])
    table = DeltaTable(str(tmp_path))
    storage = Remote(table.storage)
    table.__dict__["storage"] = storage
    now_s = [1000.0]
    monkeypatch.setattr(commit_loop, "monotonic_s", lambda: now_s[0])
    txn = table.transaction("WRITE")
    txn.add_file(file("mine"))
    now_s[0] += waited_s
    storage.calls.clear()
    assert txn.commit().version == 1
    before_put = [call.operation for call in storage.calls]
    before_put = before_put[: before_put.index("create")]
    assert before_put == ["list"] * looks


@pytest.mark.usefixtures("pauses")
def test_so_is_one_of_which_nobody_says_when_it_was_seen(tmp_path: Path) -> None:
    write_table(tmp_path, [])
    table = DeltaTable(str(tmp_path))
    txn = OptimisticTransaction(Remote(table.storage), table.snapshot(), "WRITE")
    txn.add_file(file("mine"))
    move_on(tmp_path, to=12, gone=range(12))
    with pytest.raises(CommitConflictError, match="newest version is 12"):
        txn.commit()


# Versions whose commit is gone


def test_a_version_known_by_its_checkpoint_alone_is_followed(tmp_path: Path) -> None:
    write_table(tmp_path, [add("f0")])
    move_on(tmp_path, to=2, gone=range(3))
    table = DeltaTable(str(tmp_path))
    txn = table.transaction("WRITE")
    txn.add_file(file("mine"))
    slow = table.transaction("WRITE")
    slow.add_file(file("slow"))
    assert txn.commit().version == 3
    assert slow.commit().version == 4
    assert live(tmp_path) == {"f0", "f1", "f2", "mine", "slow"}


def test_its_time_is_in_its_checksum(tmp_path: Path) -> None:
    on = {"delta.enableInCommitTimestamps": "true"}
    table = DeltaTable.create(str(tmp_path), SCHEMA, properties=on)
    txn = table.transaction("WRITE")
    txn.add_file(file("f"))
    far = 10**14
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(commit_loop, "now_ms", lambda: far)
        txn.commit()
    table.checkpoint()
    for version in (0, 1):
        commit_path(tmp_path, version).unlink()
    txn = DeltaTable(str(tmp_path)).transaction("WRITE")
    txn.add_file(file("g"))
    assert txn.commit().timestamp_ms == far + 1


@pytest.mark.parametrize("checksum", [None, "{broken", "{}"])
def test_without_one_nobody_knows_it(tmp_path: Path, checksum: str | None) -> None:
    on = {"delta.enableInCommitTimestamps": "true"}
    table = DeltaTable.create(str(tmp_path), SCHEMA, properties=on)
    table.checkpoint()
    commit_path(tmp_path, 0).unlink()
    (tmp_path / checksum_path(0)).unlink()
    if checksum is not None:
        (tmp_path / checksum_path(0)).write_text(checksum, encoding="utf-8")
    txn = DeltaTable(str(tmp_path)).transaction("WRITE")
    txn.add_file(file("g"))
    with pytest.raises(VersionNotFoundError, match="version 0 is gone, and with it its time"):
        txn.commit()


# Types


@pytest.mark.parametrize("wrong", [None, "", 5, b"WRITE"])
def test_an_operation_is_a_text(tmp_path: Path, wrong: Any) -> None:
    write_table(tmp_path, [])
    with pytest.raises(InvalidArgumentError, match="operation: expected a text such as 'WRITE'"):
        DeltaTable(str(tmp_path)).transaction(wrong)


@pytest.mark.parametrize("wrong", [{"a": 1}, 5, b"u"])
def test_the_metadata_of_a_user_is_a_text(tmp_path: Path, wrong: Any) -> None:
    write_table(tmp_path, [])
    with pytest.raises(InvalidArgumentError, match="user_metadata: expected a text or None"):
        DeltaTable(str(tmp_path)).transaction("WRITE", user_metadata=wrong)


@pytest.mark.parametrize(
    ("wrong", "what"),
    [
        ({"at": datetime.date(2024, 1, 1)}, r"\['at'\].*date"),
        ({"n": float("nan")}, r"\['n'\].*nan"),
        ({"n": [1, float("inf")]}, r"\['n'\].*inf"),
        ({1: "x"}, "expected a text, found the int 1"),
    ],
)
def test_parameters_are_what_json_has(tmp_path: Path, wrong: Any, what: str) -> None:
    write_table(tmp_path, [])
    with pytest.raises(InvalidArgumentError, match=f"operation_parameters.*{what}"):
        DeltaTable(str(tmp_path)).transaction("WRITE", operation_parameters=wrong)


@pytest.mark.parametrize("wrong", [{"n": 1.5}, {"n": "1"}, {"n": None}, {"n": True}, {1: 1}])
def test_metrics_are_whole_numbers(tmp_path: Path, wrong: Any) -> None:
    write_table(tmp_path, [])
    txn = DeltaTable(str(tmp_path)).transaction("WRITE")
    txn.add_file(file("f"))
    with pytest.raises(InvalidArgumentError, match="operation_metrics"):
        txn.commit(operation_metrics=wrong)
    assert txn.commit(operation_metrics={"n": 1}).version == 1


@pytest.mark.parametrize(
    ("app_id", "version"),
    [("app", "7"), ("app", 7.0), ("app", True), ("app", None), ("app", 2**63), (7, 7)],
)
def test_an_identifier_is_a_text_and_an_integer(tmp_path: Path, app_id: Any, version: Any) -> None:
    write_table(tmp_path, [])
    txn = DeltaTable(str(tmp_path)).transaction("WRITE")
    with pytest.raises(InvalidArgumentError, match="a text and an integer of 64 bits"):
        txn.set_transaction(app_id, version)


# After the put


def test_a_warning_after_the_put_does_not_make_the_commit_look_failed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_table(tmp_path, [])
    table = DeltaTable(str(tmp_path))
    fault = Fault("create", 1, How.FAIL, suffix=".crc")
    table.__dict__["storage"] = FaultyStorage(table.storage, fault)
    txn = table.transaction("WRITE")
    txn.add_file(file("mine"))
    with warnings.catch_warnings():
        warnings.simplefilter("error", DeltaWarning)
        assert txn.commit().version == 1
    assert "version checksum can't be written" in caplog.text
    assert live(tmp_path) == {"mine"}


def test_a_table_goes_to_another_process(tmp_path: Path) -> None:
    table = DeltaTable.create(str(tmp_path), SCHEMA, storage_options={})
    txn = table.transaction("WRITE")
    txn.add_file(file("f"))
    txn.commit()
    table.commit_once("app", 1, "WRITE", lambda txn: txn.add_file(file("g")))
    again = pickle.loads(pickle.dumps(table))
    assert again.uri == table.uri
    assert again.snapshot().num_files == 2


WITHOUT_PANDAS = """
import sys
from airflow_delta.engine import AddFile, DeltaTable, OptimisticTransaction, RemoveFile
table = DeltaTable({root!r})
mine, theirs = table.transaction("WRITE"), table.transaction("WRITE")
mine.read_files(columns=["size"])
theirs.set_transaction("app", 1)
theirs.commit()
mine.remove_file(RemoveFile("f", data_change=True))
mine.add_file(AddFile("g", {{}}, 1, 1, data_change=True))
assert mine.commit().attempts == 2
assert "pandas" not in sys.modules
"""


def test_committing_does_not_load_pandas(tmp_path: Path) -> None:
    write_table(tmp_path, [add("f")])
    subprocess.run(
        [sys.executable, "-c", WITHOUT_PANDAS.format(root=str(tmp_path))], check=True, timeout=60
    )


def test_a_commit_has_one_purpose(tmp_path: Path) -> None:
    write_table(tmp_path, [add("a")])
    transaction = DeltaTable(str(tmp_path)).transaction("TEST")
    transaction.declare(EmptyVersion())
    with pytest.raises(InvalidArgumentError, match="expected EmptyVersion, found DropFeatures"):
        transaction.declare(DropFeatures(frozenset({"appendOnly"}), hides_history=False))
    assert transaction.commit().version == 1
