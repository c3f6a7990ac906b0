"""`table.alter`: what each method commits, what it refuses, and what it does when others are faster."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable as Peer

from airflow_delta.engine import AddFile, CommitResult, DeltaTable, Snapshot
from airflow_delta.engine.errors import (
    ConcurrentAppendError,
    ConcurrentDeleteReadError,
    ConcurrentTransactionError,
    ConstraintViolationError,
    DeltaError,
    InvalidArgumentError,
    InvalidTableError,
    MetadataChangedError,
    UnsupportedFeatureError,
)
from airflow_delta.engine.features.column_mapping import field_id, physical_name
from airflow_delta.engine.features.protocol import supported_features
from airflow_delta.engine.features.schema_walk import all_fields
from airflow_delta.engine.model.actions import Metadata
from airflow_delta.engine.model.schema import (
    DATE,
    INTEGER,
    LONG,
    SHORT,
    STRING,
    TIMESTAMP_NTZ,
    VARIANT,
    ArrayType,
    DecimalType,
    StructField,
    StructType,
)
from airflow_delta.engine.transaction.alter.table import TableAlteration
from tests.log_builder import commit_path, write_commit, write_table

INNER = StructType((StructField("x", INTEGER), StructField("y", ArrayType(LONG))))
SCHEMA = StructType(
    (
        StructField("id", SHORT, metadata={"unknown": [1]}),
        StructField("part", STRING),
        StructField("s", INNER),
    )
)
MAPPED = {"delta.columnMapping.mode": "name"}
WIDENING = {"delta.enableTypeWidening": "true"}
NEW = StructField("new", LONG)


def create(root: Path, properties: dict[str, str] | None = None, **arguments: Any) -> DeltaTable:
    return DeltaTable.create(str(root), SCHEMA, properties=properties, **arguments)


def append(table: DeltaTable, path: str = "f", **values: str) -> CommitResult:
    txn = table.transaction("WRITE", enforces=["checkConstraints", "allowColumnDefaults"])
    stats = json.dumps({"numRecords": 1, "nullCount": {"id": 0}, "minValues": {"id": 1}})
    file = AddFile(
        path=path,
        partition_values=values,
        size=1,
        modification_time=1,
        data_change=True,
        stats=stats,
    )
    txn.add_file(file)
    return txn.commit()


def actions(root: Path, version: int) -> dict[str, Any]:
    lines = commit_path(root, version).read_text(encoding="utf-8").splitlines()
    return {kind: value for line in lines for kind, value in json.loads(line).items()}


ALTERATIONS: list[tuple[Callable[[TableAlteration], CommitResult], str]] = [
    (lambda alter: alter.set_properties({"mine": "1"}), "SET TBLPROPERTIES"),
    (lambda alter: alter.unset_properties(["mine"]), "UNSET TBLPROPERTIES"),
    (lambda alter: alter.add_feature("vacuumProtocolCheck"), "SET TBLPROPERTIES"),
    (lambda alter: alter.add_columns([NEW], after="id"), "ADD COLUMNS"),
    (lambda alter: alter.rename_column(["s", "x"], "z"), "RENAME COLUMN"),
    (lambda alter: alter.drop_columns(["new"]), "DROP COLUMNS"),
    (lambda alter: alter.change_type("id", INTEGER), "CHANGE COLUMN"),
    (lambda alter: alter.set_not_null("id"), "CHANGE COLUMN"),
    (lambda alter: alter.set_nullable("id"), "CHANGE COLUMN"),
    (lambda alter: alter.set_comment("id", "c"), "CHANGE COLUMN"),
    (lambda alter: alter.set_default("id", "1"), "CHANGE COLUMN"),
    (lambda alter: alter.drop_default("id"), "CHANGE COLUMN"),
    (lambda alter: alter.move_column("part", first=True), "CHANGE COLUMN"),
    (lambda alter: alter.add_constraint("Few", "id < 9"), "ADD CONSTRAINT"),
    (lambda alter: alter.drop_constraint("few"), "DROP CONSTRAINT"),
    (lambda alter: alter.cluster_by(["id"]), "CLUSTER BY"),
    (lambda alter: alter.set_name("n"), "UPDATE TABLE METADATA"),
    (lambda alter: alter.set_description("d"), "SET TBLPROPERTIES"),
    (lambda alter: alter.set_description(None), "UNSET TBLPROPERTIES"),
]


def test_each_method_makes_one_commit_that_the_peer_follows(tmp_path: Path) -> None:
    table = create(tmp_path, {**MAPPED, **WIDENING})
    for version, (alter, operation) in enumerate(ALTERATIONS, start=1):
        assert alter(table.alter).version == version
        assert actions(tmp_path, version)["commitInfo"]["operation"] == operation
        assert table.history(1)[0].operation == operation
    final = table.snapshot()
    assert final.schema.names == ("part", "id", "s")
    assert (final.metadata.name, final.metadata.description) == ("n", None)
    id_column = final.schema.field("id")
    assert id_column is not None
    assert (id_column.metadata["unknown"], id_column.metadata["comment"]) == ([1], "c")
    peer = Peer(tmp_path)
    assert peer.version() == len(ALTERATIONS)
    assert json.loads(peer.schema().to_json()) == json.loads(final.metadata.schema_string or "")
    assert peer.metadata().name == "n"


def test_ids_of_dropped_columns_are_not_given_out_again(tmp_path: Path) -> None:
    alter = create(tmp_path, MAPPED).alter
    seen: dict[int, str] = {}
    for _ in range(3):
        alter.add_columns([StructField("new", ArrayType(INNER))], first=True)
        snapshot = DeltaTable(str(tmp_path)).snapshot()
        new = snapshot.schema.fields[0]
        for _, field in all_fields(StructType((new,))):
            assert field_id(field) not in seen
            assert physical_name(field, "name") not in seen.values()
            seen[field_id(field)] = physical_name(field, "name")
        assert snapshot.properties.column_mapping_max_column_id == max(seen)
        alter.drop_columns(["new"])
    assert len(seen) == 9


def test_columns_that_were_there_keep_their_names_in_files(tmp_path: Path) -> None:
    table = create(tmp_path)
    append(table)
    table.alter.set_properties(MAPPED)
    table.alter.rename_column("id", "number")
    table.alter.add_columns([StructField("id", LONG)])
    schema = table.snapshot().schema
    physical = {field.name: physical_name(field, "name") for field in schema}
    assert physical["number"] == "id"
    assert physical["id"].startswith("col-")


def test_a_partition_column_is_renamed_without_new_files(tmp_path: Path) -> None:
    table = create(tmp_path, MAPPED, partition_by=["part"])
    physical = physical_name(table.snapshot().schema.fields[1], "name")
    append(table, **{physical: "a"})
    table.alter.rename_column("part", "Dept")
    snapshot = table.snapshot()
    assert snapshot.metadata.partition_columns == ("Dept",)
    append(table, "g", **{physical: "b"})
    assert table.snapshot().num_files == 2
    with pytest.raises(InvalidArgumentError, match="partitioned by it"):
        table.alter.drop_columns(["Dept"])


def test_clustering_goes_by_physical_names(tmp_path: Path) -> None:
    table = create(tmp_path, MAPPED)
    table.alter.cluster_by(["id", ["s", "x"]])
    domain = table.snapshot().domains["delta.clustering"]
    table.alter.rename_column("s", "t")
    assert table.snapshot().domains["delta.clustering"] == domain
    for columns in (["id"], ["t"], [["t", "x"]]):
        with pytest.raises(InvalidArgumentError, match="the table is clustered by it"):
            table.alter.drop_columns(columns)
    table.alter.cluster_by([["t", "x"]])
    info = actions(tmp_path, 3)["commitInfo"]["operationParameters"]
    assert info == {"oldClusteringColumns": "id,t.x", "newClusteringColumns": "t.x"}
    table.alter.drop_columns(["id"])


def test_clustering_needs_statistics_of_the_files_that_are_there(tmp_path: Path) -> None:
    table = create(tmp_path)
    append(table)
    with pytest.raises(ConstraintViolationError, match="lack nullCount of the clustering column"):
        table.alter.cluster_by(["part"])
    table.alter.cluster_by(["id"])
    assert {"clustering", "domainMetadata"} <= supported_features(table.snapshot().protocol)


INDEXED, LISTED = "delta.dataSkippingNumIndexedCols", "delta.dataSkippingStatsColumns"


def test_clustering_columns_keep_their_statistics(tmp_path: Path) -> None:
    table = create(tmp_path, {**MAPPED, INDEXED: "3"}, cluster_by=[["s", "x"]])
    refused: list[Callable[[], CommitResult]] = [
        lambda: table.alter.set_properties({INDEXED: "2"}),
        lambda: table.alter.set_properties({LISTED: "id"}),
    ]
    for alter in refused:
        with pytest.raises(
            InvalidArgumentError, match=r"clustered by s\.x, which would get no"
        ) as caught:
            alter()
        assert caught.value.table == str(tmp_path)
    # In whatever case, and for all that is in a struct.
    table.alter.rename_column(["s", "x"], "z")
    table.alter.set_properties({LISTED: "ID, S.Z", INDEXED: "0"})
    with pytest.raises(InvalidArgumentError, match=r"clustered by s\.z, which would get no"):
        table.alter.unset_properties([LISTED])
    table.alter.unset_properties([LISTED, INDEXED])
    table.alter.cluster_by([])
    table.alter.set_properties({INDEXED: "0"})
    assert table.latest_version() == 5


def test_clustering_columns_that_had_no_statistics_do_not_stop_a_change(tmp_path: Path) -> None:
    table = create(tmp_path, cluster_by=["id", "part"])
    as_others_leave_it(tmp_path, {INDEXED: "0"})
    table.alter.set_properties({INDEXED: "1"})
    with pytest.raises(InvalidArgumentError, match="clustered by id, which would get no"):
        table.alter.set_properties({LISTED: "part"})
    table.alter.set_properties({LISTED: "part,id"})


def test_a_table_is_clustered_meanwhile(tmp_path: Path) -> None:
    """Neither of the two alterations could see that they don't go together."""
    table = create(tmp_path)
    stale = table.snapshot()
    table.alter.cluster_by(["id"])
    with pytest.raises(DeltaError, match="version 1"):
        TableAlteration(table.storage, lambda: stale).set_properties({INDEXED: "0"})


def as_others_leave_it(root: Path, properties: dict[str, str]) -> None:
    """Give version 0 properties that the engine lets nobody set."""
    first = commit_path(root, 0)
    lines = [json.loads(line) for line in first.read_text(encoding="utf-8").splitlines()]
    for line in lines:
        if "metaData" in line:
            line["metaData"]["configuration"] |= properties
    first.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")


def test_a_mode_of_column_mapping_that_nobody_heeds_stays_without_effect(tmp_path: Path) -> None:
    table = create(tmp_path)
    as_others_leave_it(tmp_path, MAPPED)
    append(table)
    protocol, schema = table.snapshot().protocol, table.snapshot().schema
    table.alter.set_properties({"mine": "1"})
    assert table.snapshot().schema == schema
    table.alter.set_comment("part", "c")
    table.alter.add_columns([NEW])
    assert table.snapshot().protocol == protocol
    with pytest.raises(InvalidArgumentError, match="renamed without column mapping"):
        table.alter.rename_column("id", "x")
    with pytest.raises(InvalidArgumentError, match="dropped without column mapping"):
        table.alter.drop_columns(["id"])
    table.alter.cluster_by(["id"])
    assert "columnMapping" not in supported_features(table.snapshot().protocol)
    domain = json.loads(table.snapshot().domains["delta.clustering"].configuration)
    assert domain["clusteringColumns"] == [["id"]]
    # A user may request it. The files keep their names.
    table.alter.set_properties(MAPPED)
    snapshot = table.snapshot()
    assert [physical_name(field, "name") for field in snapshot.schema] == [*snapshot.schema.names]
    assert "columnMapping" in supported_features(snapshot.protocol)


def test_a_version_of_lists_brings_them_and_nothing_else(tmp_path: Path) -> None:
    table = create(tmp_path)
    asked = {"delta.minReaderVersion": "3", "delta.minWriterVersion": "7"}
    table.alter.set_properties({**asked, "delta.feature.timestampNtz": "supported"})
    protocol = table.snapshot().protocol
    assert supported_features(protocol) == {"appendOnly", "invariants", "timestampNtz"}
    assert Peer(tmp_path).protocol().min_reader_version == 3


ROW_RULES: dict[str, Callable[[TableAlteration], CommitResult]] = {
    "NOT NULL of the column id;": lambda alter: alter.set_not_null("id"),
    "constraint 'few', 'id < 9';": lambda alter: alter.add_constraint("Few", "id < 9"),
}


@pytest.mark.parametrize("rule", ROW_RULES)
@pytest.mark.parametrize("level", ["Serializable", "SnapshotIsolation"])
def test_rules_for_rows_need_a_table_without_any(tmp_path: Path, rule: str, level: str) -> None:
    table = create(tmp_path)
    as_others_leave_it(tmp_path, {"delta.isolationLevel": level})
    assert table.snapshot().properties.isolation_level == level
    stale = table.snapshot()
    append(table)
    refused = f"against the {rule} .* no data files, or their rows were checked, and 1 files .* 'f'"
    with pytest.raises(ConstraintViolationError, match=f"version 2 was refused: .* {refused}"):
        ROW_RULES[rule](table.alter)
    # The file came while the alteration was under way.
    with pytest.raises(ConstraintViolationError, match=f"version 2 was refused: .* {refused}"):
        ROW_RULES[rule](TableAlteration(table.storage, lambda: stale))
    assert table.latest_version() == 1


CHECKED: dict[str, Callable[..., CommitResult]] = {
    "CHANGE COLUMN": lambda alter, **how: alter.set_not_null(["s", "x"], **how),
    "ADD CONSTRAINT": lambda alter, **how: alter.add_constraint("Few", "id < 9", **how),
}


@pytest.mark.parametrize("operation", CHECKED)
def test_rules_whose_rows_were_checked(tmp_path: Path, operation: str) -> None:
    table = create(tmp_path)
    append(table)
    seen: list[tuple[int, Metadata]] = []
    commit = CHECKED[operation](
        table.alter, check=lambda base, after: seen.append((base.version, after))
    )
    made = actions(tmp_path, commit.version)
    assert commit.version == 2
    assert seen == [(1, table.snapshot().metadata)]
    assert made["commitInfo"]["operation"] == operation
    assert (made["commitInfo"]["readVersion"], made["commitInfo"]["isBlindAppend"]) == (1, False)
    assert made.keys() <= {"commitInfo", "metaData", "protocol"}


@pytest.mark.parametrize("operation", CHECKED)
def test_a_check_that_fails_prevents_the_commit(tmp_path: Path, operation: str) -> None:
    table = create(tmp_path)
    append(table)

    def _refuse(base: Snapshot, _: Metadata) -> None:
        raise ConstraintViolationError("row 5", table=base.table)

    with pytest.raises(ConstraintViolationError, match="row 5"):
        CHECKED[operation](table.alter, check=_refuse)
    assert table.latest_version() == 1


@pytest.mark.parametrize("operation", CHECKED)
@pytest.mark.parametrize("level", ["Serializable", "WriteSerializable", "SnapshotIsolation"])
@pytest.mark.parametrize("with_files", [True, False])
def test_files_that_come_or_go_after_the_check_are_conflicts(
    tmp_path: Path, operation: str, level: str, with_files: bool
) -> None:
    table = create(tmp_path)
    as_others_leave_it(tmp_path, {"delta.isolationLevel": level})
    if with_files:
        append(table)
    before = table.latest_version()

    def _append(_: Snapshot, __: Metadata) -> None:
        append(DeltaTable(str(tmp_path)), "g")

    with pytest.raises(ConcurrentAppendError):
        CHECKED[operation](table.alter, check=_append)

    def _remove(_: Snapshot, __: Metadata) -> None:
        transaction = DeltaTable(str(tmp_path)).transaction("DELETE")
        transaction.remove_files(transaction.read_files())
        transaction.commit()

    with pytest.raises(ConcurrentDeleteReadError):
        CHECKED[operation](table.alter, check=_remove)
    assert table.latest_version() == before + 2


def test_commits_that_leave_the_files_are_no_conflict_for_a_check(tmp_path: Path) -> None:
    table = create(tmp_path)
    append(table)

    def _mark(_: Snapshot, __: Metadata) -> None:
        transaction = DeltaTable(str(tmp_path)).transaction("NOTHING")
        transaction.set_transaction("other", 1)
        transaction.commit()

    assert table.alter.set_not_null("id", check=_mark).version == 3


@pytest.mark.parametrize("operation", CHECKED)
def test_alterations_are_made_once_by_their_transaction(tmp_path: Path, operation: str) -> None:
    table = create(tmp_path)
    append(table)
    txn, checks = ("airflow:dag.task", 7), [0]

    def _count(_: Snapshot, __: Metadata) -> None:
        checks[0] += 1

    first = CHECKED[operation](table.alter, check=_count, txn=txn)
    again = CHECKED[operation](DeltaTable(str(tmp_path)).alter, check=_count, txn=txn)
    assert (first.version, first.repeated) == (2, False)
    assert (again.version, again.repeated) == (2, True)
    assert checks == [1]
    assert actions(tmp_path, 2)["txn"]["appId"] == "airflow:dag.task"


@pytest.mark.parametrize("operation", CHECKED)
def test_a_concurrent_try_of_the_same_transaction_is_found(tmp_path: Path, operation: str) -> None:
    table = create(tmp_path)
    append(table)
    txn = ("airflow:dag.task", 7)

    def _be_overtaken(_: Snapshot, __: Metadata) -> None:
        CHECKED[operation](DeltaTable(str(tmp_path)).alter, check=lambda *_: None, txn=txn)

    result = CHECKED[operation](table.alter, check=_be_overtaken, txn=txn)
    assert (result.version, result.repeated) == (2, True)
    assert table.latest_version() == 2


def test_other_transactions_of_the_application_are_waited_out(tmp_path: Path) -> None:
    table = create(tmp_path)
    append(table)
    checked: list[int] = []

    def _be_overtaken_once(base: Snapshot, _: Metadata) -> None:
        checked.append(base.version)
        if len(checked) == 1:
            transaction = DeltaTable(str(tmp_path)).transaction("NOTHING")
            transaction.set_transaction("app", 1)
            transaction.commit()

    commit = table.alter.set_not_null("id", check=_be_overtaken_once, txn=("app", 2))
    assert (commit.version, checked) == (3, [1, 2])


@pytest.mark.parametrize("txn", [(1, 1), ("app", "1"), ("app", True), ("app", 1 << 63)])
def test_alterations_with_a_wrong_transaction(tmp_path: Path, txn: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="a transaction identifier is a text and an"):
        create(tmp_path).alter.set_not_null("id", txn=txn)


def test_files_from_before_row_tracking_get_their_ids_by_being_added_once_more(
    tmp_path: Path,
) -> None:
    table = create(tmp_path)
    append(table)
    on = {"delta.enableRowTracking": "true"}
    with pytest.raises(
        ConstraintViolationError, match="row ids; first add the feature rowTracking"
    ):
        table.alter.set_properties(on)
    table.alter.add_feature("rowTracking")
    with pytest.raises(ConstraintViolationError, match="with dataChange=false"):
        table.alter.set_properties(on)
    again = table.transaction("ROW TRACKING BACKFILL")
    stats = json.dumps({"numRecords": 1})
    again.add_file(AddFile("f", {}, size=1, modification_time=1, data_change=False, stats=stats))
    again.commit()
    table.alter.set_properties(on)
    assert table.snapshot().files(columns=["path", "baseRowId"]).to_pylist() == [
        {"path": "f", "baseRowId": 0}
    ]


def test_what_is_demanded_already_can_be_said_again(tmp_path: Path) -> None:
    schema = StructType((StructField("id", LONG, nullable=False),))
    table = DeltaTable.create(str(tmp_path), schema)
    append(table)
    table.alter.set_not_null("id")
    assert table.snapshot().schema == schema


def test_files_that_come_meanwhile_are_no_matter_to_others(tmp_path: Path) -> None:
    table = create(tmp_path)
    stale = table.snapshot()
    append(table)
    result = TableAlteration(table.storage, lambda: stale).add_columns([NEW])
    assert (result.version, result.attempts) == (2, 2)
    assert table.snapshot().num_files == 1


def test_two_alterations_at_a_time_conflict(tmp_path: Path) -> None:
    table = create(tmp_path)
    stale = table.snapshot()
    table.alter.set_comment("id", "c")
    with pytest.raises(MetadataChangedError, match="version 1"):
        TableAlteration(table.storage, lambda: stale).add_columns([NEW])


def test_a_column_is_not_dropped_while_the_table_is_clustered_by_it(tmp_path: Path) -> None:
    table = create(tmp_path, MAPPED, cluster_by=["id"])
    stale = table.snapshot()
    table.alter.cluster_by(["part"])
    with pytest.raises(ConcurrentTransactionError, match=r"'delta\.clustering'"):
        TableAlteration(table.storage, lambda: stale).drop_columns(["part"])


def test_metadata_of_others_stays(tmp_path: Path) -> None:
    table = create(tmp_path, name="n", description="d")
    raw = actions(tmp_path, 0)["metaData"]
    raw["format"]["options"] = {"o": "1"}
    raw["configuration"]["delta.newer.than.we"] = "x"
    write_commit(tmp_path, 1, {"metaData": raw})
    table.alter.add_columns([NEW])
    changed = actions(tmp_path, 2)["metaData"]
    assert {**changed, "schemaString": ""} == {**raw, "schemaString": ""}


def test_a_feature_alone_leaves_the_metadata_alone(tmp_path: Path) -> None:
    table = create(tmp_path)
    table.alter.add_feature("rowTracking")
    assert actions(tmp_path, 1).keys() == {"commitInfo", "protocol"}
    assert {"rowTracking", "domainMetadata"} <= supported_features(table.snapshot().protocol)
    # It is there: a commit, which records the request in the history and changes nothing.
    table.alter.add_feature("rowTracking")
    assert actions(tmp_path, 2).keys() == {"commitInfo", "metaData"}


@pytest.mark.parametrize(
    ("alter", "feature"),
    [
        (lambda alter: alter.add_columns([StructField("at", TIMESTAMP_NTZ)]), "timestampNtz"),
        (lambda alter: alter.set_default("part", "'x'"), "allowColumnDefaults"),
        (lambda alter: alter.add_constraint("c", "id > 0"), "checkConstraints"),
        (lambda alter: alter.cluster_by(["id"]), "clustering"),
        (lambda alter: alter.set_properties({"delta.enableRowTracking": "true"}), "rowTracking"),
    ],
)
def test_features_come_with_what_needs_them(
    tmp_path: Path, alter: Callable[[TableAlteration], CommitResult], feature: str
) -> None:
    table = create(tmp_path)
    before = supported_features(table.snapshot().protocol)
    alter(table.alter)
    after = supported_features(table.snapshot().protocol)
    assert feature in after - before
    assert before <= after


def test_iceberg_compatibility_gets_ids_of_what_is_in_new_columns(tmp_path: Path) -> None:
    table = create(tmp_path, {"delta.enableIcebergCompatV2": "true", **WIDENING})
    table.alter.add_columns([StructField("new", ArrayType(ArrayType(LONG)))])
    field = table.snapshot().schema.fields[-1]
    ids = field.metadata["delta.columnMapping.nested.ids"]
    name = physical_name(field, "name")
    assert ids.keys() == {f"{name}.element", f"{name}.element.element"}
    with pytest.raises(InvalidArgumentError, match="Iceberg's as well"):
        table.alter.change_type("id", DecimalType(12, 0))
    table.alter.change_type("id", LONG)


def test_the_preview_of_type_widening_records_the_version(tmp_path: Path) -> None:
    table = create(tmp_path, {"delta.feature.typeWidening-preview": "supported", **WIDENING})
    table.alter.set_comment("id", "c")
    table.alter.change_type("id", LONG)
    field = table.snapshot().schema.field("id")
    assert field is not None
    (change,) = field.metadata["delta.typeChanges"]
    assert change == {"fromType": "short", "toType": "long", "tableVersion": 2}


REFUSED: list[tuple[Callable[[TableAlteration], CommitResult], type[DeltaError], str]] = [
    (lambda a: a.rename_column("id", "x"), InvalidArgumentError, "without column mapping"),
    (lambda a: a.drop_columns(["id"]), InvalidArgumentError, "without column mapping"),
    (lambda a: a.drop_columns("id"), InvalidArgumentError, "expected a list of columns"),
    (lambda a: a.drop_columns([]), InvalidArgumentError, "expected a list of columns"),
    (lambda a: a.add_columns([StructField("a b", LONG)]), InvalidTableError, "'a b'.*to name"),
    (lambda a: a.add_columns([StructField("PART", LONG)]), InvalidArgumentError, "such a column"),
    (
        lambda a: a.add_columns([NEW], after="x"),
        InvalidArgumentError,
        "a column of the same struct",
    ),
    (lambda a: a.add_columns([NEW], inside="nope"), InvalidArgumentError, "no column nope"),
    (lambda a: a.add_columns([StructField("v", VARIANT)]), UnsupportedFeatureError, "variantType"),
    (lambda a: a.change_type("id", LONG), InvalidArgumentError, "type widening isn't enabled"),
    (lambda a: a.move_column("id"), InvalidArgumentError, "'id' can't be moved without a position"),
    (lambda a: a.set_properties({}), InvalidArgumentError, "no properties to set"),
    (lambda a: a.set_properties({"delta.nope": "1"}), InvalidArgumentError, "no table property"),
    (
        lambda a: a.set_properties({"delta.constraints.c": "id > 0"}),
        InvalidArgumentError,
        "other operations add and drop constraints",
    ),
    (lambda a: a.unset_properties(["x"]), InvalidArgumentError, "no properties"),
    (lambda a: a.unset_properties("x"), InvalidArgumentError, "expected a list"),
    (lambda a: a.add_feature("nope"), UnsupportedFeatureError, "doesn't know the feature 'nope'"),
    (lambda a: a.add_constraint("", "id > 0"), InvalidArgumentError, "expected a name"),
    (lambda a: a.add_constraint("c", " "), InvalidArgumentError, "expected a name"),
    (
        lambda a: a.drop_constraint("c"),
        InvalidArgumentError,
        r"no constraint 'c'; the table has \[",
    ),
    (lambda a: a.cluster_by([]), InvalidArgumentError, "isn't clustered"),
    (
        lambda a: a.set_properties({"delta.isolationLevel": "snapshotisolation"}),
        InvalidArgumentError,
        "each miss what the other one adds",
    ),
    (
        lambda a: a.set_properties({LISTED: "my col"}),
        InvalidArgumentError,
        "'my col' is no list of column names",
    ),
    (lambda a: a.cluster_by([["s", "y"]]), InvalidArgumentError, "no least and greatest"),
]


@pytest.mark.parametrize(("alter", "error", "problem"), REFUSED)
def test_refusals_name_the_table_and_commit_nothing(
    tmp_path: Path,
    alter: Callable[[TableAlteration], CommitResult],
    error: type[DeltaError],
    problem: str,
) -> None:
    table = create(tmp_path)
    with pytest.raises(error, match=problem) as caught:
        alter(table.alter)
    assert caught.value.table == str(tmp_path)
    assert table.latest_version() == 0


def test_a_constraint_has_one_name_in_any_case(tmp_path: Path) -> None:
    table = create(tmp_path, MAPPED)
    table.alter.add_constraint("Few", " id < 9 ")
    assert table.snapshot().properties.constraints == {"few": "id < 9"}
    with pytest.raises(InvalidArgumentError, match="'few' already, 'id < 9'"):
        table.alter.add_constraint("FEW", "id < 8")
    with pytest.raises(InvalidArgumentError, match="the constraint 'few'"):
        table.alter.rename_column("id", "x")
    with pytest.raises(InvalidArgumentError, match="the constraint 'few'"):
        table.alter.drop_columns(["id"])
    table.alter.drop_constraint("fEw")
    table.alter.drop_constraint("few", if_exists=True)
    table.alter.rename_column("id", "x")
    recorded = [
        actions(tmp_path, version)["commitInfo"]["operationParameters"] for version in (2, 3)
    ]
    assert recorded == [
        {"name": "fEw", "expr": "id < 9", "existed": "true"},
        {"name": "few", "existed": "false"},
    ]


def test_a_constraint_does_not_keep_what_it_does_not_name(tmp_path: Path) -> None:
    table = create(tmp_path, {**MAPPED, **WIDENING})
    table.alter.add_constraint("c", "s.x > 0 and part <> 'id'")
    table.alter.rename_column("id", "number")
    table.alter.change_type("number", LONG)
    table.alter.drop_columns([["s", "y"]])
    for column in (["s", "x"], "part"):
        with pytest.raises(InvalidArgumentError, match="the constraint 'c'"):
            table.alter.rename_column(column, "other")
    with pytest.raises(InvalidArgumentError, match="the constraint 'c'"):
        table.alter.change_type(["s", "x"], LONG)


def test_a_date_becomes_a_timestamp_with_its_feature(tmp_path: Path) -> None:
    schema = StructType((StructField("d", DATE),))
    table = DeltaTable.create(str(tmp_path), schema, properties=WIDENING)
    table.alter.change_type("d", TIMESTAMP_NTZ)
    snapshot = table.snapshot()
    assert snapshot.schema.fields[0].data_type == TIMESTAMP_NTZ
    assert "timestampNtz" in supported_features(snapshot.protocol)


def test_the_page_describes_what_happens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    page = Path(__file__).resolve().parents[4] / "docs" / "how-to" / "alter-tables.md"
    code = "".join(re.findall(r"^```python\n(.*?)^```", page.read_text("utf-8"), re.M | re.S))
    exec(compile(code, str(page), "exec"), {"__name__": "example"})
    promised = re.findall(r"^# (.*)$", code, re.M)
    assert promised
    assert capsys.readouterr().out.splitlines() == promised


def test_the_error_of_a_broken_schema_names_the_table_once(tmp_path: Path) -> None:
    table = DeltaTable(str(write_table(tmp_path, [], schema={"type": "struct"})))
    with pytest.raises(InvalidTableError, match="'fields' is missing") as caught:
        table.alter.set_properties({"k": "v"})
    assert str(caught.value).count(str(tmp_path)) == 1
