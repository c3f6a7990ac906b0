"""Features that are dropped without a look at rows, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from airflow_delta.engine import AddFile, DeltaTable, StructField, StructType
from airflow_delta.engine.errors import (
    ConstraintViolationError,
    InvalidArgumentError,
    InvalidTableError,
    UnsupportedFeatureError,
)
from airflow_delta.engine.features.feature import Drop
from airflow_delta.engine.features.protocol import supported_features
from airflow_delta.engine.features.registry import FEATURES
from airflow_delta.engine.maintenance.drop_feature import (
    execution,
    preparation,
    preparing,
    row_ids,
)
from airflow_delta.engine.model.actions import Protocol
from airflow_delta.engine.model.schema import LONG, STRING
from tests.engine.maintenance.drop_feature.worlds import World
from tests.faulty_storage import Crash, Fault, FaultyStorage, How
from tests.log_builder import add, metadata, write_commit

SCHEMA = StructType((StructField("id", LONG), StructField("part", STRING)))
PROTECTION = "checkpointProtection"
BOUNDARY = "delta.requireCheckpointProtectionBeforeVersion"


def file(name: str) -> AddFile:
    return AddFile(name, {}, 1, 1, data_change=True, stats='{"numRecords":3}')


def created(root: Path, properties: Mapping[str, str], *files: str) -> DeltaTable:
    """A table with properties, and a commit for each file."""
    delta = DeltaTable.create(root, SCHEMA, properties=properties)
    for name in files:
        transaction = delta.transaction("WRITE", enforces=["materializePartitionColumns"])
        transaction.add_file(file(name))
        transaction.commit()
    return delta


def operations(delta: DeltaTable, *, since: int) -> list[str | None]:
    """What the commits from a version on call themselves."""
    return [info.operation for info in reversed(delta.history()) if info.version >= since]


def checkpoints(root: Path) -> list[str]:
    """The names of checkpoints, from their version on."""
    return sorted(path.name[18:] for path in (root / "_delta_log").glob("*.checkpoint*"))


# The properties, what the commits call themselves, and the protocol that is left.
AT_ONCE: dict[str, tuple[dict[str, str], list[str], Protocol]] = {
    "checkConstraints": (
        {"delta.minWriterVersion": "3"},
        [],
        Protocol(1, 2),
    ),
    "inCommitTimestamp": (
        {"delta.enableInCommitTimestamps": "true", "delta.minWriterVersion": "2"},
        [],
        Protocol(1, 2),
    ),
    "rowTracking": (
        {"delta.enableRowTracking": "true"},
        ["SET TBLPROPERTIES", "ROW TRACKING UNBACKFILL"],
        Protocol(1, 7, None, frozenset({"domainMetadata"})),
    ),
    "domainMetadata": (
        {"delta.feature.domainMetadata": "supported", "delta.enableChangeDataFeed": "true"},
        [],
        Protocol(1, 7, None, frozenset({"changeDataFeed"})),
    ),
    "materializePartitionColumns": (
        {"delta.feature.materializePartitionColumns": "supported"},
        [],
        Protocol(1, 1),
    ),
}


@pytest.mark.parametrize("feature", AT_ONCE)
def test_a_harmless_feature_is_dropped_at_once(tmp_path: Path, feature: str) -> None:
    properties, steps, protocol = AT_ONCE[feature]
    delta = created(tmp_path, properties, "a", "b")
    plan = delta.drop_feature(feature, dry_run=True).plan
    assert plan is not None
    assert (plan.way, plan.protocol) == ("at once", protocol)
    assert len(plan.steps) == len(steps) + 1
    assert delta.latest_version() == 2
    result = delta.drop_feature(feature.upper())
    assert (result.status, result.feature) == ("dropped", feature)
    assert (result.version, result.num_commits) == (2 + len(steps) + 1, len(steps) + 1)
    assert (result.first_version, result.last_version) == (3, result.version)
    assert operations(delta, since=3) == [*steps, "DROP FEATURE"]
    unbackfills = [each for each in delta.history() if each.operation == "ROW TRACKING UNBACKFILL"]
    assert not any(each.is_blind_append for each in unbackfills)
    snapshot = delta.snapshot()
    assert snapshot.protocol == protocol
    assert not snapshot.metadata.configuration.keys() - {"delta.enableChangeDataFeed"}
    assert checkpoints(tmp_path) == []
    # The rows are the same, and so are those of the versions before.
    assert sorted(snapshot.files()["path"].to_pylist()) == ["a", "b"]
    assert delta.snapshot(1).files()["path"].to_pylist() == ["a"]


def test_row_ids_and_their_domain_are_removed(tmp_path: Path) -> None:
    delta = created(tmp_path, {"delta.enableRowTracking": "true"}, "a", "b")
    assert delta.snapshot().files()["baseRowId"].to_pylist() == [0, 3]
    delta.drop_feature("rowTracking")
    files = delta.snapshot().files()
    assert files["baseRowId"].null_count == files["defaultRowCommitVersion"].null_count == 2
    assert files["stats"].to_pylist() == ['{"numRecords":3}'] * 2
    assert delta.snapshot().domains == {}
    # And with it what it needed.
    assert delta.drop_feature("domainMetadata").status == "dropped"


def test_statistics_that_others_correct_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World({"delta.enableRowTracking": "true"}, "a", "b")
    corrected, stage = '{"numRecords":3,"minValues":{"id":1}}', row_ids.add_actions

    def _correct(files: pa.Table, *, data_change: bool) -> Iterator[AddFile]:
        monkeypatch.setattr(row_ids, "add_actions", stage)
        transaction = world.begin("COMPUTE STATS")
        adds = stage(transaction.read_files("id = 1"), data_change=False)
        transaction.add_files([replace(each, stats=corrected) for each in adds])
        transaction.commit()
        return stage(files, data_change=data_change)

    monkeypatch.setattr(row_ids, "add_actions", _correct)
    assert world.drop("rowTracking").status == "dropped"
    files = world.snapshot().files()
    assert files["stats"].to_pylist() == [corrected] * 2
    assert files["baseRowId"].null_count == 2


def test_domains_are_removed_with_their_feature(tmp_path: Path) -> None:
    delta = created(tmp_path, {"delta.feature.domainMetadata": "supported"})
    transaction = delta.transaction("WRITE")
    transaction.set_domain("mine", "x")
    transaction.commit()
    delta.drop_feature("domainMetadata")
    assert delta.snapshot().domains == {}
    assert delta.snapshot(1).domains["mine"].configuration == "x"


HIDDEN: dict[str, tuple[dict[str, str], list[str]]] = {
    "vacuumProtocolCheck": ({"delta.feature.vacuumProtocolCheck": "supported"}, []),
    "v2Checkpoint": ({"delta.checkpointPolicy": "v2"}, ["SET TBLPROPERTIES"]),
    "deletionVectors": ({"delta.enableDeletionVectors": "true"}, ["UNSET TBLPROPERTIES"]),
    "typeWidening": ({"delta.enableTypeWidening": "true"}, ["UNSET TBLPROPERTIES"]),
    "typeWidening-preview": (
        {
            "delta.enableTypeWidening": "true",
            "delta.feature.typeWidening-preview": "supported",
        },
        ["UNSET TBLPROPERTIES"],
    ),
}


@pytest.mark.parametrize("feature", HIDDEN)
def test_versions_with_other_features_are_hidden(tmp_path: Path, feature: str) -> None:
    properties, steps = HIDDEN[feature]
    delta = created(tmp_path, properties, "a", "b")
    made = [*steps, *["Empty Commit"] * 3, "DROP FEATURE"]
    plan = delta.drop_feature(feature, dry_run=True).plan
    assert plan is not None
    assert (plan.way, plan.barriers, len(plan.preparations)) == ("hidden", 3, len(steps))
    result = delta.drop_feature(feature)
    assert (result.status, result.num_commits) == ("dropped", len(made))
    assert operations(delta, since=3) == made
    version = delta.latest_version()
    assert result.version == version
    snapshot = delta.snapshot()
    assert snapshot.protocol == Protocol(1, 7, None, frozenset({PROTECTION}))
    assert snapshot.metadata.configuration[BOUNDARY] == str(version)
    assert checkpoints(tmp_path) == [
        f"{number:02}.checkpoint.parquet" for number in range(version - 3, version + 1)
    ]
    # Not one older commit is needed.
    for path in (tmp_path / "_delta_log").glob("*.json"):
        if int(path.name[:20]) < version - 3:
            path.unlink()
    for number in range(version - 3, version + 1):
        files = DeltaTable(tmp_path).snapshot(number).files()
        assert sorted(files["path"].to_pylist()) == ["a", "b"]


def test_a_later_drop_moves_the_boundary(tmp_path: Path) -> None:
    delta = created(tmp_path, {"delta.checkpointPolicy": "v2", "delta.enableTypeWidening": "true"})
    first, second = (delta.drop_feature(name).version for name in ("v2Checkpoint", "typeWidening"))
    assert first < second
    assert delta.snapshot().properties.require_checkpoint_protection_before_version == second
    # The checkpoints of the first drop hide nothing of the second.
    assert operations(delta, since=first + 1) == [
        "UNSET TBLPROPERTIES",
        *["Empty Commit"] * 3,
        "DROP FEATURE",
    ]


def test_a_boundary_never_falls(tmp_path: Path) -> None:
    # As a table may be that was copied without its history.
    writer = [PROTECTION, "vacuumProtocolCheck"]
    protocol = {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": ["vacuumProtocolCheck"],
        "writerFeatures": writer,
    }
    write_commit(
        tmp_path, 0, {"protocol": protocol}, metadata(configuration={BOUNDARY: "100"}), add("a")
    )
    delta = DeltaTable(tmp_path)
    delta.drop_feature("vacuumProtocolCheck")
    assert delta.snapshot().metadata.configuration[BOUNDARY] == "100"


def test_a_drop_is_done_once(tmp_path: Path) -> None:
    delta = created(tmp_path, {"delta.checkpointPolicy": "v2"})
    version = delta.drop_feature("v2Checkpoint").version
    for dry_run in (False, True):
        again = delta.drop_feature("v2checkpoint", dry_run=dry_run)
        assert (again.status, again.version, again.plan) == ("dropped", version, None)
        assert again.reason == f"version {version} has dropped v2Checkpoint"
    assert delta.latest_version() == version


def test_a_missing_checkpoint_at_the_boundary_is_written(tmp_path: Path) -> None:
    delta = created(tmp_path, {"delta.checkpointPolicy": "v2"})
    version = delta.drop_feature("v2Checkpoint").version
    last = tmp_path / "_delta_log" / f"{version:020}.checkpoint.parquet"
    last.unlink()
    assert delta.drop_feature("v2Checkpoint", dry_run=True).version == version
    assert not last.exists()
    assert delta.drop_feature("v2Checkpoint").version == version
    assert last.exists()


def test_a_missing_checkpoint_at_the_boundary_is_written_by_any_other_drop() -> None:
    world = World(
        {"delta.checkpointPolicy": "v2", "delta.feature.vacuumProtocolCheck": "supported"}
    )
    # Version 5 drops it: 1 sets the policy, 2 to 4 are the barriers.
    crash = Fault("create", 1, How.CRASH_AFTER, suffix=f"{5:020}.json")
    with pytest.raises(Crash):
        world.drop("v2Checkpoint", storage=FaultyStorage(world.storage, crash))
    boundary = world.snapshot().properties.require_checkpoint_protection_before_version
    name = f"{boundary:020}.checkpoint.parquet"
    assert (boundary, name in world.names()) == (5, False)
    world.drop("vacuumProtocolCheck", dry_run=True)
    assert name not in world.names()
    world.drop("vacuumProtocolCheck")
    assert name in world.names()


def test_a_boundary_that_is_yet_to_come_is_waited_for(tmp_path: Path) -> None:
    protocol = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": [PROTECTION]}
    write_commit(
        tmp_path, 0, {"protocol": protocol}, metadata(configuration={BOUNDARY: "100"}), add("a")
    )
    result = DeltaTable(tmp_path).drop_feature(PROTECTION, truncate_history=True)
    assert (result.status, result.ready_at_ms, result.num_commits) == ("waiting", None, 0)
    assert checkpoints(tmp_path) == []


def test_the_result_has_the_way_of_the_earlier_run(tmp_path: Path) -> None:
    delta = created(tmp_path, {"delta.checkpointPolicy": "v2"})
    delta.drop_feature("v2Checkpoint")
    again = delta.drop_feature("v2Checkpoint", truncate_history=True)
    assert (again.status, again.way) == ("dropped", "hidden")


def test_what_is_left_of_column_mapping_is_removed_too() -> None:
    world = World({"delta.feature.columnMapping": "supported"}, "a")
    mapping = {"delta.columnMapping.mode": "none", "delta.columnMapping.maxColumnId": "3"}
    former = world.snapshot().metadata
    column = {"delta.columnMapping.id": 1, "delta.columnMapping.physicalName": "id"}
    changed = replace(
        former,
        configuration=mapping,
        schema_string=former.schema_string.replace(
            '"metadata":{}', f'"metadata":{json.dumps(column)}'
        ),
    )
    transaction = world.begin("SET TBLPROPERTIES")
    transaction.set_metadata(changed)
    transaction.commit()
    assert "physicalName" in world.snapshot().metadata.schema_string
    assert world.drop("columnMapping").status == "dropped"
    assert world.snapshot().metadata.configuration.keys() == {BOUNDARY}
    assert world.snapshot().metadata.schema_string == former.schema_string


def test_an_empty_table_is_clustered_by_the_same_columns(tmp_path: Path) -> None:
    delta = created(tmp_path, {"delta.columnMapping.mode": "name"})
    delta.alter.cluster_by([("part",)])
    assert '[["col-' in delta.snapshot().domains["delta.clustering"].configuration
    assert delta.drop_feature("columnMapping").status == "dropped"
    (columns,) = (
        json.loads(domain.configuration)["clusteringColumns"]
        for domain in delta.snapshot().domains.values()
    )
    assert columns == [["part"]]


def test_a_step_that_others_always_undo_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World({"delta.enableTypeWidening": "true"})
    former, turn_off = world.snapshot().metadata, execution.turn_off

    def _undone(*step: Any) -> int:
        version = turn_off(*step)
        # Else a run that doesn't give up would never end.
        assert version < 2 * 20, "given up too late"
        transaction = world.begin("SET TBLPROPERTIES")
        transaction.set_metadata(former)
        transaction.commit()
        return version

    monkeypatch.setattr(execution, "turn_off", _undone)
    with pytest.raises(
        ConstraintViolationError,
        match=r"was done 20 times, and is still needed \(remove delta\.enableTypeWidening\)",
    ) as caught:
        world.drop("typeWidening")
    assert caught.value.facts["feature"] == "typeWidening"
    assert world.snapshot().version == 2 * 20


def test_a_step_of_many_commits_is_not_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"f{number}" for number in range(22)]
    world = World({"delta.enableRowTracking": "true"}, *names)
    monkeypatch.setattr(preparation, "BATCH", 1)
    take = partial(row_ids.remove_row_ids, batch=1)
    monkeypatch.setitem(preparing.STEPS, "take row ids", take)
    assert world.drop("rowTracking").num_commits == len(names) + 2


def use_and_purge(world: World) -> None:
    """Two commits: a file gets a deletion vector, and is rewritten without it."""
    vector = {"storageType": "i", "pathOrInlineDv": "wi5b=", "sizeInBytes": 1,
              "cardinality": 1}  # fmt: skip
    gone = {"path": "a", "dataChange": True}
    world.commit({"remove": gone}, add("a", deletionVector=vector))
    world.commit({"remove": {**gone, "deletionVector": vector}}, add("b"))


def test_barriers_do_not_hide_what_comes_after_them(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World({"delta.enableDeletionVectors": "true"}, "a")
    add_barrier, versions = execution.add_barrier, list[int]()

    def _used_and_purged(*step: Any) -> int:
        versions.append(add_barrier(*step))
        if len(versions) == 3:
            use_and_purge(world)
        return versions[-1]

    monkeypatch.setattr(execution, "add_barrier", _used_and_purged)
    # It dies before the last checkpoint.
    crash = Fault("create", 1, How.CRASH_AFTER, suffix=f"{11:020}.json")
    with pytest.raises(Crash):
        world.drop("deletionVectors", storage=FaultyStorage(world.storage, crash))
    assert "deletionVectors" not in supported_features(world.snapshot().protocol)
    assert versions == [3, 4, 5, 8, 9, 10]
    assert f"{10:020}.checkpoint.parquet" in world.names()


@pytest.mark.parametrize(
    ("before", "barriers"), [(1, [5, 6, 7]), (2, [3, 6, 7, 8]), (3, [3, 4, 7, 8, 9])]
)
def test_a_use_while_a_barrier_is_committed_overtakes_those_before_it(
    monkeypatch: pytest.MonkeyPatch, before: int, barriers: list[int]
) -> None:
    world = World({"delta.enableDeletionVectors": "true"}, "a")
    add_barrier, versions = execution.add_barrier, list[int]()

    def _used_and_purged(*step: Any) -> int:
        if len(versions) + 1 == before:
            use_and_purge(world)
        versions.append(add_barrier(*step))
        return versions[-1]

    monkeypatch.setattr(execution, "add_barrier", _used_and_purged)
    result = world.drop("deletionVectors")
    assert versions == barriers
    assert (result.status, result.version) == ("dropped", barriers[-1] + 1)


def test_barriers_count_whatever_else_others_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World({"delta.enableDeletionVectors": "true"}, "a")
    add_barrier, versions = execution.add_barrier, list[int]()

    def _appended(*step: Any) -> int:
        versions.append(add_barrier(*step))
        world.append(f"after {versions[-1]}")
        return versions[-1]

    monkeypatch.setattr(execution, "add_barrier", _appended)
    assert world.drop("deletionVectors").status == "dropped"
    assert versions == [3, 5, 7]


def test_existing_barriers_are_counted(tmp_path: Path) -> None:
    delta = created(tmp_path, {"delta.feature.vacuumProtocolCheck": "supported"}, "a")
    delta.drop_feature("vacuumProtocolCheck")
    # Without the last two commits, as if the run had been broken off after two barriers.
    for path in (tmp_path / "_delta_log").glob("*"):
        if path.name.startswith(("00000000000000000004", "00000000000000000005", "_last")):
            path.unlink()
    plan = DeltaTable(tmp_path).drop_feature("vacuumProtocolCheck", dry_run=True).plan
    assert plan is not None
    assert plan.barriers == 1
    # One without its checkpoint is none.
    (tmp_path / "_delta_log" / f"{3:020}.checkpoint.parquet").unlink()
    plan = DeltaTable(tmp_path).drop_feature("vacuumProtocolCheck", dry_run=True).plan
    assert plan is not None
    assert plan.barriers == 3


def test_an_old_protocol_becomes_lists(tmp_path: Path) -> None:
    delta = DeltaTable.create(
        tmp_path,
        SCHEMA,
        properties={
            "delta.columnMapping.mode": "name",
            "delta.minReaderVersion": "2",
            "delta.minWriterVersion": "5",
        },
    )
    assert delta.snapshot().protocol == Protocol(2, 5)
    assert delta.drop_feature("columnMapping").status == "dropped"
    protocol = delta.snapshot().protocol
    assert (protocol.min_reader_version, protocol.min_writer_version) == (1, 7)
    assert supported_features(protocol) == {
        "appendOnly",
        "invariants",
        "checkConstraints",
        "changeDataFeed",
        "generatedColumns",
        PROTECTION,
    }
    assert all(not field.metadata for field in delta.snapshot().schema)
    assert delta.snapshot().properties.column_mapping_max_column_id is None


@pytest.mark.parametrize(
    "name", [name for name, row in FEATURES.items() if not isinstance(row.drop, Drop)]
)
def test_other_features_say_why_they_stay(tmp_path: Path, name: str) -> None:
    delta = created(tmp_path, {})
    with pytest.raises(InvalidArgumentError, match=f"the feature {name} can't be dropped: \\w+"):
        delta.drop_feature(name)


def test_what_is_not_there_cannot_be_dropped(tmp_path: Path) -> None:
    delta = created(tmp_path, {"delta.feature.domainMetadata": "supported"})
    with pytest.raises(InvalidArgumentError, match="there is no table feature 'nonsense'"):
        delta.drop_feature("nonsense")
    with pytest.raises(InvalidArgumentError, match="name: expected a text"):
        delta.drop_feature(7)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgumentError, match="it supports domainMetadata"):
        delta.drop_feature("v2Checkpoint")


def test_what_others_require_stays(tmp_path: Path) -> None:
    delta = created(tmp_path, {"delta.enableRowTracking": "true"})
    with pytest.raises(
        ConstraintViolationError, match=r"\['rowTracking'\] of the table require it"
    ):
        delta.drop_feature("domainMetadata")
    assert delta.latest_version() == 0


def test_what_stays_keeps_what_it_requires(tmp_path: Path) -> None:
    delta = created(tmp_path, {"delta.enableIcebergCompatV2": "true"})
    with pytest.raises(
        ConstraintViolationError,
        match=r"\['icebergCompatV2'\] can't be dropped, so it must stay",
    ):
        delta.drop_feature("columnMapping")


def test_constraints_are_their_owners_to_drop(tmp_path: Path) -> None:
    protocol = {"minReaderVersion": 1, "minWriterVersion": 3}
    write_commit(
        tmp_path,
        0,
        {"protocol": protocol},
        metadata(configuration={"delta.constraints.few": "id < 9"}),
    )
    delta = DeltaTable(tmp_path)
    with pytest.raises(ConstraintViolationError, match=r"constraints \['few'\]; drop them first"):
        delta.drop_feature("checkConstraints")
    assert delta.latest_version() == 0


def test_names_that_need_column_mapping_are_refused_before_the_drop(tmp_path: Path) -> None:
    schema = StructType((StructField("a b", LONG),))
    delta = DeltaTable.create(tmp_path, schema, properties={"delta.columnMapping.mode": "name"})
    with pytest.raises(InvalidTableError, match=r"the columns \['a b'\]"):
        delta.drop_feature("columnMapping")
    assert delta.latest_version() == 0


def test_nothing_is_done_to_a_table_that_the_engine_cannot_write(tmp_path: Path) -> None:
    features = ["vacuumProtocolCheck", "fromTheFuture"]
    protocol = {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": features[:1],
        "writerFeatures": features,
    }
    write_commit(tmp_path, 0, {"protocol": protocol}, metadata())
    with pytest.raises(UnsupportedFeatureError, match="fromTheFuture"):
        DeltaTable(tmp_path).drop_feature("vacuumProtocolCheck")
    assert supported_features(DeltaTable(tmp_path).snapshot().protocol) == set(features)


@pytest.mark.parametrize("name", ["rowTracking", "inCommitTimestamp", "domainMetadata"])
def test_features_that_are_dropped_at_once_need_no_truncation(tmp_path: Path, name: str) -> None:
    delta = created(tmp_path, {f"delta.feature.{name}": "supported"})
    with pytest.raises(InvalidArgumentError, match="leave truncate_history out"):
        delta.drop_feature(name, truncate_history=True)


def test_protection_is_dropped_with_what_it_protects(tmp_path: Path) -> None:
    delta = created(tmp_path, {"delta.checkpointPolicy": "v2"})
    delta.drop_feature("v2Checkpoint")
    with pytest.raises(InvalidArgumentError, match="set truncate_history=True"):
        delta.drop_feature(PROTECTION)
