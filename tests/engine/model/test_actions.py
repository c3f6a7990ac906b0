"""Actions against the examples of PROTOCOL.md, and against what its tables call required."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from airflow_delta.engine.errors import CorruptLogError
from airflow_delta.engine.model import actions
from airflow_delta.engine.model.actions import (
    AddCdcFile,
    AddFile,
    CheckpointMetadata,
    CommitInfo,
    DomainMetadata,
    Format,
    Metadata,
    Protocol,
    RemoveFile,
    Sidecar,
    Txn,
)

WHERE = "commit 7, line 3: action"

CLASSES: dict[str, Any] = {
    "protocol": Protocol,
    "metaData": Metadata,
    "txn": Txn,
    "domainMetadata": DomainMetadata,
    "sidecar": Sidecar,
    "checkpointMetadata": CheckpointMetadata,
    "add": AddFile,
    "remove": RemoveFile,
    "cdc": AddCdcFile,
}

# From PROTOCOL.md; `protocol` with the field names of its table.
EXAMPLES = """
{"metaData":{"id":"af23c9d7-fff1-4a5a-a2c8-55c59bd782aa","format":{"provider":"parquet","options":{}},"schemaString":"...","partitionColumns":[],"configuration":{"appendOnly": "true"}}}
{"add":{"path":"date=2017-12-10/part-000...c000.gz.parquet","partitionValues":{"date":"2017-12-10"},"size":841454,"modificationTime":1512909768000,"dataChange":true,"baseRowId":4071,"defaultRowCommitVersion":41,"stats":"{\\"numRecords\\":1,\\"minValues\\":{\\"val..."}}
{"add":{"path":"date=2017-12-10/part-000...c000.gz.parquet","partitionValues":{},"size":841454,"modificationTime":1512909768000,"dataChange":true,"baseRowId":4071,"defaultRowCommitVersion":41,"clusteringProvider":"liquid","stats":"{\\"numRecords\\":1,\\"minValues\\":{\\"val..."}}
{"remove":{"path":"part-00001-9.snappy.parquet","deletionTimestamp":1515488792485,"baseRowId":4071,"defaultRowCommitVersion":41,"dataChange":true}}
{"cdc":{"path":"_change_data/cdc-00001-c.snappy.parquet","partitionValues":{},"size":1213,"dataChange":false}}
{"txn":{"appId":"3ba13872-2d47-4e17-86a0-21afd2a22395","version":364475}}
{"protocol":{"minReaderVersion":1,"minWriterVersion":2}}
{"protocol":{"minReaderVersion":3,"minWriterVersion":7,"readerFeatures":["columnMapping"],"writerFeatures":["columnMapping","identityColumns"]}}
{"domainMetadata":{"domain":"delta.deltaTableFeatureX","configuration":"{\\"key1\\":\\"value1\\"}","removed":false}}
{"sidecar":{"path":"016ae953-37a9-438e-8683-9a9a4a79a395.parquet","sizeInBytes":2304522,"modificationTime":1512909768000,"tags":{}}}
{"checkpointMetadata":{"version":1,"tags":{}}}
{"add":{"path":"p","partitionValues":{"a":null},"size":1,"modificationTime":2,"dataChange":false,"tags":{"x":"y"},"deletionVector":{"storageType":"u","pathOrInlineDv":"ab^-aqEH.-t@S}K{vb[*k^","offset":4,"sizeInBytes":40,"cardinality":6}}}
{"remove":{"path":"p","dataChange":true,"extendedFileMetadata":true,"partitionValues":{},"size":1,"tags":{},"deletionVector":{"storageType":"i","pathOrInlineDv":"wi5b=000010000siXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L","sizeInBytes":40,"cardinality":6}}}
"""  # noqa: E501
CASES = [next(iter(json.loads(line).items())) for line in EXAMPLES.strip().splitlines()]

# By the "required" column of the protocol's tables.
REQUIRED = {
    "protocol": {"minReaderVersion", "minWriterVersion"},
    "metaData": {"id"},  # the rest is tolerated, see test_metadata_of_early_writers
    "txn": {"appId", "version"},
    "domainMetadata": {"domain", "configuration", "removed"},
    "sidecar": {"path", "sizeInBytes", "modificationTime"},
    "checkpointMetadata": {"version"},
    "add": {"path", "partitionValues", "size", "modificationTime", "dataChange"},
    "remove": {"path", "dataChange"},
    "cdc": {"path", "partitionValues", "size"},
}


@pytest.mark.parametrize(("name", "content"), CASES)
def test_examples_round_trip(name: str, content: dict[str, Any]) -> None:
    action = CLASSES[name].from_json(content, WHERE)
    assert action.to_json() == content
    assert pickle.loads(pickle.dumps(action)) == action


@pytest.mark.parametrize(("name", "content"), CASES)
def test_unknown_fields_are_ignored(name: str, content: dict[str, Any]) -> None:
    read = CLASSES[name].from_json
    assert read({**content, "fromTheFuture": {"a": [1]}}, WHERE) == read(content, WHERE)


@pytest.mark.parametrize(("name", "content"), CASES)
def test_required_fields_are_required_and_others_are_not(
    name: str, content: dict[str, Any]
) -> None:
    for key in content:
        rest = {other: value for other, value in content.items() if other != key}
        for broken in (rest, {**rest, key: None}):
            if key in REQUIRED[name]:
                with pytest.raises(CorruptLogError, match=rf"action\.{key}: .*required"):
                    CLASSES[name].from_json(broken, WHERE)
            else:
                CLASSES[name].from_json(broken, WHERE)


@pytest.mark.parametrize(("name", "content"), CASES)
def test_fields_of_another_type_are_refused(name: str, content: dict[str, Any]) -> None:
    for key in content:
        if (name, key) == ("cdc", "dataChange"):
            continue  # false by definition
        with pytest.raises(CorruptLogError, match=rf"action\.{key}\b.*: expected "):
            CLASSES[name].from_json({**content, key: 1.5}, WHERE)


@pytest.mark.parametrize("name", sorted(CLASSES))
@pytest.mark.parametrize("content", [None, [], "text", 1])
def test_an_action_must_be_an_object(name: str, content: object) -> None:
    with pytest.raises(CorruptLogError, match="line 3: action: expected an object"):
        CLASSES[name].from_json(content, WHERE)


def test_protocol_writes_features_sorted_and_keeps_empty_apart_from_absent() -> None:
    protocol = Protocol(3, 7, frozenset(), frozenset({"b", "a", "c"}))
    assert list(protocol.to_json().items()) == [
        ("minReaderVersion", 3),
        ("minWriterVersion", 7),
        ("readerFeatures", []),
        ("writerFeatures", ["a", "b", "c"]),
    ]
    assert Protocol.from_json(protocol.to_json(), WHERE) == protocol
    assert "writerFeatures" not in Protocol(1, 2).to_json()
    with pytest.raises(CorruptLogError, match=r"action\.readerFeatures: .*array of strings"):
        Protocol.from_json(
            {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": "x"}, WHERE
        )


def test_metadata_of_early_writers() -> None:
    metadata = Metadata.from_json({"id": "x"}, WHERE)
    assert metadata == Metadata("x", None, None, Format("parquet", {}), None, (), None, {})


def test_metadata_with_nulls_inside() -> None:
    metadata = Metadata.from_json(
        {"id": "x", "format": {}, "configuration": {"a": "1", "b": None}}, WHERE
    )
    assert metadata.format == Format("parquet", {})
    assert metadata.configuration == {"a": "1"}


def test_nested_failures_name_the_whole_path() -> None:
    with pytest.raises(CorruptLogError, match=r"action\.format\.provider: expected a string"):
        Metadata.from_json({"id": "x", "format": {"provider": 1}}, WHERE)
    with pytest.raises(CorruptLogError, match=r"action\.deletionVector\.cardinality: expected a"):
        RemoveFile.from_json(
            {
                "path": "p",
                "dataChange": True,
                "deletionVector": {"storageType": "i", "pathOrInlineDv": "", "sizeInBytes": 1},
            },
            WHERE,
        )


def test_partition_columns_keep_their_order() -> None:
    obj = {"id": "x", "partitionColumns": ["b", "a"]}
    assert Metadata.from_json(obj, WHERE).partition_columns == ("b", "a")


def test_system_domains() -> None:
    assert DomainMetadata("delta.clustering", "{}").is_system_controlled
    assert DomainMetadata("Delta.Clustering", "{}").is_system_controlled
    assert not DomainMetadata("deltaish", "{}").is_system_controlled


def test_commit_info_of_the_protocol() -> None:
    raw = {
        "timestamp": 1515491537026,
        "userId": "100121",
        "operation": "INSERT",
        "operationParameters": {"mode": "Append", "partitionBy": "[]"},
        "notebook": {"notebookId": "4443029", "notebookPath": "Users/x/actions"},
        "inCommitTimestamp": 1515491537027,
        "isBlindAppend": True,
        "readVersion": 3,
    }
    info = CommitInfo.from_json(raw, version=4)
    assert (info.version, info.timestamp_ms, info.in_commit_timestamp_ms) == (
        4,
        1515491537026,
        1515491537027,
    )
    assert (info.operation, info.is_blind_append, info.read_version) == ("INSERT", True, 3)
    assert info.operation_parameters == {"mode": "Append", "partitionBy": "[]"}
    assert info.to_json() == raw


@pytest.mark.parametrize("raw", [None, [], 5, "text", {}])
def test_any_commit_info_can_be_read(raw: object) -> None:
    assert CommitInfo.from_json(raw, version=2) == CommitInfo(version=2)


def test_commit_info_keeps_what_it_does_not_understand() -> None:
    raw = {
        "timestamp": "yesterday",
        "inCommitTimestamp": 2**70,
        "readVersion": True,
        "operation": ["WRITE"],
        "operationParameters": {"predicate": [1, {"a": None}], "n": 3},
        "operationMetrics": "none",
        "isBlindAppend": "true",
    }
    info = CommitInfo.from_json(raw, version=2)
    assert info == CommitInfo(
        version=2, operation_parameters={"predicate": [1, {"a": None}], "n": 3}, raw=raw
    )
    assert info.to_json() == raw


def test_commit_info_of_a_new_commit() -> None:
    info = CommitInfo(
        version=1, timestamp_ms=5, operation="WRITE", txn_id="t", is_blind_append=False
    )
    assert info.to_json() == {
        "timestamp": 5,
        "operation": "WRITE",
        "txnId": "t",
        "isBlindAppend": False,
    }


def test_the_module_offers_every_action() -> None:
    assert {cls.__name__ for cls in CLASSES.values()} < set(actions.__all__)


@pytest.mark.parametrize(
    "case",
    [
        "dat-all_primitive_types",
        "commit-info-containing-arbitrary-operationParams-types",
        "cdf-table-with-dv",
        "basic_partitioned",
        "checkpoint-v2-table",
    ],
)
def test_real_actions_round_trip(golden_case: Callable[[str], Path], case: str) -> None:
    seen = 0
    for file in sorted((golden_case(case) / "_delta_log").glob("*.json")):
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines()):
            for name, content in json.loads(line).items():
                if name == "commitInfo":
                    assert CommitInfo.from_json(content, version=0).to_json() == content
                elif name in CLASSES:
                    written = CLASSES[name].from_json(content, f"line {number}").to_json()
                    assert _comparable(written) == _comparable(content)
                seen += 1
    assert seen > 2


def _comparable(obj: dict[str, Any]) -> dict[str, Any]:
    """Without nulls, and with features as sets: neither order nor explicit nulls carry meaning."""
    return {
        key: frozenset(value)
        if key.endswith("Features")
        else _comparable(value)
        if key == "deletionVector"
        else value
        for key, value in obj.items()
        if value is not None
    }
