"""Commits: what is written, what is refused, and what happens when others are faster."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from deltalake import DeltaTable as Peer

from airflow_delta.engine import AddFile, DeltaTable, RemoveFile
from airflow_delta.engine.commit.filesystem import FileSystemCommitter
from airflow_delta.engine.errors import (
    ConcurrentAppendError,
    ConcurrentDeleteDeleteError,
    ConcurrentDeleteReadError,
    ConcurrentTransactionError,
    ConstraintViolationError,
    CorruptLogError,
    InvalidArgumentError,
    MetadataChangedError,
    ProtocolChangedError,
    TableAlreadyExistsError,
    UnsupportedFeatureError,
)
from airflow_delta.engine.model.schema import LONG, STRING, StructField, StructType
from tests.log_builder import (
    PROTOCOL,
    add,
    commit_path,
    metadata,
    remove,
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
    with pytest.raises(UnsupportedFeatureError, match="icebergCompatV1"):
        DeltaTable.create(str(tmp_path), SCHEMA, properties={"delta.enableIcebergCompatV1": "true"})
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

    def lose(self: FileSystemCommitter, version: int, data: bytes, *, txn_id: str) -> bool:
        commit(self, version, data, txn_id=txn_id)
        return False

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


@pytest.mark.parametrize(("theirs", "conflict"), [("org.example", True), ("org.other", False)])
def test_a_domain_that_a_winner_has_set_is_a_conflict(
    tmp_path: Path, theirs: str, conflict: bool
) -> None:
    txn = domain_table(tmp_path, ["domainMetadata"]).transaction("SET DOMAIN")
    txn.set_domain("org.example", "{}")
    domain = {"domain": theirs, "configuration": "", "removed": False}
    write_commit(tmp_path, 1, {"domainMetadata": domain})
    if conflict:
        with pytest.raises(ConcurrentTransactionError, match=r"domain 'org\.example'"):
            txn.commit()
    else:
        assert txn.commit().version == 2


CONFLICTS = [
    (lambda txn: txn.add_file(file("m")), metadata(), MetadataChangedError),
    (lambda txn: txn.add_file(file("m")), PROTOCOL, ProtocolChangedError),
    (
        lambda txn: txn.set_transaction("app", 2),
        {"txn": {"appId": "app", "version": 1}},
        ConcurrentTransactionError,
    ),
    (
        lambda txn: (txn.transaction_version("app"), txn.add_file(file("m"))),
        {"txn": {"appId": "app", "version": 1}},
        ConcurrentTransactionError,
    ),
    (lambda txn: txn.remove_file(tombstone("f")), remove("f"), ConcurrentDeleteDeleteError),
    (
        lambda txn: (txn.read_table(), txn.add_file(file("m"))),
        add("theirs"),
        ConcurrentAppendError,
    ),
    (
        lambda txn: (txn.read_table(), txn.add_file(file("m"))),
        remove("f"),
        ConcurrentDeleteReadError,
    ),
]


@pytest.mark.parametrize(("mine", "theirs", "error"), CONFLICTS)
def test_a_winner_that_touches_what_a_transaction_relies_on_is_a_conflict(
    tmp_path: Path, mine, theirs: dict, error: type[Exception]
) -> None:
    write_table(tmp_path, [add("f")])
    txn = DeltaTable(str(tmp_path)).transaction("WRITE")
    mine(txn)
    write_commit(tmp_path, 1, theirs)
    with pytest.raises(error, match="version 1"):
        txn.commit()
    assert not commit_path(tmp_path, 2).exists()


@pytest.mark.parametrize(
    ("mine", "theirs"),
    [
        (lambda txn: txn.add_file(file("m")), add("theirs")),
        (lambda txn: txn.add_file(file("m")), remove("f")),
        (lambda txn: txn.set_transaction("app", 2), {"txn": {"appId": "other", "version": 1}}),
        (lambda txn: txn.remove_file(tombstone("f")), add("theirs")),
    ],
)
def test_a_winner_that_touches_nothing_of_ours_is_none(tmp_path: Path, mine, theirs: dict) -> None:
    write_table(tmp_path, [add("f")])
    txn = DeltaTable(str(tmp_path)).transaction("WRITE")
    mine(txn)
    write_commit(tmp_path, 1, theirs)
    assert txn.commit().version == 2


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
