"""New tables: what version 0 holds, and what is refused before anything is written."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable as Peer
from deltalake import write_deltalake
from deltalake.exceptions import DeltaError

from airflow_delta.engine import DeltaTable, OptimisticTransaction
from airflow_delta.engine.errors import (
    InvalidArgumentError,
    InvalidTableError,
    TableAlreadyExistsError,
)
from airflow_delta.engine.model.schema import LONG, STRING, ArrayType, StructField, StructType
from tests.log_builder import add, commit_path, write_table

SCHEMA = StructType(
    (StructField("id", LONG), StructField("part", STRING), StructField("many", ArrayType(LONG)))
)


@pytest.mark.parametrize(
    ("partition_by", "problem"),
    [
        ("part", "partition_by: expected a list of columns, .* found the str 'part'"),
        (
            ["part", "nowhere"],
            r"\['nowhere'\] are no columns of the table, which has id, part, many",
        ),
        (["PART"], r"\['PART'\] are no columns"),
        (["part", "part"], "a column is listed twice"),
        (["many", "id", "part"], "these are all columns"),
    ],
)
def test_partition_columns_that_make_no_sense(
    tmp_path: Path, partition_by: Sequence[str], problem: str
) -> None:
    with pytest.raises(InvalidArgumentError, match=problem):
        DeltaTable.create(str(tmp_path), SCHEMA, partition_by=partition_by)
    assert not (tmp_path / "_delta_log").exists()


def test_an_array_is_nothing_to_partition_by(tmp_path: Path) -> None:
    with pytest.raises(InvalidTableError, match="only primitive types"):
        DeltaTable.create(str(tmp_path), SCHEMA, partition_by=["many"])
    assert not (tmp_path / "_delta_log").exists()


REMAINS = [
    "00000000000000000010.crc",
    "00000000000000000010.checkpoint.0000000001.0000000002.parquet",
    "00000000000000000003.00000000000000000005.compacted.json",
    "_last_checkpoint",
]


@pytest.mark.parametrize("name", REMAINS)
def test_the_log_of_a_former_table_does_not_become_a_new_ones(tmp_path: Path, name: str) -> None:
    log = tmp_path / "_delta_log"
    log.mkdir()
    (log / name).write_text('{"version":10,"size":1}')
    with pytest.raises(InvalidTableError, match=rf"_delta_log/{name}.*delete") as caught:
        DeltaTable.create(str(tmp_path), SCHEMA)
    assert caught.value.path == f"_delta_log/{name}"
    with pytest.raises(InvalidTableError, match=name):
        OptimisticTransaction(DeltaTable(str(tmp_path)).storage, None, "WRITE")
    (log / name).unlink()
    assert DeltaTable.create(str(tmp_path), SCHEMA).latest_version() == 0


def test_other_files_in_the_log_do_not_matter(tmp_path: Path) -> None:
    (tmp_path / "_delta_log" / "_sidecars").mkdir(parents=True)
    (tmp_path / "_delta_log" / ".tmp").write_text("")
    (tmp_path / "_delta_log" / "notes.txt").write_text("")
    assert DeltaTable.create(str(tmp_path), SCHEMA).latest_version() == 0


def test_a_table_that_lacks_its_first_commits_is_a_table(tmp_path: Path) -> None:
    table = DeltaTable(str(write_table(tmp_path, [add("a")], [add("b")])))
    table.checkpoint()
    for version in (0, 1):
        commit_path(tmp_path, version).unlink()
    with pytest.raises(TableAlreadyExistsError, match="already"):
        DeltaTable.create(str(tmp_path), SCHEMA)


def test_a_table_that_another_writer_creates_meanwhile_exists(tmp_path: Path) -> None:
    made = DeltaTable.create(str(tmp_path / "other"), SCHEMA).snapshot()
    transaction = OptimisticTransaction(DeltaTable(str(tmp_path / "t")).storage, None, "WRITE")
    transaction.set_protocol(made.protocol)
    transaction.set_metadata(made.metadata)
    theirs = DeltaTable.create(str(tmp_path / "t"), SCHEMA)
    with pytest.raises(TableAlreadyExistsError, match="another writer"):
        transaction.commit()
    assert theirs.latest_version() == 0


def actions(root: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in commit_path(root, 0).read_text().splitlines()]


def test_version_0_tells_what_was_made_and_how(tmp_path: Path) -> None:
    table = DeltaTable.create(
        str(tmp_path),
        SCHEMA,
        cluster_by=["id", ["part"]],
        properties={"delta.columnMapping.mode": "name", "delta.feature.v2Checkpoint": "supported"},
        name="sales",
        description="what was sold",
    )
    made = actions(tmp_path)
    assert [key for action in made for key in action] == [
        "commitInfo",
        "protocol",
        "metaData",
        "domainMetadata",
    ]
    assert made[0]["commitInfo"]["operation"] == "CREATE TABLE"
    parameters = made[0]["commitInfo"]["operationParameters"]
    assert json.loads(parameters["clusterBy"]) == ["id", "part"]
    assert json.loads(parameters["partitionBy"]) == []
    assert parameters["description"] == "what was sold"
    stored = made[2]["metaData"]["configuration"]
    assert json.loads(parameters["properties"]) == stored
    assert stored == {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "3"}
    snapshot = table.snapshot()
    names = [field.metadata["delta.columnMapping.physicalName"] for field in snapshot.schema]
    assert len({*names}) == 3
    domain = snapshot.domains["delta.clustering"]
    assert json.loads(domain.configuration)["clusteringColumns"] == [[names[0]], [names[1]]]


def test_two_tables_share_no_names(tmp_path: Path) -> None:
    properties = {"delta.columnMapping.mode": "id", "delta.enableRowTracking": "true"}
    made = [
        DeltaTable.create(str(tmp_path / name), SCHEMA, properties=properties).snapshot()
        for name in "ab"
    ]
    assert made[0].metadata.id != made[1].metadata.id
    names = [
        [
            *(field.metadata["delta.columnMapping.physicalName"] for field in snapshot.schema),
            *(
                value
                for key, value in snapshot.metadata.configuration.items()
                if "materialized" in key
            ),
        ]
        for snapshot in made
    ]
    assert len({*names[0], *names[1]}) == 10


def test_a_new_table_has_in_commit_timestamps_from_its_first_version(tmp_path: Path) -> None:
    on = {"delta.enableInCommitTimestamps": "true"}
    table = DeltaTable.create(str(tmp_path), SCHEMA, properties=on)
    info = actions(tmp_path)[0]["commitInfo"]
    snapshot = table.snapshot()
    assert info["inCommitTimestamp"] == snapshot.timestamp_ms
    assert snapshot.metadata.configuration == on


def test_the_columns_that_history_shows_are_written_as_in_sql(tmp_path: Path) -> None:
    odd = StructType((StructField("s", StructType((StructField("a `b`", LONG),))),))
    DeltaTable.create(
        str(tmp_path),
        odd,
        cluster_by=[["s", "a `b`"]],
        properties={"delta.columnMapping.mode": "name"},
    )
    parameters = actions(tmp_path)[0]["commitInfo"]["operationParameters"]
    assert json.loads(parameters["clusterBy"]) == ["s.`a ``b```"]


def test_what_can_not_be_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    for properties, problem in [
        ({"delta.enableIcebergCompatV1": "true"}, "V1 has no arrays"),
        ({"delta.apendOnly": "true"}, r"delta\.appendOnly"),
    ]:
        with pytest.raises((InvalidTableError, InvalidArgumentError), match=problem):
            DeltaTable.create(str(tmp_path), SCHEMA, properties=properties)
    with pytest.raises(InvalidArgumentError, match="many is of the type array"):
        DeltaTable.create(str(tmp_path), SCHEMA, cluster_by=["many"])
    assert not (tmp_path / "_delta_log").exists()


def test_columns_of_a_mapped_table_make_one_that_is_not(tmp_path: Path) -> None:
    by_name = {"delta.columnMapping.mode": "name"}
    mapped = DeltaTable.create(str(tmp_path / "a"), SCHEMA, properties=by_name).snapshot().schema
    table = DeltaTable.create(str(tmp_path / "b"), mapped)
    assert table.snapshot().schema == SCHEMA
    # Turned on later, the columns have the names that the files know by then.
    table.alter.set_properties(by_name)
    assert [
        column.metadata["delta.columnMapping.physicalName"] for column in table.snapshot().schema
    ] == [*SCHEMA.names]


@pytest.mark.parametrize("text", ["TRUE", "True"])
def test_the_peer_heeds_a_flag_in_whatever_case_it_was_given(tmp_path: Path, text: str) -> None:
    DeltaTable.create(str(tmp_path), SCHEMA, properties={"DELTA.APPENDONLY": text})
    peer = Peer(tmp_path)
    rows = pa.table({"id": [1]}, schema=pa.schema([("id", pa.int64())]))
    write_deltalake(peer, rows, mode="append", schema_mode="merge")
    with pytest.raises(DeltaError, match="append"):
        Peer(tmp_path).delete()


def test_a_table_without_columns_gets_them_later(tmp_path: Path) -> None:
    table = DeltaTable.create(str(tmp_path), StructType())
    assert table.snapshot().schema == StructType()
    table.alter.add_columns([StructField("id", LONG)])
    assert table.snapshot().schema.names == ("id",)
    assert Peer(tmp_path).version() == 1
