"""What comes back with a version beside its files, and what only goes forward."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from airflow_delta.engine import DeltaTable
from airflow_delta.engine.errors import UnsupportedFeatureError
from airflow_delta.engine.features.protocol import supported_features
from airflow_delta.engine.model.schema import LONG
from tests.engine.transaction.prepare.attempts import counted, mapped, protocol, schema
from tests.log_builder import add, metadata, remove, write_commit

MAPPED: dict[str, Any] = {
    "delta.columnMapping.id": 1,
    "delta.columnMapping.physicalName": "c1",
}
MAX_ID = "delta.columnMapping.maxColumnId"
MARK = "delta.identity.highWaterMark"
BOUNDARY = "delta.requireCheckpointProtectionBeforeVersion"
BEGAN = "delta.inCommitTimestampEnablementVersion"
BEGAN_AT = "delta.inCommitTimestampEnablementTimestamp"
TIMESTAMPS = {"delta.enableInCommitTimestamps": "true"}
TRACKED = {
    "delta.enableRowTracking": "true",
    "delta.rowTracking.materializedRowIdColumnName": "_ids",
    "delta.rowTracking.materializedRowCommitVersionColumnName": "_versions",
}


def legacy(reader: int, writer: int) -> dict[str, Any]:
    return {"protocol": {"minReaderVersion": reader, "minWriterVersion": writer}}


def restored(root: Path, version: int = 0) -> DeltaTable:
    table = DeltaTable(str(root))
    table.restore(version, ignore_missing_files=True)
    return table


def domain(name: str, configuration: str) -> dict[str, Any]:
    fields = {"domain": name, "configuration": configuration, "removed": False}
    return {"domainMetadata": fields}


def configuration(table: DeltaTable) -> dict[str, str]:
    return dict(table.snapshot().metadata.configuration)


# The protocol.

OLD = {"appendOnly", "invariants"}


@pytest.mark.parametrize(
    ("then", "now", "versions", "features"),
    [
        (legacy(1, 2), legacy(1, 3), (1, 3), {*OLD, "checkConstraints"}),
        (legacy(1, 3), legacy(1, 2), (1, 3), {*OLD, "checkConstraints"}),
        (legacy(1, 2), protocol("deletionVectors"), (3, 7), {*OLD, "deletionVectors"}),
        (protocol("deletionVectors"), legacy(1, 2), (3, 7), {*OLD, "deletionVectors"}),
        (protocol("timestampNtz"), protocol(*OLD), (3, 7), {*OLD, "timestampNtz"}),
        # About the log, and not about what was in the table.
        (protocol("checkpointProtection", "v2Checkpoint"), protocol(), (3, 7), {"v2Checkpoint"}),
        (protocol(), protocol("checkpointProtection"), (3, 7), {"checkpointProtection"}),
    ],
)
def test_the_protocol_supports_what_both_versions_do(
    tmp_path: Path,
    then: dict[str, Any],
    now: dict[str, Any],
    versions: tuple[int, int],
    features: set[str],
) -> None:
    write_commit(tmp_path, 0, then, metadata())
    write_commit(tmp_path, 1, now)
    found = restored(tmp_path).snapshot().protocol
    assert (found.min_reader_version, found.min_writer_version) == versions
    assert supported_features(found) == features


def test_an_unknown_feature_is_not_restored(tmp_path: Path) -> None:
    write_commit(tmp_path, 0, protocol("novelty"), metadata())
    write_commit(tmp_path, 1, protocol())
    with pytest.raises(UnsupportedFeatureError, match=r"version 0 .*'novelty'"):
        restored(tmp_path)


# Metadata.


def test_schema_partitioning_properties_and_names_come_back(tmp_path: Path) -> None:
    first = metadata(partition_columns=["part"], configuration={"a": "1", "b": "2"})
    first["metaData"] |= {"name": "former", "description": "of old", "createdTime": 7}
    files = [add(f"{part}", partitionValues={"part": part}) for part in "xy"]
    write_commit(tmp_path, 0, legacy(1, 2), first, *files)
    later = metadata(schema=schema(id="string", other="long"), configuration={"a": "3", "c": "4"})
    later["metaData"]["name"] = "present"
    write_commit(tmp_path, 1, later, *(remove(part) for part in "xy"), add("new"))
    table = restored(tmp_path)
    assert table.snapshot().metadata == table.snapshot(0).metadata
    assert table.snapshot().num_files == 2


def test_the_table_stays_the_same_one(tmp_path: Path) -> None:
    write_commit(tmp_path, 0, legacy(1, 2), metadata())
    replaced = metadata()
    replaced["metaData"]["id"] = "another"
    write_commit(tmp_path, 1, replaced)
    assert restored(tmp_path).snapshot().metadata.id == "another"


@pytest.mark.parametrize("nullable", [False, True])
def test_not_null_and_constraints_come_back_unless_they_were_not_there(
    tmp_path: Path, nullable: bool
) -> None:
    def strict(*, yes: bool) -> dict[str, Any]:
        columns = schema(id="long")
        columns["fields"][0]["nullable"] = not yes
        rules = {"delta.constraints.few": "id < 9"} if yes else {}
        return metadata(schema=columns, configuration=rules)

    write_commit(tmp_path, 0, legacy(1, 3), strict(yes=not nullable), add("a"), add("b"))
    write_commit(tmp_path, 1, strict(yes=nullable), remove("a"), add("c"))
    table = restored(tmp_path)
    assert table.snapshot().metadata == table.snapshot(0).metadata


def test_a_wider_type_is_restored_to_the_narrower_one(tmp_path: Path) -> None:
    enabled = {"delta.enableTypeWidening": "true"}
    narrow = metadata(schema=schema(id="integer"), configuration=enabled)
    write_commit(tmp_path, 0, protocol("typeWidening"), narrow, add("a"))
    DeltaTable(str(tmp_path)).alter.change_type("id", LONG)
    table = restored(tmp_path)
    assert str(table.snapshot().schema) == "struct<id:integer>"
    assert "typeChanges" not in (table.snapshot().metadata.schema_string or "")


def test_column_mapping_is_restored_and_no_id_is_assigned_twice(tmp_path: Path) -> None:
    write_commit(tmp_path, 0, legacy(1, 2), metadata(), add("a"))
    table = DeltaTable(str(tmp_path))
    table.alter.set_properties({"delta.columnMapping.mode": "name"})
    table.alter.drop_columns(["part"])
    highest = configuration(table)[MAX_ID]
    restored(tmp_path)
    snapshot = table.snapshot()
    assert snapshot.metadata.schema_string == table.snapshot(0).metadata.schema_string
    assert configuration(table) == {MAX_ID: highest} == {MAX_ID: "2"}

    table.restore(1, ignore_missing_files=True)
    assert configuration(table)["delta.columnMapping.mode"] == "name"
    table.alter.set_properties({"x": "y"})
    assert configuration(table)[MAX_ID] == highest


@pytest.mark.parametrize(("then", "now"), [(2, 5), (5, 2)])
def test_the_highest_column_id_never_falls(tmp_path: Path, then: int, now: int) -> None:
    mode = {"delta.columnMapping.mode": "name"}
    columns = mapped(schema(id="long", part="string"))
    for version, highest in enumerate((then, now)):
        properties = {**mode, MAX_ID: str(highest)}
        definition = metadata(schema=columns, configuration=properties)
        write_commit(tmp_path, version, legacy(2, 5), definition)
    assert configuration(restored(tmp_path))[MAX_ID] == "5"


def test_what_says_how_the_log_is_kept_stays(tmp_path: Path) -> None:
    features = protocol("checkpointProtection", "deletionVectors")
    write_commit(tmp_path, 0, features, metadata(configuration={BOUNDARY: "3", "a": "1"}))
    write_commit(tmp_path, 1, metadata(configuration={BOUNDARY: "7"}))
    write_commit(tmp_path, 2, metadata())
    assert configuration(restored(tmp_path, 0)) == {"a": "1"}
    assert configuration(restored(tmp_path, 1)) == {}
    write_commit(tmp_path, 5, metadata(configuration={BOUNDARY: "9"}))
    assert configuration(restored(tmp_path, 0)) == {BOUNDARY: "9", "a": "1"}


def test_in_commit_timestamps_are_as_they_were(tmp_path: Path) -> None:
    write_commit(tmp_path, 0, protocol("inCommitTimestamp"), metadata())
    table = DeltaTable(str(tmp_path))
    table.alter.set_properties(TIMESTAMPS)
    assert configuration(table)[BEGAN] == "1"
    restored(tmp_path, 0)
    assert configuration(table) == {}
    restored(tmp_path, 1)
    # They begin anew: version 2 has none.
    assert configuration(table) == {
        **TIMESTAMPS,
        BEGAN: "3",
        BEGAN_AT: str(table.snapshot().timestamp_ms),
    }
    table.alter.set_properties({"a": "1"})
    restored(tmp_path, 3)
    assert configuration(table)[BEGAN] == "3"
    times = [info.timestamp_ms or 0 for info in table.history()]
    assert times == sorted(times, reverse=True)


# Identity columns.


def numbered(mark: int | None, *, step: int = 1, name: str = "id", **more: Any) -> dict[str, Any]:
    """Metadata with an identity column from 1 on."""
    columns = schema(**{name: "long"})
    columns["fields"][0]["metadata"] = {
        "delta.identity.start": 1,
        "delta.identity.step": step,
        "delta.identity.allowExplicitInsert": False,
        **({} if mark is None else {MARK: mark}),
        **more,
    }
    configured = {"delta.columnMapping.mode": "name", MAX_ID: "1"} if more else {}
    return metadata(schema=columns, configuration=configured)


@pytest.mark.parametrize(
    ("step", "then", "now", "after"),
    [
        (1, 5, 9, 9),
        (1, None, 9, 9),
        (1, 5, None, 5),
        (1, None, None, None),
        # Lowered in between, by a user: what was assigned stays so.
        (1, 9, 5, 9),
        (-2, -3, -9, -9),
        (-2, -9, -3, -9),
    ],
)
def test_identity_values_are_made_once(
    tmp_path: Path, step: int, then: int | None, now: int | None, after: int | None
) -> None:
    # A value that a user has inserted, without the mark having been moved.
    far = json.dumps({"numRecords": 1, "minValues": {"id": -999}, "maxValues": {"id": 999}})
    features = protocol("identityColumns")
    write_commit(tmp_path, 0, features, numbered(then, step=step), add("a", stats=far))
    write_commit(tmp_path, 1, numbered(now, step=step), remove("a"))
    (field,) = restored(tmp_path).snapshot().schema
    assert field.metadata.get(MARK) == after


def test_a_renamed_identity_column_is_the_same_one(tmp_path: Path) -> None:
    features, mapping = protocol("identityColumns", "columnMapping"), MAPPED
    write_commit(tmp_path, 0, features, numbered(5, name="old", **mapping))
    write_commit(tmp_path, 1, numbered(9, name="new", **mapping))
    (field,) = restored(tmp_path).snapshot().schema
    assert (field.name, field.metadata[MARK]) == ("old", 9)


def test_an_identity_column_that_is_gone_keeps_the_mark_that_it_had(tmp_path: Path) -> None:
    write_commit(tmp_path, 0, protocol("identityColumns"), numbered(5))
    write_commit(tmp_path, 1, metadata(schema=schema(id="long")))
    (field,) = restored(tmp_path).snapshot().schema
    assert field.metadata[MARK] == 5


# Metadata domains.


def test_domains_of_users_come_back_and_those_of_the_protocol_stay(tmp_path: Path) -> None:
    first = [domain("both", "1"), domain("gone", "2"), domain("same", "3"), domain("delta.x", "4")]
    write_commit(tmp_path, 0, protocol("domainMetadata"), metadata(), *first)
    removed = domain("gone", "2")
    removed["domainMetadata"]["removed"] = True
    later = [domain("both", "5"), removed, domain("new", "6"), domain("delta.y", "7")]
    write_commit(tmp_path, 1, *later, domain("delta.x", "8"))
    table = restored(tmp_path)
    found = {name: each.configuration for name, each in table.snapshot().domains.items()}
    assert found == {"both": "1", "gone": "2", "same": "3", "delta.x": "8", "delta.y": "7"}
    # The log records what was removed.
    text = (tmp_path / "_delta_log" / f"{2:020}.json").read_text(encoding="utf-8")
    domains = [json.loads(line).get("domainMetadata") for line in text.splitlines()]
    assert {"domain": "new", "configuration": "6", "removed": True} in domains
    assert {each["domain"] for each in domains if each} == {"both", "gone", "new"}


def clustered(*columns: str) -> dict[str, Any]:
    return domain("delta.clustering", json.dumps({"clusteringColumns": [[c] for c in columns]}))


def clustering_columns(table: DeltaTable) -> Any:
    return json.loads(table.snapshot().domains["delta.clustering"].configuration)[
        "clusteringColumns"
    ]


def test_clustering_columns_come_back(tmp_path: Path) -> None:
    write_commit(tmp_path, 0, protocol("domainMetadata"), metadata())
    write_commit(tmp_path, 1, protocol("domainMetadata", "clustering"), clustered("id"))
    write_commit(tmp_path, 2, clustered("part", "id"))
    table = restored(tmp_path, 1)
    assert clustering_columns(table) == [["id"]]
    restored(tmp_path, 0)
    assert clustering_columns(table) == []
    restored(tmp_path, 2)
    assert clustering_columns(table) == [["part"], ["id"]]


# Row tracking.


def ids(table: DeltaTable) -> dict[str, tuple[int, int]]:
    rows = table.snapshot().files().to_pylist()
    return {row["path"]: (row["baseRowId"], row["defaultRowCommitVersion"]) for row in rows}


def mark(table: DeltaTable) -> Any:
    return json.loads(table.snapshot().domains["delta.rowTracking"].configuration)


def row(path: str, first: int, since: int, records: int = 2) -> dict[str, Any]:
    numbers = {"baseRowId": first, "defaultRowCommitVersion": since}
    return add(path, stats=counted(records), **numbers)


def test_rows_come_back_with_their_ids_and_no_id_is_given_out_twice(tmp_path: Path) -> None:
    features = protocol("rowTracking", "domainMetadata")
    write_commit(
        tmp_path,
        0,
        features,
        metadata(configuration=TRACKED),
        row("a", 0, 0),
        row("b", 2, 0),
        domain("delta.rowTracking", '{"rowIdHighWaterMark":3}'),
    )
    moved = domain("delta.rowTracking", '{"rowIdHighWaterMark":9}')
    write_commit(tmp_path, 1, remove("a"), row("c", 4, 1, 6), moved)
    table = restored(tmp_path)
    assert ids(table) == {"a": (0, 0), "b": (2, 0)}
    assert mark(table) == {"rowIdHighWaterMark": 9}
    (info,) = table.history(1)
    assert info.raw["tags"] == {"delta.rowTracking.preserved": "true"}


def test_files_from_before_row_tracking_get_ids(tmp_path: Path) -> None:
    write_commit(tmp_path, 0, protocol(), metadata(), add("a", stats=counted(5)))
    write_commit(tmp_path, 1, remove("a"))
    table = DeltaTable(str(tmp_path))
    table.alter.set_properties({"delta.feature.rowTracking": "supported"})
    restored(tmp_path)
    assert ids(table) == {"a": (0, 3)}
    assert mark(table) == {"rowIdHighWaterMark": 4}


def test_ids_that_the_table_has_lost_come_back_with_the_feature(tmp_path: Path) -> None:
    """Who drops the feature takes the ids from the files, and the mark from the table."""
    features = ("rowTracking", "domainMetadata")
    domain_of_ids = domain("delta.rowTracking", '{"rowIdHighWaterMark":5}')
    files = [row("a", 0, 0), row("b", 2, 0), row("c", 4, 0)]
    write_commit(
        tmp_path, 0, protocol(*features), metadata(configuration=TRACKED), *files, domain_of_ids
    )
    bare = [add(path, stats=counted(2), dataChange=False) for path in ("a", "b")]
    domain_of_ids["domainMetadata"]["removed"] = True
    write_commit(
        tmp_path, 1, protocol("domainMetadata"), metadata(), *bare, remove("c"), domain_of_ids
    )
    table = restored(tmp_path)
    assert ids(table) == {"a": (0, 0), "b": (2, 0), "c": (4, 0)}
    assert mark(table) == {"rowIdHighWaterMark": 5}
    assert configuration(table) == TRACKED
    text = (tmp_path / "_delta_log" / f"{2:020}.json").read_text(encoding="utf-8")
    adds = [action["add"] for line in text.splitlines() if "add" in (action := json.loads(line))]
    # To readers of changes just one file has come.
    assert {file["path"]: file["dataChange"] for file in adds} == {
        "a": False,
        "b": False,
        "c": True,
    }
